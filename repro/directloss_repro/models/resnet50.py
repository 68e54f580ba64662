"""ResNet-50 with the layer names of Keras, so that weights which TensorFlow.js publishes fit.

He et al., Deep Residual Learning for Image Recognition (CVPR 2016), Table 1; strides in the first 1 x 1 convolution of
a block, as in the paper. Only for inference: batch norm is folded into the convolutions when weights are loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from directloss._checks import fail
from directloss_repro.models.images import ImageNetwork

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and width of each stage; a stage has four times as many outputs as its width."""
LAST = 5
"""The number of the last stage; the first one, ``res2``, follows a convolution and a pooling."""
EPSILON = 1e-3
"""What Keras adds to the variance in batch norm."""
MEAN = (103.939, 116.779, 123.68)
"""The mean of ImageNet's colours, blue first, which is subtracted from bytes."""
Weights = Mapping[str, NDArray[np.float32]]


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and a skip connection that has weights where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        self.branch2a = nn.Conv2d(inputs, width, 1, stride)
        self.branch2b = nn.Conv2d(width, width, 3, 1, dilation, dilation)
        self.branch2c = nn.Conv2d(width, 4 * width, 1)
        self.branch1 = nn.Identity() if inputs == 4 * width else nn.Conv2d(inputs, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, inputs, h, w)`` to ``(n, 4 * width, h / stride, w / stride)``."""
        y = F.relu_(self.branch2b(F.relu_(self.branch2a(x))))
        return F.relu_(self.branch2c(y).add_(self.branch1(x)))


class ResNet50(ImageNetwork):
    """Images ``(n, 3, h, w)`` as from `prepare` to scores ``(n, 1000)``; `pooled` gives the features before them.

    With ``fine`` the last stage sees every 16th pixel, not every 32nd: its 3 x 3 convolutions are dilated instead.
    """

    def __init__(self, *, bfloat16: bool = False, fine: bool = False) -> None:
        super().__init__(bfloat16=bfloat16)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3)
        inputs, blocks = 64, {}
        for stage, (count, width) in enumerate(STAGES, 2):
            for place in range(count):
                kept = fine and stage == LAST
                stride = 2 if stage > 2 and place == 0 and not kept else 1
                blocks[f"res{stage}{'abcdef'[place]}"] = Bottleneck(inputs, width, stride, 2 if kept else 1)
                inputs = 4 * width
        self.blocks = nn.ModuleDict(blocks)
        self.fc1000 = nn.Linear(inputs, 1000)

    def places(self, x: Tensor) -> Tensor:
        """The output of the last block: features ``(n, 2048, h / 32, w / 32)``."""
        y = F.max_pool2d(F.relu_(self.conv1(x)), 3, 2, 1)
        for block in self.blocks.values():
            y = block(y)
        return y

    def pooled(self, x: Tensor) -> Tensor:
        """The mean over all places of the last block: features ``(n, 2048)``."""
        return self.places(x).mean((-1, -2))

    def score(self, x: Tensor) -> Tensor:
        """One score per class of ImageNet."""
        scores: Tensor = self.fc1000(self.pooled(x))
        return scores


def prepare(pixels: NDArray[np.uint8]) -> Tensor:
    """Bytes ``(n, h, w, 3)``, red first, to what the network expects: ``(n, 3, h, w)``, blue first, mean subtracted."""
    values = torch.from_numpy(pixels[..., ::-1].astype(np.float32)) - torch.tensor(MEAN)
    return values.permute(0, 3, 1, 2)


@torch.inference_mode()
def features(folder: Path, pixels: NDArray[np.uint8]) -> Tensor:
    """Features ``(n, 2048)`` of images as `prepare` takes them, in bfloat16; ``folder`` holds the weights."""
    return _pretrained(folder).pooled(_narrow(prepare(pixels)))


@torch.inference_mode()
def feature_map(folder: Path, pixels: NDArray[np.uint8]) -> Tensor:
    """Features ``(n, 2048, h / 16, w / 16)`` of images as `prepare` takes them; ``folder`` holds the weights."""
    return _pretrained(folder, fine=True).places(_narrow(prepare(pixels))).float()


def _narrow(images: Tensor) -> Tensor:
    return images.to(torch.bfloat16, memory_format=torch.channels_last)


@lru_cache(maxsize=1)
def _pretrained(folder: Path, fine: bool = False) -> ResNet50:
    model = ResNet50(fine=fine)
    load_keras(model, read_tfjs(folder))
    return model.to(torch.bfloat16, memory_format=torch.channels_last).eval()  # type: ignore[call-overload,no-any-return]


def load_keras(model: ResNet50, weights: Weights) -> None:
    """Copy convolutions and the last layer, each convolution with its batch norm."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            own = name.removeprefix("blocks.").replace(".", "_")
            kernel, shift = _folded(weights, own, f"bn_{own}" if own == "conv1" else own.replace("res", "bn"))
        elif isinstance(layer, nn.Linear):
            kernel, shift = (torch.from_numpy(_get(weights, f"{name}/{part}")) for part in ("kernel", "bias"))
            kernel = kernel.T
        else:
            continue
        for parameter, value in ((layer.weight, kernel), (layer.bias, shift)):
            if parameter is None or parameter.shape != value.shape:
                fail("weights", "must be those of ResNet-50", f"of shape {tuple(value.shape)} in {name}")
            parameter.data = value.contiguous()


