"""The decisions of a metric, and who answers their questions: the scores while recording, an assignment on replay."""

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
    """Whether earlier decisions chose what it is about."""
    problem: str = ""
    """Why it cannot be part of a metric that is a function of comparisons; empty if it can."""


class Decider(ABC):
    """Answers questions, and keeps a list of the decisions they belong to."""

    replays = False

    def __init__(self, most: float = math.inf) -> None:
        self.decisions: list[Decision] = []
        self._most = most

    def begin(self, location: Location, operation: str, problem: str = "", chosen: bool = False) -> int:
        """A new decision begins; the bit that marks what depends on it."""
        if len(self.decisions) >= self._most:  # answers that no scores give may keep a loop going for ever
            raise DirectLossError(
                f"metric must end for all answers to its comparisons, but a loop around {location} goes on after "
                f"{self._most:,} decisions. Write it without a while on scores: with sort, topk, cumsum or a mask."
            )
        self.decisions.append(Decision(location, operation, chosen=chosen, problem=problem))
        return 1 << (len(self.decisions) - 1)

    @abstractmethod
    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """-1, 0 or +1 for each question about the sign of ``x - y``, int8."""


class Recorder(Decider):
    """The scores answer; the questions are written down."""

    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """The sign of the real values."""
        # x and y are not kept: long records would hold every intermediate tensor.
        self.decisions[-1].asked.append(asked)
        return asked.real


class Replayer(Decider):
    """An assignment answers.

    Args:
        variables: what can be asked.
        answers: shape ``(l,)``, -1, 0 or +1.
        frozen: decisions at these locations are left to the real values.
        most: how many decisions a metric may make before it counts as an endless loop.
        keep: keep the values of the general comparisons.
    """

    replays = True

    def __init__(
        self, variables: Variables, answers: Tensor, frozen: frozenset[Location], most: int, keep: bool = False
    ) -> None:
        super().__init__(most)
        self.variables, self.answers, self.frozen = variables, answers, frozen
        self.unknown: dict[Location, int] = {}
        self.general: list[tuple[Tensor, Tensor, Tensor]] | None = [] if keep else None
        """Numbers of general variables, their turns and their values before the turn: each variable once."""
        self._seen = torch.zeros(variables.count, dtype=torch.bool, device=answers.device)

    def answer(self, asked: Asked, x: Tensor, y: Tensor) -> Tensor:
        """What the assignment says; the real sign where it says nothing."""
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
        """The general variables that are asked for the first time."""
        at = ((asked.kind == GENERAL) & (number >= 0)).nonzero()[:, 0]
        at = at[~self._seen[number[at]]]
        if not at.numel():
            return []
        which, place = torch.unique(number[at], return_inverse=True)
        at = torch.empty_like(which).scatter_(0, place, at)  # any one of those that ask the same
        self._seen[which] = True
        shape: torch.Size = torch.broadcast_shapes(x.shape, y.shape)  # type: ignore[no-untyped-call]
        return [(which, asked.turn[at], _entries(x, shape, at) - _entries(y, shape, at))]


def _entries(side: Tensor, shape: torch.Size, at: Tensor) -> Tensor:
    """Flat entries of a tensor that is broadcast to a shape, without a broadcast copy of it."""
    spots = torch.arange(side.numel(), device=side.device).reshape(side.shape).expand(shape)
    return side.reshape(-1)[spots.reshape(-1)[at]]


def asked_for_other_scores(decisions: Iterable[Decision], shape: torch.Size, device: torch.device) -> list[Asked]:
    """The questions that the decisions about chosen scores may ask for other scores.

    "Is the highest score above 0.5?" asks about one score now, and about another one for other scores. So where the
    operands of a decision were chosen by earlier decisions, its thresholds are taken to hold for every score, and its
    pairs to be all pairs of their lists.
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
