"""Parts that keep groups together, and what is computed once for each photograph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.data.photographs import Arrays, cache_name, cached
from directloss_repro.data.split import thirds_by_group

from directloss import DirectLossError


def test_groups_stay_together() -> None:
    groups = [str(k // 3) for k in range(100)]
    parts = thirds_by_group(groups, 1)
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(100))
    owners = [{groups[k] for k in part.tolist()} for part in parts.values()]
    assert not owners[0] & owners[1] | owners[1] & owners[2] | owners[0] & owners[2]
    assert all(abs(len(part) - 100 / 3) < 4 for part in parts.values())
    again, other = thirds_by_group(groups, 1), thirds_by_group(groups, 2)
    assert all(torch.equal(again[name], part) for name, part in parts.items())
    assert not torch.equal(other["train"], parts["train"])
    with pytest.raises(DirectLossError, match="groups must be at least 3"):
        thirds_by_group(["a", "b", "b"], 1)


def test_work_is_done_once_and_damage_is_noticed(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> Arrays:
        calls.append(1)
        return {"rows": np.arange(1000.0), "boxes": np.ones((2, 4))}

    path = tmp_path / "cache" / "a.npz"
    for _ in range(2):
        assert float(cached(path, compute)["rows"].sum()) == 499_500
    assert len(calls) == 1
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    path.write_bytes(content)
    assert float(cached(path, compute)["rows"].sum()) == 499_500
    path.write_bytes(content[:100])
    cached(path, compute)
    assert len(calls) == 3
    assert [found.name for found in path.parent.iterdir()] == ["a.npz"]


def test_other_pixels_and_other_settings_have_other_names(tmp_path: Path) -> None:
    photograph = tmp_path / "2008_000008.jpg"
    photograph.write_bytes(b"pixels")
    first = cache_name(photograph, "alexnet", 227)
    assert first.startswith("2008_000008-")
    assert cache_name(photograph, "alexnet", 227) == first
    assert cache_name(photograph, "alexnet", 224) != first
    photograph.write_bytes(b"other pixels")
    assert cache_name(photograph, "alexnet", 227) != first
    photograph.unlink()
    with pytest.raises(DirectLossError, match=r"2008_000008\.jpg must be a readable image.*Unpack the data set again"):
        cache_name(photograph)
