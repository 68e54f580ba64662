"""Crops and features of frozen layers, computed once and read from disk as they are needed.

With frozen convolutions an iteration of AlexNet's classifier needs no image at all, which saves most of the time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss_repro.data.images import Pixels, normalise
from directloss_repro.data.skipping import Skipped
from directloss_repro.files import whole_file

AT_ONCE = 64


class StoredCrops:
    """Stored crops ``(n, s, s, 3)`` as if they were the tensor ``(n, 3, s, s)`` that a network sees.

    What it is indexed with is read and normalised then; `directloss_repro.data.Part` takes it for inputs.
    """

    def __init__(self, crops: NDArray[Any], index: Tensor) -> None:
        self.crops, self.index = crops, index
        side = crops.shape[1]
        self.shape = torch.Size((len(index), 3, side, side))

    def __getitem__(self, index: Tensor | slice) -> Any:
        if isinstance(index, slice):
            return StoredCrops(self.crops, self.index[index])
        return normalise(torch.from_numpy(self.crops[self.index[index].numpy()]))


def stored_features(
    names: Sequence[str],
    read: Callable[[int], Pixels],
    embed: Callable[[Tensor], Tensor] | None,
    path: Path,
    key: str,
    skipped: Skipped | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[NDArray[Any], list[int]]:
    """Features ``(m, d)`` of the items that can be read, memory-mapped from ``path``, and the indices of these items.

    ``read(k)`` gives the crop of item ``k``; ``embed`` takes normalised crops ``(b, 3, s, s)``. Without ``embed`` the
    crops themselves are stored. ``names`` and ``key`` say what the features are of and by which network. A file that
    says otherwise is made anew.
    """
    skipped = Skipped() if skipped is None else skipped
    described = {"key": key, "names": hashlib.blake2b("\n".join(names).encode(), digest_size=12).hexdigest()}
    side = path.with_suffix(".json")
    stored = _stored(path, side, described)
    if stored is not None:
        skipped.reasons += stored[2]
        return stored[0], stored[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    side.unlink(missing_ok=True)
    known = len(skipped.reasons)
    good = _compute(names, read, embed, path, skipped, progress)
    told = skipped.reasons[known:]
    with whole_file(side) as part:
        part.write_text(json.dumps({**described, "good": good, "skipped": told}), encoding="utf-8")
    return np.load(path, mmap_mode="r")[: len(good)], good


def _stored(path: Path, side: Path, described: dict[str, str]) -> tuple[NDArray[Any], list[int], list[str]] | None:
    with suppress(OSError, ValueError, KeyError, EOFError):
        said: dict[str, Any] = json.loads(side.read_text(encoding="utf-8"))
        if {name: said[name] for name in described} == described:
            return np.load(path, mmap_mode="r")[: len(said["good"])], said["good"], said["skipped"]
    return None


def _compute(
    names: Sequence[str],
    read: Callable[[int], Pixels],
    embed: Callable[[Tensor], Tensor] | None,
    path: Path,
    skipped: Skipped,
    progress: Callable[[int, int], None] | None,
) -> list[int]:
    """Write the rows of all readable items to ``path`` and return which these are."""
    good: list[int] = []
    rows: np.memmap[Any, Any] | None = None
    with whole_file(path) as part:
        for start in range(0, len(names), AT_ONCE):
            crops = []
            first = len(good)
            for index in range(start, min(start + AT_ONCE, len(names))):
                with skipped.catching():
                    crops.append(torch.from_numpy(np.array(read(index))))
                    good.append(index)
            if crops:
                values = _rows(torch.stack(crops), embed)
                if rows is None:
                    shape = (len(names), *values.shape[1:])
                    rows = np.lib.format.open_memmap(part, mode="w+", dtype=values.dtype, shape=shape)
                rows[first : len(good)] = values
            if progress is not None:
                progress(min(start + AT_ONCE, len(names)), len(names))
        skipped.check_something_left(len(good), str(path))
        assert rows is not None
        rows.flush()
    return good


def _rows(crops: Tensor, embed: Callable[[Tensor], Tensor] | None) -> NDArray[Any]:
    if embed is None:
        return crops.numpy()
    with torch.no_grad():
        return embed(normalise(crops)).float().numpy()
