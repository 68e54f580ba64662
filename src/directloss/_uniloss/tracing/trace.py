"""Recording a metric, and replaying it with other answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from directloss import kernels
from directloss._checks import DirectLossError, fail
from directloss._uniloss.comparisons import Comparisons, Differences, General
from directloss._uniloss.tracing.calls import Location, as_scalar, call_metric, name_of
from directloss._uniloss.tracing.decisions import Decision, Recorder, Replayer, asked_for_other_scores
from directloss._uniloss.tracing.explanation import Explanation, Step
from directloss._uniloss.tracing.run import Run, Watch
from directloss._uniloss.tracing.tape import Tape
from directloss._uniloss.tracing.tensors import storage_key
from directloss._uniloss.tracing.variables import Variables, collect

Metric = Callable[[Tensor, Tensor], Any]
GENERAL_MOST = 1 << 22
"""The most comparisons of general form: 48 anchors then take some 0.2 GB, and a step some 20 s."""

LONGEST = 200
"""A replay that makes more than this plus ten times the recorded decisions counts as an endless loop."""


@dataclass(frozen=True)
class Trace:
    """The comparisons that a metric made, and the metric as a function of their signs.

    Examples:
        >>> found = record(lambda s, t: ((s > 0) == t).float().mean(), torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
        >>> found.comparisons.count
        2
        >>> found.replay(torch.tensor([1, 1])), found.replay(torch.tensor([-1, -1]))
        (tensor(1.), tensor(0.))
    """

    metric: Metric
    scores: Tensor
    target: Tensor
    variables: Variables
    frozen: frozenset[Location]
    """Locations whose decisions keep the recorded answers."""
    decisions: tuple[Decision, ...] = ()
    kept: Tensor | None = None
    """The numbers of the variables kept after pruning; None for all."""
    turn: Tensor | None = None
    """-1 for kept variables with reversed sides, ``s_j - s_i``, +1 for others; None if ``kept`` is."""
    exact: bool = True
    """Whether the metric does not depend on the pruned variables; if it does, they keep their signs."""
    guards: tuple[Location, ...] = ()
    length: int = 0
    """How many decisions were made, including those that do not matter."""

    @property
    def comparisons(self) -> Comparisons:
        """f: what is compared, as a function of the flattened scores."""
        simple = self.variables.differences
        if self.variables.marks.numel():
            general = self._general()
            every = General(lambda scores: torch.cat((simple.values(scores), general(scores))), self.variables.count)
            return every if self.kept is None else every.take(self.kept)
        if self.kept is None or self.turn is None:
            return simple
        left, right, offset = simple.parts(self.kept)
        swap = (self.turn < 0) & (right >= 0)
        return Differences(torch.where(swap, right, left), torch.where(swap, left, right), offset)

    def answers(self, scores: Tensor) -> Tensor:
        """The signs of the comparisons for any scores, -1, 0 or +1."""
        return torch.sign(self.comparisons.values(scores.detach().reshape(-1))).to(torch.int8)

    def replay(self, answers: Tensor) -> Tensor:
        """g: the metric for these signs of the comparisons, shape ``(l,)``: -1, 0 or +1."""
        value, replayer = self._replayed(self.scores.clone(), self._complete(answers.to(self.scores.device)))
        if replayer.unknown:
            where = ", ".join(f"{count} at {location}" for location, count in replayer.unknown.items())
            fail(
                "metric",
                "must ask the same questions for all scores",
                f"asking {sum(replayer.unknown.values())} questions that were not recorded ({where})",
                "Use anchors in score space, which need no replay.",
            )
        return value

    def _replayed(self, scores: Tensor, answers: Tensor, tape: Tape | None = None) -> tuple[Tensor, Replayer]:
        """The metric for these answers, and the replayer; a tape keeps the general comparisons."""
        replayer = Replayer(self.variables, answers, self.frozen, LONGEST + 10 * self.length, tape is not None)
        run = Run(scores, replayer, nullcontext if tape is None else tape.aside)
        with torch.no_grad(), tape or nullcontext():
            return as_scalar(_watched(run, self.metric, scores, self.target), scores), replayer

    def _complete(self, answers: Tensor) -> Tensor:
        """Answers for all variables, including pruned ones.

        Two scores of the same group are ordered by their wins against the others. If both have the same wins, their
        order does not matter, but they are equal only if they are equal to a third score.
        """
        if self.kept is None or self.turn is None:
            return answers.to(torch.int8)
        given = (answers * self.turn).to(torch.int8)
        if not self.exact:
            return self._present.index_copy(0, self.kept, given)
        full = given.new_zeros(self.variables.count)
        full[self.kept] = given
        codes, m = self.variables.pairs, self.variables.m
        i, j = codes // m, codes % m
        dropped = torch.ones(codes.numel(), dtype=torch.bool, device=codes.device)
        dropped[self.kept[self.kept < codes.numel()]] = False
        signs = full[: codes.numel()].long()
        tie = (~dropped & (signs == 0)).long()
        wins, ties = (torch.zeros(m, dtype=torch.long, device=codes.device) for _ in range(2))
        wins.index_add_(0, i, signs).index_add_(0, j, -signs)
        ties.index_add_(0, i, tie).index_add_(0, j, tie)
        lead = torch.sign(wins[i] - wins[j])
        lead = torch.where((lead == 0) & (ties[i] + ties[j] == 0), 1, lead)
        full[: codes.numel()] = torch.where(dropped, lead, signs).to(torch.int8)
        return full

    @cached_property
    def _present(self) -> Tensor:
        """The answers of the recorded scores, for all variables."""
        return replace(self, kept=None, turn=None).answers(self.scores)

    def _general(self) -> Callable[[Tensor], Tensor]:
        """The comparisons of general form as a function of scores, from a tape of the metric."""
        scores = self.scores.clone()
        tape = Tape(scores)
        _, replayer = self._replayed(scores, self._recorded, tape)
        if not replayer.general:
            rule, hint = (
                "must return the same value for the same scores",
                "Seed its random numbers, or reset its state.",
            )
            fail("metric", rule, "one that compares other numbers in the next call", hint)
        numbers, turns, values = zip(*replayer.general, strict=True)
        order, turn, run = torch.cat(numbers).argsort(), torch.cat(turns), tape.towards(values)
        return lambda flat: (turn * torch.cat(run(flat.reshape(scores.shape).to(scores.dtype))))[order].to(flat.dtype)

    @property
    def _recorded(self) -> Tensor:
        """The recorded answers, for all variables."""
        out = torch.zeros(self.variables.count, dtype=torch.int8, device=self.scores.device)
        for decision in self.decisions:
            for asked in decision.asked:
                number = self.variables.number(asked)
                out[number[number >= 0]] = (asked.real * asked.turn)[number >= 0]
        return out

    def along(self, wanted: Comparisons) -> Trace:
        """The same record for comparisons in another order and direction."""
        if not isinstance(wanted, Differences) or wanted.any_alone:
            return self
        left, right, _ = wanted.all_parts
        codes = torch.minimum(left, right) * self.variables.m + torch.maximum(left, right)
        kept = torch.searchsorted(self.variables.pairs, codes)
        return replace(self, kept=kept, turn=torch.where(left < right, 1, -1))

    def explain(self) -> Explanation:
        """A readable description of what was found."""
        steps: dict[tuple[str, str], list[int]] = {}
        for decision in self.decisions:
            count = collect(decision.asked, self.variables.m, self.scores.device).count
            if count:
                steps.setdefault((str(decision.location), decision.operation), []).append(count)
        return Explanation(
            name_of(self.metric),
            tuple(Step(where, what, len(counts), sum(counts)) for (where, what), counts in steps.items()),
            self.variables.count,
            self.variables.count if self.kept is None else self.kept.numel(),
            self.variables.pairs.numel(),
            self.variables.places.numel(),
            self.variables.marks.numel(),
            tuple(dict.fromkeys(map(str, self.guards))),
        )


def record(metric: Metric, scores: Tensor, target: Tensor, follow: bool = False) -> Trace:
    """Run a metric once and record what it compares.

    Args:
        metric: ``metric(scores, target)`` returns one number.
        scores: floating point, finite, any shape.
        target: whatever the metric takes.
        follow: whether decisions that only steer Python code ("if every score is in [0, 1]") become variables as well;
            by default they are frozen.
    """
    # Half precision would tie different scores; the comparisons themselves are the same in float32.
    scores = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores.clone(memory_format=torch.contiguous_format)
    recorder = Recorder()
    own = scores.clone()
    run = Run(own, recorder)
    with torch.no_grad():
        result = _watched(run, metric, own, target)
    needed = _needed(run, result, recorder, follow)
    as_scalar(result, scores)  # raises if it is not a number
    decisions = [decision for k, decision in enumerate(recorder.decisions) if needed >> k & 1]
    _check(run, result, decisions)
    locations = {decision.location for decision in decisions}
    idle = [(k, d) for k, d in enumerate(recorder.decisions) if not needed >> k & 1 and d.location not in locations]
    guards = tuple(d.location for k, d in idle if run.guards >> k & 1 and _asks(d))
    questions = [asked for d in decisions for asked in d.asked]
    questions += asked_for_other_scores(decisions, scores.shape, scores.device)
    variables = collect(questions, scores.numel(), scores.device)
    if variables.count == 0:
        fail(
            "metric",
            "must compare scores with each other or with a constant",
            f"{name_of(metric)}, in which no comparison was found",
            "If it returns the same for all scores, there is nothing to learn.",
        )
    if variables.marks.numel() > GENERAL_MOST:
        fail(
            "metric",
            f"must make at most {GENERAL_MOST:,} comparisons that are not differences of scores",
            f"{name_of(metric)}, which makes {variables.marks.numel():,}",
            "Use a smaller batch.",
        )
    frozen, length = frozenset(d.location for _, d in idle), len(recorder.decisions)
    return Trace(metric, scores, target, variables, frozen, tuple(decisions), guards=guards, length=length)


def _watched(run: Run, metric: Metric, scores: Tensor, target: Tensor) -> Any:
    """The result of the metric under a run, without compiled kernels, which would hide their comparisons."""
    with kernels.use("tensor"), Watch(run), run:
        return call_metric(metric, scores, target)


def _asks(decision: Decision) -> bool:
    return any(bool((asked.kind != 0).any()) for asked in decision.asked)


def _needed(run: Run, result: Any, recorder: Recorder, follow: bool) -> int:
    """The decisions that the result depends on."""
    needed = run.used
    if isinstance(result, Tensor):
        needed |= run.shadows.origins(result)
    asks = any(_asks(d) for k, d in enumerate(recorder.decisions) if needed >> k & 1)
    carries = isinstance(result, Tensor) and run.shadows.carries(result)
    # A metric that ends in an "if" has only such decisions.
    return needed | run.guards if follow or not (asks or carries) else needed


def _check(run: Run, result: Any, decisions: list[Decision]) -> None:
    """Raise an error if the metric is not a function of comparisons."""
    for decision in decisions:
        if decision.problem:
            raise DirectLossError(
                f"metric must be made of comparisons, but at {decision.location} {decision.problem}. Write it with "
                "comparisons, sort, topk, argmax or rounding."
            )
    if isinstance(result, Tensor) and run.shadows.carries(result) and not run.constant(result):
        location = run.made.get(storage_key(result))
        mixed = "It also makes decisions, " if decisions else "It is already differentiable, "
        fail(
            "metric",
            "must depend only on comparisons of scores",
            f"computed from the values of scores (the result is made at {location or 'an unknown line'})",
            mixed + "and has a gradient of its own: call it, and backward() on the result.",
        )
