"""AlexNet with one output and torchvision's parameter names, so that its weight files fit.

Krizhevsky et al. 2012, in the single-tower form of Krizhevsky 2014. Written out here to avoid a dependency on
torchvision for forty lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import fail

HEAD = "classifier.6."


class AlexNet(nn.Module):
    """Images ``(b, 3, 227, 227)``, or of torchvision's size 224, normalised as ImageNet's, to scores ``(b,)``.

    ``width`` is that of the two hidden layers, 4,096 in the paper. Published weights fit this width only.

    Example:
        >>> AlexNet(width=8)(torch.zeros(2, 3, 227, 227)).shape
        torch.Size([2])
    """

    def __init__(self, width: int = 4096, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(256 * 6 * 6, width), nn.ReLU(inplace=True)),
            *(nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU(inplace=True)),
            nn.Linear(width, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """One score per image."""
        scores: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1)).squeeze(-1)
        return scores


def load_weights(model: AlexNet, path: Path, only: str = "") -> tuple[str, ...]:
    """Load a state dict of torchvision's AlexNet, or only its convolutions; return the loaded layers.

    The last layer of a network with 1,000 classes is skipped, as ours has one output. ``only`` is the prefix of the
    layers to load. Only tensors are read from the file: a pickle that would run code is rejected.
    """
    found, own = _read(path), model.state_dict()
    foreign = [name for name in found if name not in own]
    if foreign or not found:
        keys = ", ".join(foreign[:4]) or "nothing"
        rule = "must be a state dict of torchvision's AlexNet"
        fail(str(path), rule, f"one with {keys}", "Keys begin with features.0.")
    missing = [name for name in own if name.startswith("features.") and name not in found]
    if missing:
        fail(str(path), "must have all five convolution layers", f"without {', '.join(missing)}")
    other_head = [name for name in found if name.startswith(HEAD) and found[name].shape != own[name].shape]
    wanted = {name: found[name] for name in found if name.startswith(only) and name not in other_head}
    for name, tensor in wanted.items():
        if tensor.shape != own[name].shape:
            rule = f"must have {name} of shape {tuple(own[name].shape)}"
            fail(str(path), rule, f"of shape {tuple(tensor.shape)}", "Are these weights of another network or width?")
        if not bool(torch.isfinite(tensor).all()):
            fail(str(path), f"must have finite numbers in {name}", "one with NaN or infinity")
    model.load_state_dict(wanted, strict=False)
    return tuple(dict.fromkeys(name.rsplit(".", 1)[0] for name in wanted))


def _read(path: Path) -> dict[str, Tensor]:
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        fail(str(path), "must be a file of weights", "missing")
    except Exception as error:  # the type of error differs between versions of torch
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        rule = "must be a file of weights that torch.load reads with weights_only=True"
        fail(str(path), rule, f"not ({first[:120]})")
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        fail(str(path), "must hold a state dict, names and tensors", f"a {type(found).__name__}")
    return {str(name).removeprefix("module."): value for name, value in found.items()}
