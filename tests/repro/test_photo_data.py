"""Photographs in folders, parts by group, and features that are computed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("cv2")

from directloss_repro.data.features import stored_features
from directloss_repro.data.folders import read_folders, whole_image
from directloss_repro.data.grouping import thirds_by_group
from directloss_repro.data.images import Pixels
from directloss_repro.data.skipping import Skipped
from PIL import Image

from directloss import DirectLossError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two patients with pneumonia (three images), three without (three images), in train and test."""
    for name, grey in [
        ("train/NORMAL/IM-0001-0001.jpeg", 10),
        ("train/NORMAL/NORMAL2-IM-0002-0001.jpeg", 20),
        ("test/NORMAL/IM-0003-0001.jpeg", 30),
        ("train/PNEUMONIA/person1_bacteria_1.jpeg", 200),
        ("train/PNEUMONIA/person1_virus_2.jpeg", 210),
        ("test/PNEUMONIA/person12_virus_3.jpeg", 220),
    ]:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 30), grey).save(path)
    (tmp_path / "photos" / "train" / "NORMAL" / "notes.txt").write_text("no image")
    return tmp_path / "photos"


def test_folders(root: Path) -> None:
    photos = read_folders(root)
    assert len(photos) == 6
    assert photos.classes == ("NORMAL", "PNEUMONIA")
    for path, label in zip(photos.paths, photos.labels.tolist(), strict=True):
        assert (path.parent.name == "PNEUMONIA") == bool(label)
    groups = {path.name: group for path, group in zip(photos.paths, photos.groups, strict=True)}
    assert groups["person1_bacteria_1.jpeg"] == groups["person1_virus_2.jpeg"] != groups["person12_virus_3.jpeg"]
    assert len(set(groups.values())) == 5
    assert whole_image(photos.paths[0], 50).shape == (50, 50, 3)
    assert read_folders(root, positive="NORMAL").labels.tolist() == (1 - photos.labels).tolist()
    assert len(read_folders(root / "train")) == 4


def test_bad_folders(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match="missing"):
        read_folders(tmp_path / "none")
    with pytest.raises(DirectLossError, match="two classes, but it is with no such folder"):
        read_folders(root / "train" / "NORMAL")
    with pytest.raises(DirectLossError, match="positive must be 'NORMAL' or 'PNEUMONIA', but it is 'pneumonia '"):
        read_folders(root, positive="pneumonia ")
    (root / "train" / "OTHER").mkdir()
    Image.new("L", (4, 4)).save(root / "train" / "OTHER" / "a.png")
    with pytest.raises(DirectLossError, match="NORMAL, OTHER, PNEUMONIA"):
        read_folders(root)


def test_groups_stay_together() -> None:
    groups = [str(k // 3) for k in range(100)]
    parts = thirds_by_group(groups, 1)
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(100))
    owners = [{groups[k] for k in part.tolist()} for part in parts.values()]
    assert not owners[0] & owners[1] | owners[1] & owners[2] | owners[0] & owners[2]
    assert all(abs(len(part) - 100 / 3) < 4 for part in parts.values())
    with pytest.raises(DirectLossError, match="groups must be at least 3"):
        thirds_by_group(["a", "b", "b"], 1)


class Counted:
    """The mean colour of a crop, and how many crops were asked for."""

    calls = 0

    def __call__(self, crops: Tensor) -> Tensor:
        self.calls += len(crops)
        return crops.mean((2, 3))


def test_features_are_computed_once(root: Path, tmp_path: Path) -> None:
    photos, embed = read_folders(root), Counted()
    photos.paths[2].write_bytes(b"broken")
    names = [str(path) for path in photos.paths]
    seen: list[tuple[int, int]] = []

    def read(index: int) -> Pixels:
        return whole_image(photos.paths[index], 20)

    for times in (1, 2):
        skipped = Skipped()
        features, good = stored_features(
            names, read, embed, tmp_path / "f" / "x.npy", "a", skipped, lambda *step: seen.append(step)
        )
        assert good == [0, 1, 3, 4, 5], times
        assert features.shape == (5, 3)
        assert isinstance(features, np.memmap)
        assert embed.calls == 5
        assert photos.paths[2].name in skipped.reasons[0]
    assert seen == [(6, 6)]
    bright = torch.from_numpy(np.array(features))[:, 0] > 0
    assert torch.equal(bright, photos.labels[good] == 1)
    stored_features(names, read, embed, tmp_path / "f" / "x.npy", "b")
    assert embed.calls == 10
    stored_features(names[:2], read, embed, tmp_path / "f" / "x.npy", "b")
    assert embed.calls == 12
    (tmp_path / "f" / "x.npy").write_bytes(b"cut")
    stored_features(names[:2], read, embed, tmp_path / "f" / "x.npy", "b")
    assert embed.calls == 14
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["x.json", "x.npy"]


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    def read(index: int) -> Pixels:
        return whole_image(tmp_path / "none.jpg")

    with pytest.raises(DirectLossError, match=r"at least one usable file.*none\.jpg must be an image file"):
        stored_features(["none"], read, Counted(), tmp_path / "x.npy", "a")
