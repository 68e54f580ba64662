"""The action task end to end: devkit, crops, three parts, noise, full-batch training of a tiny network, AP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("cv2")

from directloss_repro.data import flip_labels
from directloss_repro.data.features import StoredCrops
from directloss_repro.data.voc import crop_people, find_devkit, read_people, split_people

import directloss as dl
from directloss.metrics.ranking import average_precision
from tests.repro.voc.devkits import Item, Scene, write_devkit


def scene(number: int) -> Scene:
    """One person; red ones jump, blue ones walk."""
    jumps = number % 3 == 0
    item = Item("person", (6, 8, 36, 40), actions=("jumping" if jumps else "walking",))
    colour = (230, 40, 40) if jumps else (40, 40, 230)
    return Scene(f"2011_{number:06d}", [item], width=48, height=48, colours={"person": colour})


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_from_devkit_to_average_precision(tmp_path: Path, noise: float) -> None:
    devkit = find_devkit(write_devkit(tmp_path, {"train": [scene(k) for k in range(60)]}))
    people, crops = crop_people(devkit, read_people(devkit), tmp_path / "crops.npy", size=32, context=2)
    parts = split_people(people, "seed")
    known, target = people.problem("jumping")
    assert len(known) == 60
    data = {name: chunks(StoredCrops(crops, index), target[index]) for name, index in parts.items()}
    noisy = flip_labels(target[parts["train"]], noise, "seed")
    data["train"] = chunks(StoredCrops(crops, parts["train"]), noisy)
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    # By luck these weights tell the colours apart before training; turned round, there is something to learn. Not for
    # pos-ap, though: nothing is worse than a ranking that is wholly reversed, so there it has no gradient.
    with torch.no_grad():
        model[4].weight.neg_()
    assert ap_of(model, data["test"]) < 0.5
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        dl.full_batch_step(model, data["train"], dl.HingeLoss("ap"))
        optimizer.step()
    assert ap_of(model, data["test"]) > 0.9


def chunks(crops: StoredCrops, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(crops[index], labels[index]) for index in torch.arange(len(labels)).split(7)]


@torch.no_grad()
def ap_of(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> float:
    return float(average_precision(torch.cat([model(x) for x, _ in data]), torch.cat([labels for _, labels in data])))
