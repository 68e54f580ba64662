"""Metrics by name: those refactored by hand, and the metric of each task under its name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from directloss._checks import fail, near
from directloss._registry import get, meant, measured, split_name
from directloss._uniloss.byhand import BY_HAND
from directloss._uniloss.refactoring import Refactored


def by_name(name: str) -> Refactored:
    """The refactoring of a name such as ``"ap"``, ``"f1"`` or ``"ndcg@10"``.

    Examples:
        >>> by_name("ap"), by_name("ndcg@10")
        (AveragePrecisionPairs(), Automatic(ndcg))
    """
    base, named = name.strip().lower().partition("@")[0], measured()
    if base not in named and base not in BY_HAND:
        known = sorted({*BY_HAND, *named})
        fail(
            "metric",
            "must be a function, a Refactoring, or a known name",
            repr(name),
            f"{near(meant(base) or base, known)} Known: {', '.join(known)}; or pass the metric's function.".strip(),
        )
    _, number = split_name("metric", name)
    if base in BY_HAND and number is None:
        return BY_HAND[base]
    found = named.get(base)
    if found is None or (number is not None and not found.number):
        fail("metric", f"takes no number: {base!r} stands alone", repr(name))
    get(name)  # fails here if the number is not allowed, rather than at the first call
    return automatic(found.function(number), found.event_dims)


def automatic(metric: Callable[[Tensor, Tensor], Tensor], event_dims: int | None = None) -> Refactored:
    """An `Automatic` refactoring. Imported lazily: tracing is slow to import, and metrics by hand do not need it."""
    from directloss._uniloss.automatic import Automatic

    return Automatic(metric, event_dims=event_dims)
