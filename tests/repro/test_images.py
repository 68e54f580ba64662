"""Loaders of original formats, on small files in exactly these formats; normalisation, augmentation, keypoints."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from directloss_repro.data import Part, labelled_images
from directloss_repro.data.cifar import read_cifar
from directloss_repro.data.keypoints import bumps, pixel_labels, pixel_mask, turn_and_scale, visible
from directloss_repro.data.labelled_images import crop_and_flip, identify, recognise, split_classes, zeros_against_rest
from directloss_repro.data.poses import NECK, POSES, TOP, Person, as_part, find_poses, read_persons, recognise_poses

from directloss import DirectLossError
from tests.repro.image_files import idx, write_cifar, write_idx, write_leeds, write_mpii

# ---------------------------------------------------------------------- CIFAR


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("inner", [True, False])
def test_cifar_is_read_as_it_was_written(tmp_path: Path, name: str, inner: bool, pickled: bool) -> None:
    images, labels = write_cifar(tmp_path, name, pickled=pickled)
    root = tmp_path if inner else next(tmp_path.iterdir())
    assert recognise(str(root)) == name
    train, test = read_cifar(root, name)
    np.testing.assert_array_equal(np.concatenate([train[0], test[0]]), images)
    np.testing.assert_array_equal(np.concatenate([train[1], test[1]]), labels)
    assert len(test[1]) == 20
    split = split_classes(name, str(root), 4, 0)
    assert split.train.x.shape == (len(train[1]) - 4, 3, 32, 32)
    assert split.test.y.tolist() == test[1].tolist()


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"files of cifar10.*without data_batch_1\.bin.*binary or the Python"):
        read_cifar(tmp_path, "cifar10")
    assert recognise(str(tmp_path)) is None
    write_cifar(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(DirectLossError, match=r"without data_batch_4\.bin"):
        read_cifar(tmp_path, "cifar10")


def test_pickles_run_no_code(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", pickled=True)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    whole = path.read_bytes()
    for content, message in [
        (pickle.dumps(print), "it asks for builtins.print"),
        (pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}), "images of shape (2, 5) and 2 labels"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "must have labels below 10"),
        (pickle.dumps([1]), "must be a file of the Python version of CIFAR"),
        (whole[:300], "must be a file of the Python version of CIFAR"),
        (b"", "must be a file of the Python version of CIFAR"),
    ]:
        path.write_bytes(content)
        with pytest.raises(DirectLossError) as caught:
            read_cifar(tmp_path, "cifar10")
        assert message in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-1], "must hold whole records of 3073 bytes, but it is 61459 bytes long"),
        (lambda raw: b"", "must hold whole records of 3073 bytes, but it is 0 bytes long"),
        (lambda raw: raw[:3073] + b"\x0a" + raw[3074:], "must have labels below 10, but it is a file with 10 in"),
    ],
)
def test_bad_cifar(tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
    write_cifar(tmp_path, "cifar10")
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DirectLossError) as caught:
        read_cifar(tmp_path, "cifar10")
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


# ---------------------------------------------------------------------- parts, normalisation, augmentation


def test_splits_are_those_of_the_files(tmp_path: Path) -> None:
    root = str(write_idx(tmp_path))
    split = split_classes("fashion-mnist", root, 20, 0)
    assert [len(part) for part in split.parts().values()] == [100, 20, 40]
    assert split.test.y.tolist() == (np.arange(40) % 10).tolist()
    # Per-pixel normalisation: the mean image of the training part is zero, and so is its overall deviation one.
    torch.testing.assert_close(split.train.x.mean(0), torch.zeros(1, 28, 28), atol=1e-5, rtol=0)
    assert float(split.train.x.square().mean()) == pytest.approx(1.0, abs=1e-3)
    assert split.train.x.shape == (100, 1, 28, 28)
    few = split_classes("fashion-mnist", root, 20, 30)
    assert [len(part) for part in few.parts().values()] == [30, 20, 40]
    assert few.val is not None
    assert split.val is not None
    assert torch.equal(few.val.y, split.val.y)


def test_zeros_against_rest(tmp_path: Path) -> None:
    split = zeros_against_rest("mnist", str(write_idx(tmp_path)), 20, 0)
    assert split.test.x.shape == (40, 784)
    assert split.test.y.tolist() == [int(k % 10 == 0) for k in range(40)]
    assert sum(int(part.y.sum()) for part in split.parts().values()) == 16


def test_too_little_data(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match="must have more than the 120 images of the validation part"):
        split_classes("mnist", str(write_idx(tmp_path)), 120, 0)


def test_missing_fashion_mnist_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"four fashion-mnist files.*zalandoresearch/fashion-mnist"):
        identify("fashion-mnist", str(tmp_path))


def test_labels_of_another_data_set_are_noticed(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.arange(40)))
    with pytest.raises(DirectLossError, match="must have labels from 0 to 9, but it is a file with label 39"):
        identify("mnist", str(tmp_path))


def test_data_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, other = write_idx(tmp_path / "packed"), write_idx(tmp_path / "other", train=121)
    first = identify("mnist", str(packed))
    assert first.published is None
    for path in list(packed.iterdir()):
        if path.suffix == ".gz":
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    assert identify("mnist", str(packed)) == first
    assert identify("mnist", str(other)) != first
    monkeypatch.setitem(labelled_images.PUBLISHED, first.digest, "mnist")
    assert identify("mnist", str(packed)).published == "mnist"
    with pytest.raises(DirectLossError, match=r"--data-root must hold the files of fashion-mnist.*with those of mnist"):
        identify("fashion-mnist", str(packed))


def test_images_without_pixels_are_refused(tmp_path: Path) -> None:
    write_idx(tmp_path, side=28)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.with_suffix(".gz").unlink()
    path.write_bytes(idx(np.zeros((40, 0, 28))))
    with pytest.raises(DirectLossError, match="must hold images with pixels"):
        identify("mnist", str(tmp_path))


def test_crops_are_shifts_of_at_most_four_and_flips(generator: torch.Generator) -> None:
    x = torch.arange(1.0, 1 + 2 * 6 * 7).reshape(1, 2, 6, 7).repeat(200, 1, 1, 1)
    out = crop_and_flip(Part(x, torch.arange(200)), generator)
    assert out.y.tolist() == list(range(200))
    padded = torch.nn.functional.pad(x[0], (4, 4, 4, 4))
    seen = set()
    for image in out.x:
        places = [
            (top, left, mirror)
            for top in range(9)
            for left in range(9)
            for mirror in (False, True)
            if torch.equal(image.flip(-1) if mirror else image, padded[:, top : top + 6, left : left + 7])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert {top for top, _, _ in seen} == set(range(9)) == {left for _, left, _ in seen}
    assert {mirror for _, _, mirror in seen} == {True, False}


# ---------------------------------------------------------------------- keypoints


def test_pixel_labels_and_bumps() -> None:
    target = torch.tensor([[[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    labels = pixel_labels(target, (4, 5))
    assert labels[0, 0].nonzero().tolist() == [[0, 2], [1, 1], [1, 2], [1, 3], [2, 2]]
    assert pixel_mask(target, (4, 5)).all((-2, -1)).tolist() == [[True, False]]
    assert visible(target).tolist() == [[True, False]]
    bump = bumps(torch.tensor([[5.4, 4.6, 1.0]]), 1.0, (11, 11))[0]
    assert bump.argmax() == 5 * 11 + 5
    assert int((bump > 0).sum()) == 49  # 7 x 7
    assert float(bump[5, 7]) == pytest.approx(np.exp(-2.0))
    assert bumps(torch.tensor([[5.4, 4.6, 1.0]]), 0.1, (11, 11)).sum() == 1


def test_turned_keypoints_stay_on_their_pixels(generator: torch.Generator) -> None:
    """A bright spot in the image and its keypoint move together."""
    n, side = 40, 16
    places = torch.randint(4, 12, (n, 2), generator=generator)
    x = torch.zeros(n, 1, 4 * side, 4 * side)
    for image, (column, row) in zip(x, places.tolist(), strict=True):
        image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 1.0
    target = torch.cat([places.float(), torch.ones(n, 1)], -1)[:, None]
    out = turn_and_scale(Part(x, target), generator)
    assert out.x.shape == x.shape
    small = torch.nn.functional.avg_pool2d(out.x, 4)[:, 0]
    grid = torch.arange(side, dtype=torch.float32)
    total = small.sum((-1, -2))
    for image, (px, py, radius), mass in zip(small, out.y[:, 0].tolist(), total, strict=True):
        if radius > 0 and min(px, py) > 1.5 and max(px, py) < side - 2.5:
            assert float((image.sum(0) * grid).sum() / mass) == pytest.approx(px, abs=0.15)
            assert float((image.sum(1) * grid).sum() / mass) == pytest.approx(py, abs=0.15)
            assert float(mass) ** 0.5 == pytest.approx(radius, abs=0.1)  # the spot was one pixel, as was the radius
    assert float(out.y[out.y[..., 2] > 0][:, 2].min()) >= 0.75
    assert float(out.y[..., 2].max()) <= 1.25


def test_keypoints_that_leave_the_image_become_unknown(generator: torch.Generator) -> None:
    target = torch.tensor([[[0.0, 0.0, 1.0], [7.5, 7.5, 1.0], [3.0, 3.0, 0.0]]]).repeat(50, 1, 1)
    out = turn_and_scale(Part(torch.zeros(50, 1, 64, 64), target), generator)
    assert 0 < int(visible(out.y)[:, 0].sum()) < 50
    assert bool(visible(out.y)[:, 1].all())
    assert not bool(visible(out.y)[:, 2].any())


# ---------------------------------------------------------------------- persons with joints


def test_leeds_is_read_as_it_was_written(tmp_path: Path) -> None:
    joints = write_leeds(tmp_path)
    assert recognise_poses(str(tmp_path)) == "leeds"
    persons = read_persons("leeds", find_poses(tmp_path, "leeds"))
    assert [person.image for person in persons] == [f"im{k:05d}.jpg" for k in range(1, 12)]  # the last has no neck
    first = persons[0]
    assert first.head == 12
    assert first.joints[0] is None
    assert first.joints[3] == tuple(joints[3, :2, 0])
    visible_joints = joints[1:, :2, 0]
    assert first.side == pytest.approx(1.25 * (visible_joints.max(0) - visible_joints.min(0)).max())
    part = as_part(persons, range(14), tmp_path / "images", 64, 4, 0.5)
    assert part.y.shape == (11, 14, 3)
    assert part.take(torch.tensor([2])).x.shape == (1, 3, 64, 64)
    scale = 16 / first.side
    wanted = [(25 - first.corner[0]) * scale - 0.5, (8 - first.corner[1]) * scale - 0.5, 0.5 * 12 * scale]
    assert part.y[0, TOP].tolist() == pytest.approx(wanted, abs=1e-5)
    assert visible(part.y)[:, 0].tolist() == [k % 2 == 1 for k in range(11)]
    assert bool(visible(part.y)[:, NECK].all())


def test_mpii_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_mpii(tmp_path)
    persons = read_persons("mpii", find_poses(tmp_path, "mpii"))
    assert [person.image for person in persons] == [f"{k:09d}.jpg" for k in range(10) if k % 5 != 4]
    first = persons[1]
    assert (first.corner, first.side) == ((17.5, 5.0), 125)  # around (80, 67.5)
    assert first.head == pytest.approx(0.6 * 25)
    assert first.joints[8:10] == ((78.5, 52.0), (80.0, 41.0))
    part = as_part(persons, (8, 9), tmp_path / "images", 64, 4, 0.5)
    assert part.x.shape == (8, 3, 64, 64)
    assert len(part.first(3)) == 3
    batch = part.take(torch.tensor([1, 3]))
    assert batch.x.shape == (2, 3, 64, 64)
    assert float(batch.x[0, 0, 32, 32]) == pytest.approx(10 / 255 - 0.5, abs=0.01)
    assert float(batch.x[0, 0, 63, 63]) == 0.0  # beyond the border of the image
    wanted = [(80 - 17.5) * 16 / 125 - 0.5, (41 - 5) * 16 / 125 - 0.5, 0.5 * 15 * 16 / 125]
    assert batch.y[0, 1].tolist() == pytest.approx(wanted, abs=1e-5)


def test_the_square_of_a_person_far_outside_is_empty(tmp_path: Path) -> None:
    write_mpii(tmp_path)
    lost = Person("000000001.jpg", (-1000.0, -1000.0), 125.0, 10.0, ((3.0, 4.0), None))
    part = as_part([lost], (0, 1), tmp_path / "images", 64, 4, 0.5)
    assert not bool(part.take(torch.tensor([0])).x.any())
    assert not bool(visible(part.y).any())


def test_the_head_has_one_bone_and_the_body_all() -> None:
    leeds = POSES["leeds"]
    assert leeds.chosen("head") == (NECK, TOP)
    assert leeds.bones_between(leeds.chosen("head")) == ((0, 1),)
    assert leeds.bones_between(leeds.chosen("all")) == leeds.bones
    for poses in POSES.values():
        assert {joint for bone in poses.bones for joint in bone} == set(range(len(poses.joints)))
        assert [poses.joints[joint].split()[-1] for joint in poses.head] == ["neck", "top"]


def test_what_is_missing_of_poses_is_named(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"joints\.mat \(leeds\) or mpii_human.*human-pose\.mpi-inf\.mpg\.de"):
        find_poses(tmp_path, "mpii")
    write_mpii(tmp_path)
    with pytest.raises(DirectLossError, match="--dataset must be the data set at --data-root, but it is leeds"):
        find_poses(tmp_path, "leeds")
    (tmp_path / "images").rename(tmp_path / "other")
    with pytest.raises(DirectLossError, match="must have the images in a folder 'images'"):
        find_poses(tmp_path, "mpii")


@pytest.mark.parametrize("name", ["leeds", "mpii"])
def test_damaged_annotations(tmp_path: Path, name: str) -> None:
    from scipy.io import savemat

    (write_leeds if name == "leeds" else write_mpii)(tmp_path)
    path = find_poses(tmp_path, name)
    for content in (b"", b"MATLAB", path.read_bytes()[:300]):
        path.write_bytes(content)
        read_persons.cache_clear()
        with pytest.raises(DirectLossError, match=f"must be the annotation file of {name}"):
            read_persons(name, path)
    savemat(path, {"RELEASE": 3, "joints": np.zeros((13, 3, 2))})
    with pytest.raises(DirectLossError, match=f"must be the annotation file of {name}"):
        read_persons(name, path)
