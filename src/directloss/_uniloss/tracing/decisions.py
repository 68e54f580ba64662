"""The decisions of a metric and what answers their questions: the scores while recording, an assignment on replay."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from directloss._checks import DirectLossError
from directloss._uniloss.tracing.calls import Location
from directloss._uniloss.tracing.layout import MOST, all_pairs, lists_along, lists_of
from directloss._uniloss.tracing.variables import GENERAL, PAIR, THRESHOLD, Asked, Variables, collect


@dataclass
class Decision:
    """One discrete operation of the metric."""

    location: Location
    operation: str
    asked: list[Asked] = field(default_factory=list)
    chosen: bool = False
    """Whether earlier decisions chose its operands."""
    problem: str = ""
    """Why it is not a function of comparisons; empty if it is."""


class Decider(ABC):
    """Answers questions and lists the decisions they belong to."""

    replays = False

    def __init__(self, most: float = math.inf) -> None:
        self.decisions: list[Decision] = []
        self._most = most

    def begin(self, location: Location, operation: str, problem: str = "", chosen: bool = False) -> int:
        """Begin a decision; returns the bit that marks what depends on it."""
        if len(self.decisions) >= self._most:  # inconsistent answers may keep a loop going forever
            raise DirectLossError(
                f"metric must end for all answers to its comparisons, but a loop around {location} still runs after "
                f"{self._most:,} decisions. Replace a while on scores by sort, topk, cumsum or a mask."
            )
        self.decisions.append(Decision(location, operation, chosen=chosen, problem=problem))
        return 1 << (len(self.decisions) - 1)

    @abstractmethod
    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """-1, 0 or +1 for each question about the sign of ``x - y``, int8."""


class Recorder(Decider):
    """Answers from the scores, and records the questions."""

    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """The sign of the real values."""
        # x and y are not kept: long records would hold every intermediate tensor.
        self.decisions[-1].asked.append(asked)
        return asked.real


class Replayer(Decider):
    """Answers from an assignment.

    Args:
        variables: all known variables.
        answers: their signs, shape ``(l,)``: -1, 0 or +1.
        frozen: decisions at these locations follow the real values.
        most: how many decisions a metric may make before it counts as an endless loop.
        keep: whether to keep the values of the general comparisons.
    """

    replays = True

    def __init__(
        self, variables: Variables, answers: Tensor, frozen: frozenset[Location], most: int, keep: bool = False
    ) -> None:
        super().__init__(most)
        self.variables, self.answers, self.frozen = variables, answers, frozen
        self.unknown: dict[Location, int] = {}
        self.general: list[tuple[Tensor, Tensor, Tensor]] | None = [] if keep else None
        """Numbers of general variables, their turns, and their values before the turn; each variable once."""
        self._seen = torch.zeros(variables.count, dtype=torch.bool, device=answers.device)

    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """The assigned sign, or the real one for a question without a variable."""
        location = self.decisions[-1].location
        if location in self.frozen:
            return asked.real
        number = self.variables.number(asked)
        missing = int((number == -2).sum())
        if missing:
            self.unknown[location] = self.unknown.get(location, 0) + missing
        if self.general is not None:
            self.general += self._fresh(asked, number, x, y)
        given = self.answers[number.clamp(min=0)] * asked.turn
        return torch.where(number >= 0, given, asked.real)

    def _fresh(self, asked: Asked, number: Tensor, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The general variables asked for the first time."""
        at = ((asked.kind == GENERAL) & (number >= 0)).nonzero()[:, 0]
        at = at[~self._seen[number[at]]]
        if not at.numel():
            return []
        which, place = torch.unique(number[at], return_inverse=True)
        at = torch.empty_like(which).scatter_(0, place, at)  # any of the questions about the same variable
        self._seen[which] = True
        x, y = torch.broadcast_tensors(x, y)  # type: ignore[no-untyped-call]
        entries = torch.unravel_index(at, x.shape)
        return [(which, asked.turn[at], (x[entries] - y[entries]).reshape(-1))]


def asked_for_other_scores(decisions: Iterable[Decision], shape: torch.Size, device: torch.device) -> list[Asked]:
    """The questions that decisions about chosen scores may ask for other scores.

    "Is the highest score above 0.5?" asks about one score now, and about another one for other scores. So if earlier
    decisions chose the operands of a decision, its thresholds apply to every score, and its pairs are all pairs of
    their lists.
    """
    by_location: dict[Location, list[Asked]] = {}
    for decision in decisions:
        if decision.chosen:
            by_location.setdefault(decision.location, []).extend(decision.asked)
    out = []
    for asked in by_location.values():
        found = collect(asked, shape.numel(), device)
        if found.places.numel() and shape.numel() * len(found.levels) <= MOST:
            everywhere = torch.arange(shape.numel(), device=device).repeat_interleave(len(found.levels))
            out.append(_asked(THRESHOLD, everywhere, found.levels.repeat(shape.numel())))
        if found.pairs.numel():
            lists = lists_along(shape, lists_of(found.pairs, shape), device)
            codes = all_pairs(lists, shape.numel())
            if codes is not None:
                out.append(_asked(PAIR, codes, torch.zeros_like(codes, dtype=torch.float64)))
    return out


def _asked(kind: int, code: Tensor, value: Tensor) -> Asked:
    none = torch.zeros_like(code, dtype=torch.int8)
    return Asked(torch.full_like(none, kind), none, code, value, none)
