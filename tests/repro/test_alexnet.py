"""AlexNet: torchvision's names and sizes, and weights from files of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from directloss_repro.models.alexnet import AlexNet, load_weights
from torch import Tensor, nn

from directloss import DirectLossError

# Names and shapes of torchvision's model, whose last layer has 1,000 outputs.
TORCHVISION = {
    "features.0": (64, 3, 11, 11),
    "features.3": (192, 64, 5, 5),
    "features.6": (384, 192, 3, 3),
    "features.8": (256, 384, 3, 3),
    "features.10": (256, 256, 3, 3),
    "classifier.1": (4096, 9216),
    "classifier.4": (4096, 4096),
    "classifier.6": (1, 4096),
}


def test_names_and_shapes() -> None:
    with torch.device("meta"):
        state = AlexNet().state_dict()
    assert list(state) == [f"{name}.{kind}" for name in TORCHVISION for kind in ("weight", "bias")]
    assert {name: tuple(state[f"{name}.weight"].shape) for name in TORCHVISION} == TORCHVISION


@pytest.mark.parametrize("size", [224, 227])
def test_both_sizes(size: int) -> None:
    assert AlexNet(width=4)(torch.zeros(3, 3, size, size)).shape == (3,)


def weights(width: int = 4, outputs: int = 1000) -> dict[str, Tensor]:
    model = AlexNet(width)
    model.classifier[6] = nn.Linear(width, outputs)
    return dict(model.state_dict())


@pytest.mark.parametrize("outputs", [1, 1000])
def test_full_state_dict(tmp_path: Path, outputs: int) -> None:
    given = weights(outputs=outputs)
    torch.save(given, tmp_path / "weights.pt")
    model = AlexNet(width=4)
    own_head = model.classifier[6].weight.detach().clone()
    loaded = load_weights(model, tmp_path / "weights.pt")
    assert ("classifier.6" in loaded) == (outputs == 1)
    assert torch.equal(model.features[10].weight, given["features.10.weight"])
    assert torch.equal(model.classifier[4].bias, given["classifier.4.bias"])
    assert torch.equal(model.classifier[6].weight, given["classifier.6.weight"] if outputs == 1 else own_head)


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: {"state_dict": {f"module.{k}": v for k, v in d.items()}}])
def test_features_only(tmp_path: Path, wrap: Any) -> None:
    given = {name: tensor for name, tensor in weights().items() if name.startswith("features")}
    torch.save(wrap(given), tmp_path / "weights.pt")
    model = AlexNet(width=4)
    assert load_weights(model, tmp_path / "weights.pt") == tuple(f"features.{k}" for k in (0, 3, 6, 8, 10))
    assert torch.equal(model.features[0].bias, given["features.0.bias"])


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


GOOD = weights()
LACKING = {name: value for name, value in GOOD.items() if not name.startswith("features.3")}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (Malice(), "that torch.load reads with weights_only=True"),
        (b"not a weight file", "that torch.load reads with weights_only=True"),
        (b"", "that torch.load reads with weights_only=True"),
        (None, "must be a file of weights, but it is missing"),
        ([1, 2], "must hold a state dict, names and tensors, but it is a list"),
        ({"features.0.weight": 3}, "must hold a state dict, names and tensors"),
        ({}, "torchvision's AlexNet, but it is one with nothing"),
        ({"conv1.weight": torch.zeros(1)}, "torchvision's AlexNet, but it is one with conv1.weight"),
        ({**GOOD, "layer1.0.weight": torch.zeros(1)}, "one with layer1.0.weight"),
        (LACKING, "all five convolution layers, but it is without features.3.weight, features.3.bias"),
        ({**GOOD, "features.0.weight": torch.zeros(64, 1, 11, 11)}, r"features.0.weight of shape \(64, 3, 11, 11\)"),
        ({**GOOD, "features.0.bias": torch.full((64,), torch.nan)}, "finite numbers in features.0.bias"),
    ],
)
def test_foreign_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: Any, message: str) -> None:
    path = tmp_path / "weights.pt"
    if isinstance(stored, bytes):
        path.write_bytes(stored)
    elif stored is not None:
        torch.save(stored, path)
    with pytest.raises(DirectLossError, match=message) as caught:
        load_weights(AlexNet(width=4), path)
    assert "weights.pt" in str(caught.value)
    assert capsys.readouterr().out == ""
