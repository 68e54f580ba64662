"""Data: drawn as the papers say, the same for the same seed, flipped exactly as often as asked."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.data import Part, Split, flip_labels, hold_out, thirds
from directloss_repro.data.idx import read_idx, read_images
from directloss_repro.data.split import check_both_labels, with_noise
from directloss_repro.experiments import FILES, get_experiment
from directloss_repro.experiments.base import Source
from directloss_repro.experiments.digits_noise import small_digits
from directloss_repro.experiments.linear import half_space
from directloss_repro.experiments.robustness import shells
from directloss_repro.experiments.synthetic import teacher

from directloss import DirectLossError


def test_teacher_labels_its_highest_scores() -> None:
    part = teacher(2000, 10, (10, 10, 10), 0.2, "seed")
    assert part.x.shape == (2000, 10)
    assert int(part.y.sum()) == 400


def test_teacher_that_is_dead_is_refused() -> None:
    # Among 300 layers of one unit there is always one that is at zero for all or most inputs.
    with pytest.raises(DirectLossError, match="hidden must give a network that is not dead"):
        teacher(2000, 1, (1,) * 300, 0.2, "seed")


def test_shells_leave_out_the_middle() -> None:
    part = shells(20_000, 10, 10.0, 1000.0, 1200.0, "seed")
    norm = (10.0 * part.x).square().sum(1)
    assert bool(((norm > 1200) == (part.y == 1)).all())
    assert bool(((norm < 1000) == (part.y == 0)).all())
    # Of a chi-square with 10 degrees of freedom, 28.5 % lie above 12 and 56.0 % below 10.
    assert len(part) / 20_000 == pytest.approx(0.845, abs=0.01)
    assert float(part.y.double().mean()) == pytest.approx(0.285 / 0.845, abs=0.015)


def test_half_space() -> None:
    part = half_space(4000, 10, "seed")
    assert bool(((part.x.sum(1) > 0) == (part.y == 1)).all())
    assert float(part.y.double().mean()) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5])
def test_flips_are_exact_and_nested(share: float) -> None:
    labels = torch.tensor([0, 1] * 100)
    changed = flip_labels(labels, share, "seed") != labels
    assert int(changed.sum()) == round(share * 200)
    more = flip_labels(labels, 0.5, "seed") != labels
    assert bool((more | ~changed).all())


def test_noise_only_where_it_is_asked_for() -> None:
    part = Part(torch.zeros(50, 1), torch.zeros(50, dtype=torch.long))
    noisy = with_noise(Split(part, part, part), 0.2, ("train", "val"), "seed")
    assert [int(p.y.sum()) for p in noisy.parts().values()] == [10, 10, 0]
    assert not torch.equal(noisy.train.y, noisy.parts()["val"].y)


def test_hold_out_takes_from_the_training_part() -> None:
    split = hold_out(
        Split(Part(torch.arange(9.0)[:, None], torch.arange(9) % 2), Part(torch.zeros(1, 1), torch.zeros(1))), 1 / 3, 0
    )
    assert split.val is not None
    assert sorted([*split.train.x.flatten().tolist(), *split.val.x.flatten().tolist()]) == list(range(9))
    assert len(split.val) == 3


def test_thirds_are_equal_and_disjoint() -> None:
    split = thirds(torch.arange(11.0)[:, None], torch.arange(11) % 2, "seed")
    seen = torch.cat([part.x.flatten() for part in split.parts().values()]).tolist()
    assert [len(part) for part in split.parts().values()] == [3, 3, 3]
    assert len(set(seen)) == 9


def test_both_labels_are_needed() -> None:
    with pytest.raises(DirectLossError, match="the train data must have items of both labels, but it is 0 positives"):
        check_both_labels(Part(torch.zeros(3, 1), torch.zeros(3)), "train")


@pytest.mark.parametrize("name", [name for name in FILES if get_experiment(name).check_data is None])
def test_experiments_draw_the_same_data_for_the_same_seed(name: str) -> None:
    experiment = get_experiment(name)
    config = experiment.config("quick")
    label = config.classes[0] if config.classes else None
    first, again, other = (experiment.data(config, Source(seed, label)) for seed in (0, 0, 1))
    for part, same in zip(first.parts().values(), again.parts().values(), strict=True):
        assert torch.equal(part.x, same.x)
        assert torch.equal(part.y, same.y)
    assert first.train.x.shape != other.train.x.shape or not torch.equal(first.train.x, other.train.x)
    assert experiment.model(config, first.train.x.shape[1])(first.train.x[:3]).shape == (3,)


def test_sizes_of_the_papers() -> None:
    synthetic = get_experiment("synthetic").data(get_experiment("synthetic").config("paper"), Source(0))
    assert (len(synthetic.train), len(synthetic.test)) == (10_000, 10_000)
    assert int(synthetic.train.y.sum() + synthetic.test.y.sum()) == 4_000
    linear = get_experiment("linear").data(get_experiment("linear").config("paper"), Source(0))
    assert (len(linear.train), len(linear.test)) == (10_000, 10_000)
    digits = get_experiment("digits-noise").data(get_experiment("digits-noise").config("paper"), Source(0, "3"))
    assert [len(part) for part in digits.parts().values()] == [599, 599, 599]
    assert len(small_digits()[1]) == 1_797


# ---------------------------------------------------------------------- idx files


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, kind, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write_mnist(folder: Path, packed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (50, 4, 4))
    labels = np.arange(50) % 10
    for prefix, chosen in (("train", slice(0, 40)), ("t10k", slice(40, 50))):
        for name, values in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            path = folder / (f"{prefix}-{name}-ubyte" + (".gz" if packed else ""))
            path.write_bytes(gzip.compress(idx(values)) if packed else idx(values))
    return images, labels


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_are_read_as_they_were_written(tmp_path: Path, packed: bool) -> None:
    images, labels = write_mnist(tmp_path, packed)
    for part, chosen in (("train", slice(0, 40)), ("test", slice(40, 50))):
        read, classes = read_images(tmp_path, part)
        np.testing.assert_array_equal(read, images[chosen])
        np.testing.assert_array_equal(classes, labels[chosen])


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DirectLossError, match=r"lacks t10k-labels-idx1-ubyte\.gz\. They are the original files"):
        read_images(tmp_path, "train")


GOOD = idx(np.zeros((2, 3)))
BAD_FILES = [
    (b"", "too short to have a header"),
    (GOOD[:7], "too short to have a header"),
    (
        idx(np.zeros((2, 3)), kind=9),
        "must be an idx file with magic number 2050, but it is a file with magic number 2306",
    ),
    (idx(np.zeros(6)), "magic number 2049"),
    (GOOD[:-1], "must hold 6 values for shape (2, 3), but it is 5 values long"),
    (GOOD + b"x", "7 values long"),
    (gzip.compress(GOOD)[:-9], "must be a readable idx file"),
    (gzip.compress(GOOD)[:12] + b"rubbish", "must be a readable idx file"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES, ids=[message for _, message in BAD_FILES])
def test_bad_idx_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DirectLossError) as caught:
        read_idx(path, 2)
    assert message in str(caught.value)


def test_labels_must_match_images(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(3))))
    with pytest.raises(DirectLossError, match="must have a label for each of the 40 images, but it is 3 labels long"):
        read_images(tmp_path, "train")
