"""Who answers the questions of a metric: the scores themselves while recording, a given assignment on replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import DirectLossError
from directloss._uniloss.tracing.questions import GENERAL, Asked, Operand
from directloss._uniloss.tracing.sites import Site
from directloss._uniloss.tracing.variables import Variables


@dataclass
class Decision:
    """One discrete operation of the metric."""

    site: Site
    operation: str
    asked: list[Asked] = field(default_factory=list)
    chosen: bool = False
    """Whether earlier decisions chose what it is about."""
    problem: str = ""
    """Why it cannot be part of a metric that is a function of comparisons; empty if it can."""


class Decider(ABC):
    """Answers questions, and keeps a list of the decisions they belong to."""

    replays = False

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def begin(self, site: Site, operation: str, problem: str = "", chosen: bool = False) -> int:
        """A new decision begins; the bit that marks what depends on it."""
        self.decisions.append(Decision(site, operation, chosen=chosen, problem=problem))
        return 1 << (len(self.decisions) - 1)

    @abstractmethod
    def answer(self, asked: Asked) -> Tensor:
        """-1, 0 or +1 for each question, int8."""


class Recorder(Decider):
    """The scores answer; the questions are written down."""

    def answer(self, asked: Asked) -> Tensor:
        """The sign of the real values."""
        # The operands are not kept: long records would hold every intermediate tensor.
        self.decisions[-1].asked.append(asked._replace(sides=None))
        return asked.real


class Kept(NamedTuple):
    """General comparisons that were asked for together: ``turn * (x - y)``, at some entries."""

    number: Tensor
    at: Tensor
    turn: Tensor
    sides: tuple[Operand, Operand, torch.Size]


class Replayer(Decider):
    """An assignment answers.

    Args:
        variables: what can be asked.
        answers: shape ``(l,)``, -1, 0 or +1.
        frozen: decisions at these sites are left to the real values.
        most: how many decisions a metric may make before it counts as an endless loop.
        keep: keep the two sides of each general comparison.
    """

    replays = True

    def __init__(
        self, variables: Variables, answers: Tensor, frozen: frozenset[Site], most: int, keep: bool = False
    ) -> None:
        super().__init__()
        self.variables, self.answers, self.frozen = variables, answers, frozen
        self.unknown: dict[Site, int] = {}
        self.kept: list[Kept] | None = [] if keep else None
        self._seen = torch.zeros(variables.count, dtype=torch.bool, device=answers.device)
        self._most = most

    def begin(self, site: Site, operation: str, problem: str = "", chosen: bool = False) -> int:
        """See `Decider.begin`; answers that no scores give may keep a loop of the metric going for ever."""
        if len(self.decisions) >= self._most:
            raise DirectLossError(
                f"metric must end for all answers to its comparisons, but a loop around {site} goes on after "
                f"{self._most:,} decisions. Write it without a while on scores: with sort, topk, cumsum or a mask."
            )
        return super().begin(site, operation, problem, chosen)

    def answer(self, asked: Asked) -> Tensor:
        """What the assignment says; the real sign where it says nothing."""
        site = self.decisions[-1].site
        if site in self.frozen:
            return asked.real
        number = self.variables.number(asked)
        missing = int((number == -2).sum())
        if missing:
            self.unknown[site] = self.unknown.get(site, 0) + missing
        if self.variables.count == 0:
            return asked.real
        if self.kept is not None:
            self._keep(asked, number)
        given = self.answers[number.clamp(min=0)] * asked.turn
        return torch.where(number >= 0, given, asked.real)

    def _keep(self, asked: Asked, number: Tensor) -> None:
        assert self.kept is not None
        assert asked.sides is not None
        at = ((asked.kind == GENERAL) & (number >= 0)).nonzero()[:, 0]
        at = at[~self._seen[number[at]]]
        if at.numel():
            which, place = torch.unique(number[at], return_inverse=True)
            at = torch.empty_like(which).scatter_(0, place, at)  # any one of those that ask the same
            self._seen[which] = True
            self.kept.append(Kept(which, at, asked.turn[at], asked.sides))
