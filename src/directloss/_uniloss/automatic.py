"""A metric refactored by tracing it: Sec. 3.3 of Liu, Wang, Deng (ECCV 2020), without manual work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss._checks import (
    DirectLossError,
    check_choice,
    check_finite,
    check_scores,
    check_tensor,
    fail,
    warn_once,
)
from directloss._uniloss.best import ideal_scores
from directloss._uniloss.comparisons import Comparisons, Pairs
from directloss._uniloss.refactoring import Bound, Refactored
from directloss._uniloss.stateful import stateless
from directloss._uniloss.tracing.calls import name_of, value_of, without_checks
from directloss._uniloss.tracing.explanation import Explanation
from directloss._uniloss.tracing.patterns import Pattern, learn
from directloss._uniloss.tracing.pruning import Rule, find_rule, pruned, variation
from directloss._uniloss.tracing.trace import Trace, record

CHECKS = 3
"""How many other scores the first use is checked on."""
MANY = 200_000
"""Above this many general comparisons a step takes about a second, so warn."""
KNOWN = 64
"""How many kinds of batches are remembered."""


@dataclass(frozen=True)
class Plan:
    """What tracing the first batch of a kind found."""

    rule: Rule | None
    pattern: Pattern | None
    follow: bool
    replays: bool
    """Whether the metric can be replayed from signs; if not, it can only be measured on scores."""
    explanation: Explanation
    batched: bool
    """Whether the metric takes several problems at once, along a leading dimension."""


class Automatic(Refactored):
    """Any metric, refactored by tracing its comparisons.

    The metric must be deterministic, return one number, and depend on scores only through comparisons. The first batch
    of each shape and type is traced; all values come from plain calls of the metric. Sorting n scores takes
    n (n - 1) / 2 comparisons here. Scores should be logits.

    A Python ``if`` on a comparison works. If its outcome only selects a branch (such as "are all scores in [0, 1]?"),
    it keeps the outcome of the recorded scores, and `explain` lists it.

    Args:
        metric: ``metric(scores, target)`` returns one number.
        prune: "auto" drops comparisons inside groups of equal relevance if the metric does not depend on them, and
            those of two wrong classes; True always drops them, False never.
        event_dims: how many of the last dimensions of scores are one problem; None for all.

    Examples:
        >>> correct = lambda scores, target: (scores.argmax(-1) == target).float().mean()
        >>> bound = Automatic(correct).bind(torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([0, 1]))
        >>> bound.comparisons.values(bound.scores)
        tensor([ 2.,  1.,  1., -1.])
        >>> bound.measure(bound.scores[None])
        tensor([0.5000])
    """

    def __init__(self, metric: Any, prune: bool | str = "auto", event_dims: int | None = None) -> None:
        if not callable(metric):
            hint = "It is called as metric(scores, target) and returns one number."
            fail("metric", "must be a function", f"a {type(metric).__name__}", hint)
        if not isinstance(prune, bool):
            check_choice("prune", prune, ("auto",))
        self.metric, self.prune, self.event_dims = stateless(metric), prune, event_dims
        self._unchecked = without_checks(self.metric)
        self._plans: dict[_Kind, Plan] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Plans are found again on the first batch; copies and files need not carry them.
        return {**self.__dict__, "_plans": {}}

    def __repr__(self) -> str:
        return f"Automatic({name_of(self.metric)})"

    def bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        """See `Refactored.bind`."""
        scores, target = check_scores(scores, 0, "(...)"), check_tensor("target", target)
        fixed = scores.detach()
        check_finite(fixed)
        plan = self._plans.get(_kind(fixed, target))
        if (plan is None or plan.pattern is None) and bool(torch.isnan(self._value(fixed, target))):
            return None  # do not record: a metric that is NaN may return before it compares
        plan = self._plan(fixed, target)
        pattern = plan.pattern
        comparisons = self._trace(plan, fixed, target).comparisons if pattern is None else pattern.comparisons(target)
        if comparisons.count == 0:
            return None
        best = ideal_scores(fixed, target)
        best = None if best is None else best.reshape(-1)
        return Bound(
            scores.reshape(-1),
            comparisons,
            self._measure(fixed.shape, target, plan.batched),
            self._decide(plan, fixed, target, comparisons) if plan.replays else None,
            best,
            # In pairs the more relevant score is on the left, so the best binaries are all ones.
            None if best is None or isinstance(comparisons, Pairs) else comparisons.values(best) > 0,
        )

    def hide(self, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """See `Refactored.hide`; only lists of labels, or of items with one class each, can be padded."""
        if mask.dim() != 1:
            fail(
                "mask",
                "must have one dimension for a metric function, because dropping entries of several changes the shape",
                f"of shape {tuple(mask.shape)}",
                "Pass batch_dims to treat lists separately, or drop padding inside the metric.",
            )
        return super().hide(scores, target, mask)

    def explain(self, scores: Tensor, target: Tensor) -> Explanation:
        """A description of what was found in the metric's code, by file and line."""
        scores, target = check_scores(scores, 0, "(...)").detach(), check_tensor("target", target)
        check_finite(scores)
        return self._plan(scores, target).explanation

    def _trace(self, plan: Plan, scores: Tensor, target: Tensor) -> Trace:
        return pruned(record(self.metric, scores, target, plan.follow), plan.rule)

    def _measure(self, shape: torch.Size, target: Tensor, batched: bool) -> Callable[[Tensor], Tensor]:
        def measure(scores: Tensor) -> Tensor:
            with torch.no_grad():
                rows = scores.detach().reshape(-1, *shape)
                if batched:
                    values: Tensor = self.metric(rows.clone(), target.expand(len(rows), *target.shape))
                    return values
                # All rows are of one kind with one target: if the metric accepts the first, it accepts all.
                calls = [self.metric, *[self._unchecked] * (len(rows) - 1)]
                return torch.stack([value_of(call, row, target) for call, row in zip(calls, rows, strict=True)])

        return measure

    def _decide(
        self, plan: Plan, scores: Tensor, target: Tensor, comparisons: Comparisons
    ) -> Callable[[Tensor], Tensor]:
        @cache
        def recorded() -> Trace:
            return self._trace(plan, scores, target).along(comparisons)

        return lambda bits: torch.stack([recorded().replay(row) for row in 2 * bits.to(torch.int8) - 1])

    def _plan(self, scores: Tensor, target: Tensor) -> Plan:
        kind = _kind(scores, target)
        if kind.bounded and scores.numel() > 1:
            warn_once(
                f"probabilities {name_of(self.metric)}",
                "All scores lie between 0 and 1. UniLoss takes logits: its anchors leave that range, and the metric "
                "may then treat them as logits. Pass the logits, before sigmoid or softmax.",
            )
        plan = self._plans.get(kind)
        if plan is None:
            while len(self._plans) >= KNOWN:
                del self._plans[next(iter(self._plans))]
            plan = self._study(scores, target)
            # A batch with nothing to compare, such as one without relevant items, says nothing about the next.
            if plan.explanation.kept:
                self._plans[kind] = plan
        return plan

    def _study(self, scores: Tensor, target: Tensor) -> Plan:
        """Record the metric, check the record, and look for a pattern."""
        generator = torch.Generator().manual_seed(0)
        self._check_deterministic(scores, target)
        trace, follow, replays = self._verified(scores, target, generator)
        rule = find_rule(trace, self.prune, generator)
        trace = pruned(trace, rule)
        _announce(trace)
        pattern = learn(trace, rule)
        if pattern is not None and not self._holds(pattern, follow, trace, generator):
            pattern = None
        found = replace(
            trace.explain(),
            pruning=_in_words(rule),
            pattern="none, each batch is recorded anew" if pattern is None else pattern.words,
            warnings=() if replays else ("it cannot be replayed; use anchors in score space",),
        )
        return Plan(rule, pattern, follow, replays, found, self._takes_batches(trace, generator))

    def _takes_batches(self, trace: Trace, generator: torch.Generator) -> bool:
        """Whether the metric of a stack of problems is the stack of their metrics, for some random ones."""
        rows = torch.stack([trace.scores, *(variation(trace.scores, generator) for _ in range(CHECKS))])
        measure = partial(self._measure, trace.scores.shape, trace.target)
        one_by_one = measure(batched=False)(rows)
        try:
            at_once: object = measure(batched=True)(rows)
        except Exception:  # whatever a metric raises for an unknown shape
            return False
        if not isinstance(at_once, Tensor) or at_once.shape != one_by_one.shape:
            return False
        return bool(torch.allclose(at_once.to(one_by_one.dtype), one_by_one, equal_nan=True))

    def _value(self, scores: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            return value_of(self.metric, scores, target)

    def _check_deterministic(self, scores: Tensor, target: Tensor) -> None:
        one, two = self._value(scores, target), self._value(scores, target)
        if not torch.equal(one, two) and not bool(torch.isnan(one) & torch.isnan(two)):
            fail(
                "metric",
                "must return the same value for the same scores",
                f"{float(one):g} in one call and {float(two):g} in the next",
                "Seed its random numbers, or reset its state in every call.",
            )

    def _verified(self, scores: Tensor, target: Tensor, generator: torch.Generator) -> tuple[Trace, bool, bool]:
        """A record whose replay gives the metric, with frozen guards or otherwise with followed ones; whether guards
        are followed; and whether any scores can be replayed.

        Raises if the two disagree on scores that are far apart. If they disagree only on these scores, or on tied ones,
        the metric is measured but not replayed: rounding, as in a sigmoid of large scores, may create ties.
        """
        apart = [_far_apart(scores, generator) for _ in range(CHECKS - 1)]
        others = [scores, *(variation(scores, generator, tied=k == 1) for k in range(CHECKS))]
        trace = record(self.metric, scores, target)
        differs, unknown = self._differs(trace, apart)
        if not differs and not unknown:
            return trace, False, not any(self._differs(trace, others))
        if trace.guards:
            second = record(self.metric, scores, target, follow=True)
            if not any(self._differs(second, apart)):
                return second, True, not any(self._differs(second, others))
        if differs:
            fail(
                "metric",
                "must depend on scores only through comparisons",
                f"{name_of(self.metric)}, which gives {differs} when replayed from the signs of its comparisons",
                "It may keep a state, take values of scores out of torch, or make other comparisons after an if or in "
                "a while. Write those with sort, topk, cumsum or a mask, or pass a Refactoring.",
            )
        return trace, False, False

    def _differs(self, trace: Trace, others: list[Tensor]) -> tuple[str, bool]:
        """How a replay and the metric disagree, in words; and whether the replay asked unrecorded questions."""
        for scores in others:
            try:
                plain = self._value(scores.to(trace.scores.dtype), trace.target)
            except DirectLossError:
                continue
            try:
                replayed = trace.replay(trace.answers(scores))
            except DirectLossError:
                return "", True
            if not torch.allclose(plain, replayed, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"{float(replayed):g} instead of {float(plain):g}", False
        return "", False

    def _holds(self, pattern: Pattern, follow: bool, trace: Trace, generator: torch.Generator) -> bool:
        """Whether the pattern also explains other batches of the same kind: other orders, other label frequencies."""
        for target in _other_targets(trace.target, generator):
            try:
                other = pruned(record(self.metric, variation(trace.scores, generator), target, follow), pattern.rule)
            except DirectLossError:
                return False
            if not pattern.explains(other):
                return False
        return True


class _Kind(NamedTuple):
    """What batches with the same plan have in common."""

    scores: tuple[torch.Size, torch.dtype, torch.device]
    target: tuple[torch.Size, torch.dtype]
    bounded: bool
    """Metrics tell probabilities from logits by the range of scores, so the two are different kinds."""


def _kind(scores: Tensor, target: Tensor) -> _Kind:
    low, high = torch.aminmax(scores)
    bounded = bool((low >= 0) & (high <= 1))
    return _Kind((scores.shape, scores.dtype, scores.device), (target.shape, target.dtype), bounded)


def _announce(trace: Trace) -> None:
    """Warn if a step will be slow."""
    many = trace.variables.marks.numel()
    if many > MANY:
        warn_once(
            f"many comparisons {name_of(trace.metric)}",
            f"{name_of(trace.metric)} makes {many:,} comparisons that are not differences of scores (for example of "
            f"softmax outputs of several rows, or of distances). They are recorded anew in each step, about a second "
            f"per {MANY:,}. A smaller batch makes fewer; fraction=0.1 relaxes a tenth of them.",
        )


def _other_targets(target: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The target in another order; with mostly its lowest label; and with mostly its highest.

    A metric may depend on how frequent a label is, and compare other things if it is rare. One entry of each label
    stays, because many metrics are undefined otherwise.
    """
    if not target.dim():
        return [target]
    size, device = len(target), target.device
    order = torch.randperm(size, generator=generator).to(device)
    kept = (torch.rand(size, generator=generator) < 0.25).to(device)
    kinds, kind = torch.unique(target.reshape(size, -1), dim=0, return_inverse=True)
    place = torch.arange(size, device=device)
    first = torch.full((len(kinds),), size, device=device).scatter_reduce_(0, kind, place, "amin")
    kept[first] = True
    return [target[order], *(target[torch.where(kept, place, one)] for one in (first[0], first[-1]))]


def _far_apart(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Scores in random order, too far apart for rounding to matter; probabilities stay probabilities."""
    low, high = (0.02, 0.98) if float(scores.min()) >= 0 and float(scores.max()) <= 1 else (-2.0, 2.0)
    places = torch.linspace(low, high, scores.numel() + 2, dtype=scores.dtype, device=scores.device)[1:-1]
    order = torch.randperm(scores.numel(), generator=generator).to(scores.device)
    return places[order].reshape(scores.shape)


def _in_words(rule: Rule | None) -> str:
    if rule is None:
        return "none"
    return "pairs of equal relevance do not matter" if rule.exact else "pairs of equal relevance keep their signs"
