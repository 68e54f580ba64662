"""Frozen features: readers of the original formats, the stored file, and the studies that train on it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from directloss_repro.campaign import Cell
from directloss_repro.data import Part
from directloss_repro.executors import InProcess
from directloss_repro.files import file_digest, stable_hash
from directloss_repro.models import resnet50
from directloss_repro.records import RecordFile
from PIL import Image
from torch import Tensor

from benchmarks import answers, birds, cifar10n, features, flips, frozen
from directloss._checks import DirectLossError

# ---------------------------------------------------------------------- files in the original formats


def photograph(path: Path, number: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def write_voc(root: Path) -> None:
    folder = root / "VOCdevkit" / "VOC2012"
    lists = folder / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (folder / "Annotations").mkdir()
    for number, part in enumerate(("train", "val")):
        names = [f"2008_{number}{k:05}" for k in range(3)]
        (lists / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))
        for place, of in enumerate(features.OBJECTS):
            labels = [1 if k == place else 0 if k == 2 else -1 for k in range(3)]
            (lists / f"{of}_{part}.txt").write_text("".join(f"{n} {v:2}\n" for n, v in zip(names, labels, strict=True)))
        for k, name in enumerate(names):
            photograph(folder / "JPEGImages" / f"{name}.jpg", k)


def write_pets(root: Path) -> None:
    folder = root / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    (folder / "annotations" / "trainval.txt").write_text("Abyssinian_100 1 1 1\nbeagle_7 5 2 3\n")
    (folder / "annotations" / "test.txt").write_text("Abyssinian_201 1 1 1\n")
    for name in ("Abyssinian_100", "beagle_7", "Abyssinian_201"):
        photograph(folder / "images" / f"{name}.jpg")


def test_the_reader_of_voc_takes_a_difficult_object_for_absent(tmp_path: Path) -> None:
    write_voc(tmp_path)
    found = features.voc(tmp_path)
    assert found.labels.shape == (6, 20)
    assert found.labels[:, :3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    assert found.test.tolist() == [False] * 3 + [True] * 3
    assert found.pixels(5).shape == (20, 30, 3)


def test_the_reader_of_pets(tmp_path: Path) -> None:
    write_pets(tmp_path)
    found = features.pets(tmp_path)
    assert found.labels.tolist() == [0, 4, 0]
    assert found.test.tolist() == [False, False, True]


def test_the_two_forms_of_cub_are_read_alike(tmp_path: Path) -> None:
    original, sorted_in = tmp_path / "a" / "CUB_200_2011", tmp_path / "b" / "cub"
    names = ("001.Albatross/x_1.jpg", "001.Albatross/x_2.jpg", "002.Auk/y_1.jpg")
    for number, (name, part) in enumerate(zip(names, ("train", "test", "train"), strict=True)):
        photograph(original / "images" / name, number)
        photograph(sorted_in / part / name, number)
    (original / "images.txt").write_text("".join(f"{k} {name}\n" for k, name in enumerate(names, 1)))
    (original / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n")
    (original / "train_test_split.txt").write_text("1 1\n2 0\n3 1\n")
    read = []
    for root in (tmp_path / "a", tmp_path / "b"):
        found = features.cub(root)
        rows = zip(found.names, found.labels.tolist(), found.test.tolist(), strict=True)
        read.append({name: (label, test, found.pixels(k).sum()) for k, (name, label, test) in enumerate(rows)})
    assert read[0] == read[1]
    assert {name: row[:2] for name, row in read[0].items()} == {
        "x_1.jpg": (0, False), "x_2.jpg": (0, True), "y_1.jpg": (1, False)
    }  # fmt: skip


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match="CUB_200_2011 or cub"):
        features.cub(tmp_path)


# ---------------------------------------------------------------------- the network and its weights


def keras_weights() -> dict[str, np.ndarray]:
    """Random weights under the names of Keras, small enough that fifty layers stay finite."""
    draw, found = np.random.default_rng(0), {}
    for name, layer in resnet50.ResNet50().named_modules():
        own = name.removeprefix("blocks.").replace(".", "_")
        if isinstance(layer, torch.nn.Conv2d):
            outputs, inputs, *size = layer.weight.shape
            norm = "bn_conv1" if own == "conv1" else own.replace("res", "bn")
            found[f"{own}/kernel"] = draw.normal(0, 0.5 / np.sqrt(inputs * size[0] ** 2), (*size, inputs, outputs))
            found[f"{own}/bias"] = draw.normal(0, 0.1, outputs)
            for part in ("gamma", "beta", "moving_mean", "moving_variance"):
                found[f"{norm}/{part}"] = draw.uniform(0.5, 1.5, outputs)
        elif isinstance(layer, torch.nn.Linear):
            found[f"{own}/kernel"], found[f"{own}/bias"] = draw.normal(0, 0.02, (2048, 1000)), np.zeros(1000)
    return {name: value.astype(np.float32) for name, value in found.items()}


def write_tfjs(folder: Path, weights: dict[str, np.ndarray], shards: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = b"".join(value.tobytes() for value in weights.values())
    names = [f"group1-shard{k + 1}of{shards}.bin" for k in range(shards)]
    size = -(-len(content) // shards)
    for k, name in enumerate(names):
        (folder / name).write_bytes(content[k * size : (k + 1) * size])
    entries = [{"name": name, "shape": list(value.shape), "dtype": "float32"} for name, value in weights.items()]
    (folder / "model.json").write_text(json.dumps({"weightsManifest": [{"paths": names, "weights": entries}]}))


def test_shards_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    weights = {"a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "a/bias": np.ones(3, np.float32)}
    write_tfjs(tmp_path, weights)
    found = resnet50.read_tfjs(tmp_path)
    assert {name: value.tolist() for name, value in found.items()} == {n: v.tolist() for n, v in weights.items()}
    last = tmp_path / "group1-shard3of3.bin"
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(DirectLossError, match="complete shards"):
        resnet50.read_tfjs(tmp_path)
    last.write_bytes(b"0" * 100)
    with pytest.raises(DirectLossError, match="shards of 36 bytes"):
        resnet50.read_tfjs(tmp_path)
    last.unlink()
    with pytest.raises(DirectLossError, match="shard of the weights"):
        resnet50.read_tfjs(tmp_path)
    with pytest.raises(DirectLossError, match=r"without conv1/kernel"):
        resnet50.load_keras(resnet50.ResNet50(), weights)


def plain_block(weights: dict[str, np.ndarray], name: str, x: Tensor, stride: int) -> Tensor:
    """A block as Keras computes it, with batch norm as a layer of its own."""

    def conv(branch: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
        kernel, bias = (torch.from_numpy(weights[f"res{name}_{branch}/{part}"]) for part in ("kernel", "bias"))
        y = F.conv2d(x, kernel.permute(3, 2, 0, 1), bias, stride, padding)
        parts = ("moving_mean", "moving_variance", "gamma", "beta")
        norm = [torch.from_numpy(weights[f"bn{name}_{branch}/{part}"]) for part in parts]
        return F.batch_norm(y, *norm, eps=1e-3)

    y = conv("branch2b", conv("branch2a", x, stride).relu(), padding=1).relu()
    around = conv("branch1", x, stride) if f"res{name}_branch1/kernel" in weights else x
    return (conv("branch2c", y) + around).relu()


def test_folded_batch_norm_is_batch_norm() -> None:
    weights, model = keras_weights(), resnet50.ResNet50()
    resnet50.load_keras(model, weights)
    draw = torch.Generator().manual_seed(0)
    for name, inputs, stride in (("2a", 64, 1), ("2b", 256, 1), ("3a", 256, 2)):
        x = torch.randn(2, inputs, 8, 8, generator=draw)
        expected = plain_block(weights, name, x, stride)
        torch.testing.assert_close(model.blocks[f"res{name}"](x), expected, atol=1e-4, rtol=1e-4)
    assert model(torch.randn(1, 3, 64, 64, generator=draw)).shape == (1, 1000)


def test_every_second_place_of_the_fine_map_is_that_of_the_plain_one() -> None:
    weights, models = keras_weights(), [resnet50.ResNet50(fine=fine) for fine in (False, True)]
    for model in models:
        resnet50.load_keras(model, weights)
    photograph = torch.randn(1, 3, 96, 128, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        plain, fine = (model.places(photograph) for model in models)
    assert (plain.shape, fine.shape) == ((1, 2048, 3, 4), (1, 2048, 6, 8))
    torch.testing.assert_close(fine[..., ::2, ::2], plain, atol=1e-3, rtol=1e-3)


def test_colours_are_blue_first_without_the_mean() -> None:
    pixels = np.zeros((1, 2, 2, 3), np.uint8)
    pixels[..., 0] = 200
    assert resnet50.prepare(pixels)[0, :, 0, 0].tolist() == pytest.approx([-103.939, -116.779, 200 - 123.68], abs=1e-4)


def test_features_are_stored_resumed_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "PIECE", 2)
    monkeypatch.setitem(features.SETS, "pets", (features.pets, 32))
    write_pets(tmp_path)
    weights = tmp_path / "weights"
    write_tfjs(weights, keras_weights())
    with pytest.raises(DirectLossError, match=r"benchmarks\.features"):
        features.load(tmp_path, "pets")
    computed = []
    compute = features._features

    def stopping(*given: object) -> object:
        computed.append(given[2])
        if len(computed) == 2:
            raise KeyboardInterrupt
        return compute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(features, "_features", stopping)
    with pytest.raises(KeyboardInterrupt):
        features.extract(tmp_path, "pets", weights)
    place = features.extract(tmp_path, "pets", weights)
    assert computed == [range(2), range(2, 3), range(2, 3)]
    x, found = features.load(tmp_path, "pets")
    assert x.shape == (3, 2048)
    assert bool(x.isfinite().all())
    assert float(x.std()) > 0
    assert found.labels.tolist() == [0, 4, 0]
    features.extract(tmp_path, "pets", weights)
    assert len(computed) == 3
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    with pytest.raises(DirectLossError, match="damaged"):
        features.load(tmp_path, "pets")


# ---------------------------------------------------------------------- the studies


def collection(labels: Tensor, test: Tensor) -> features.Collection:
    return features.Collection(
        [str(k) for k in range(len(labels))], lambda place: np.zeros((1, 1, 3), np.uint8), labels, test
    )


def store(root: Path, name: str, found: features.Collection, x: Tensor) -> None:
    place = root / "features" / f"{name}.npy"
    place.parent.mkdir(exist_ok=True)
    np.save(place, x.to(torch.float16).numpy())
    about = {"images": stable_hash(found.names), "digest": file_digest("features", place)}
    place.with_suffix(".json").write_text(json.dumps(about))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Features that tell the class: four classes of pets, six of birds."""
    draw = torch.Generator().manual_seed(0)
    for name, classes, count in (("pets", 4, 240), ("cub", 6, 120)):
        labels = torch.arange(count) % classes
        found = collection(labels, torch.arange(count) >= count * 2 // 3)
        monkeypatch.setitem(features.SETS, name, (lambda root, found=found: found, 1))
        noise = torch.randn(count, 8, generator=draw)
        store(tmp_path, name, found, 3 * F.one_hot(labels, 8) + noise)
    for cached in (frozen.read, birds.birds):
        cached.cache_clear()
    return tmp_path


@pytest.mark.parametrize("method", frozen.METHODS)
def test_every_loss_trains_a_head(method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "STEPS", 60)
    monkeypatch.setattr(frozen, "RATES", (0.01, 0.03))
    model = "linear" if method == frozen.LOGISTIC else "mlp"
    found = frozen.train_cell(root, 2, Cell(f"pets / {model} / all", method, 0.2), {}, 0).metrics
    assert set(found) == {f"{metric} {seed}" for metric in frozen.METRICS for seed in range(2)}
    assert found["ap 0"] > 0.85
    assert found["f1 0"] > (0.3 if method == "direct-f1" else 0.6)


def test_few_images_give_each_class_enough() -> None:
    draw = torch.Generator().manual_seed(1)
    y = (torch.rand(400, 5, generator=draw) < torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1])).long()
    whole = Part(torch.arange(400.0)[:, None], y)
    for seed, (fitting, held) in enumerate(zip(*frozen.divide(whole, "5", range(3), 0.0), strict=True)):
        assert int(fitting.y.sum(0).min()) >= 5, seed
        assert int(held.y.sum(0).min()) >= 5, seed
        assert len(fitting) <= 30
        both = torch.cat((fitting.x, held.x)).flatten().tolist()
        assert len(set(both)) == len(both)
    wrong = frozen.divide(whole, "5", range(3), 0.2)[0][0]
    clean = frozen.divide(whole, "5", range(3), 0.0)[0][0]
    assert torch.equal(wrong.x, clean.x)
    assert 0 < int((wrong.y != clean.y).any(1).sum()) <= round(0.2 * len(clean))