def _folded(weights: Weights, conv: str, norm: str) -> tuple[Tensor, Tensor]:
    """Kernel ``(outputs, inputs, h, w)`` and bias of a convolution with the batch norm that follows it."""
    kernel, bias = (torch.from_numpy(_get(weights, f"{conv}/{part}")) for part in ("kernel", "bias"))
    gamma, beta, mean, variance = (
        torch.from_numpy(_get(weights, f"{norm}/{part}"))
        for part in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    scale = gamma / (variance + EPSILON).sqrt()
    return (kernel * scale).permute(3, 2, 0, 1), (bias - mean) * scale + beta


def _get(weights: Weights, name: str) -> NDArray[np.float32]:
    if name not in weights:
        fail("weights", "must be those of ResNet-50 with the names of Keras", f"without {name}")
    return weights[name]


def read_tfjs(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The arrays of a layers model of TensorFlow.js: ``model.json`` and its shards of float32. Runs no code."""
    path = folder / "model.json"
    try:
        groups: Any = json.loads(path.read_text())["weightsManifest"]
        manifest = [
            (group["paths"], [(w["name"], w["dtype"], w["shape"]) for w in group["weights"]]) for group in groups
        ]
    except OSError as error:
        fail(str(path), "must be a model of TensorFlow.js", f"not readable ({error.strerror})")
    except (ValueError, KeyError, TypeError) as error:
        fail(str(path), "must be a model of TensorFlow.js with a weightsManifest", f"not ({error!r})")
    found = {}
    for shards, entries in manifest:
        # A shard lies next to model.json: a name with a folder in it would read files elsewhere.
        try:
            content = b"".join((folder / Path(shard).name).read_bytes() for shard in shards)
        except OSError as error:
            fail(str(error.filename), "must be a shard of the weights", f"not readable ({error.strerror})")
        place = 0
        for name, dtype, shape in entries:
            if dtype != "float32":
                fail(str(path), "must have weights of float32", f"one with {dtype} in {name}")
            size = int(np.prod(shape))
            if len(content) < place + 4 * size:
                fail(str(folder), "must have complete shards", f"without the end of {name}", "Download it again.")
            found[name] = np.frombuffer(content, "<f4", size, place).reshape(shape).copy()
            place += 4 * size
        if place != len(content):
            fail(str(folder), f"must have shards of {place} bytes", f"with {len(content)}", "Download it again.")
    return found
