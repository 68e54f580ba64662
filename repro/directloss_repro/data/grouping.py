"""Parts that keep together what belongs together: persons of one photograph, images of one patient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from directloss._checks import fail
from directloss_repro.seeding import generator


def thirds_by_group(groups: Sequence[str], *seed: object) -> dict[str, Tensor]:
    """Indices of ``train``, ``val`` and ``test``: three parts, equal but for the rest of a group, drawn from a seed.

    Example:
        >>> parts = thirds_by_group(["a", "a", "b", "b", "c", "c"], "seed")
        >>> [len(part) for part in parts.values()]
        [2, 2, 2]
    """
    names = list(dict.fromkeys(groups))
    if len(names) < 3:
        fail("groups", "must be at least 3, one for each part", len(names))
    order = torch.randperm(len(names), generator=generator("thirds by group", *seed))
    place = {names[k]: rank for rank, k in enumerate(order.tolist())}
    ranks = torch.tensor([place[group] for group in groups])
    ordered = ranks.argsort(stable=True)
    cuts = [_next_group(ranks[ordered], round(len(groups) * share / 3)) for share in (1, 2)]
    parts = ordered[: cuts[0]], ordered[cuts[0] : cuts[1]], ordered[cuts[1] :]
    return {name: part.sort().values for name, part in zip(("train", "val", "test"), parts, strict=True)}


def _next_group(ranks: Tensor, cut: int) -> int:
    """The cut, moved to the end of the group that it falls into."""
    while 0 < cut < len(ranks) and ranks[cut] == ranks[cut - 1]:
        cut += 1
    return cut
