"""Questions that other scores would ask: a decision about a chosen score may fall on any score of its list.

"Is the highest score above 0.5?" asks about one score now, and about another one for other scores. So where the
operands of a decision were chosen by earlier decisions, its thresholds are taken to hold for every score, and its
pairs to be all pairs of their lists.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from directloss._uniloss.tracing.deciders import Decision
from directloss._uniloss.tracing.layout import MOST, all_pairs, lists_along, lists_of
from directloss._uniloss.tracing.questions import PAIR, THRESHOLD, Asked
from directloss._uniloss.tracing.sites import Site
from directloss._uniloss.tracing.variables import collect


def closing(decisions: Iterable[Decision], shape: torch.Size, device: torch.device) -> list[Asked]:
    """The questions that the decisions about chosen scores may ask for other scores."""
    by_site: dict[Site, list[Asked]] = {}
    for decision in decisions:
        if decision.chosen:
            by_site.setdefault(decision.site, []).extend(decision.asked)
    out = []
    for asked in by_site.values():
        found = collect(asked, shape.numel(), device)
        if found.places.numel() and shape.numel() * len(found.levels) <= MOST:
            everywhere = torch.arange(shape.numel(), device=device).repeat_interleave(len(found.levels))
            out.append(_asked(THRESHOLD, everywhere, found.levels.repeat(shape.numel())))
        if found.pairs.numel():
            lists = lists_along(shape, lists_of(found.pairs, shape), device)
            left, right = all_pairs(lists, shape.numel())
            if left.numel() <= MOST:
                codes = left * shape.numel() + right
                out.append(_asked(PAIR, codes, torch.zeros_like(codes, dtype=torch.float64)))
    return out


def _asked(kind: int, code: Tensor, value: Tensor) -> Asked:
    none = torch.zeros_like(code, dtype=torch.int8)
    return Asked(torch.full_like(none, kind), none, code, value, none, None)