def test_weights_balance_the_classes() -> None:
    scores, target = torch.zeros(1, 8, 1, requires_grad=True), torch.tensor([1, 0, 0, 0, 0, 0, 0, 0]).view(1, 8, 1)
    frozen.weighted(scores, target).sum().backward()
    assert scores.grad is not None
    assert float(scores.grad.sum()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("method", birds.METHODS)
def test_every_loss_trains_an_embedding(method: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KNOWN", 4), ("TRAIN", 3), ("CLASSES", 3), ("STEPS", 40), ("WIDTH", 4)):
        monkeypatch.setattr(birds, name, value)
    found = birds.train_cell(root, Cell("cub", method), {"learning_rate": 0.01}, 0).metrics
    assert set(found) == {"val", "test", "recall@1"}
    assert found["recall@1"] > 0.6


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Images of ten classes that three people labelled; of the labels of each, 60 of 300 are random."""
    draw = np.random.default_rng(0)
    labels = torch.arange(400) % 10
    rows = torch.cat((torch.arange(300).flip(0), torch.arange(100)))
    found = collection(labels, torch.arange(400) >= 300)._replace(rows=rows)
    monkeypatch.setitem(features.SETS, "cifar10", (lambda root: found, 1))
    store(tmp_path, "cifar10", found, 5 * F.one_hot(labels, 16) + torch.from_numpy(draw.normal(size=(400, 16))))
    (tmp_path / "cifar-10n").mkdir()
    stored = {}
    for name in (*cifar10n.LABELS, *cifar10n.PEOPLE):
        answers = labels[:300].flip(0).numpy().copy()  # in the order of the original file
        answers[draw.permutation(300)[:60]] = draw.integers(0, 10, 60)
        stored[name] = answers.astype(np.uint8)
    np.savez(tmp_path / "cifar-10n" / "labels.npz", **stored)
    monkeypatch.setattr(cifar10n, "STEPS", 60)
    monkeypatch.setattr(cifar10n, "RATES", (0.01, 0.03))
    cifar10n.read.cache_clear()
    yield tmp_path
    cifar10n.read.cache_clear()


@pytest.mark.parametrize("method", ["direct-ap", "direct-accuracy", "x-ent", "gce"])
def test_losses_learn_from_peoples_answers(method: str, people: Path) -> None:
    metric = "accuracy" if method != "direct-ap" else "macro AP"
    cell = Cell(f"worse_label / linear / {metric}", method)
    assert cifar10n.train_cell(people, 2, cell, {}, 0).metrics["test"] > 0.8


@pytest.mark.parametrize("method", flips.METHODS)
def test_rates_of_wrong_answers_are_estimated(method: str, people: Path) -> None:
    outcome = answers.train_cell(people, 2, Cell("CIFAR-10N / linear", method), {}, 0)
    assert outcome.metrics["test"] > 0.7
    # A random answer is one of ten, so 18 % are wrong for the class itself and 2 % for every other.
    for rates in (outcome.shown["flips"], outcome.shown["true flips"]):
        torch.testing.assert_close(torch.tensor(rates).mean(0), torch.tensor([0.02, 0.18]), atol=0.03, rtol=0)


def test_the_tables_of_estimated_rates(people: Path, tmp_path: Path) -> None:
    campaign = answers.study(argparse.Namespace(sets=["CIFAR-10N"], seeds=2, data_root=people))
    records = RecordFile(tmp_path)
    campaign.run_on(InProcess(), records)
    shown = answers.show(campaign.found(records))
    assert "| F1 | CIFAR-10N / linear | CIFAR-10N / mlp |" in shown
    assert "mean share of wrong answers to the other classes and to the class: estimated " in shown
