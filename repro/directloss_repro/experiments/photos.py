"""What the experiments on photographs share: AlexNet, whole or below a small head, and the weights it starts from."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from directloss._checks import check_choice, fail
from directloss_repro.config import AT_ONCE, Config
from directloss_repro.data.images import CONTEXT, CROP
from directloss_repro.experiments.base import Source
from directloss_repro.methods import Method
from directloss_repro.models import Scorer
from directloss_repro.models.alexnet import AlexNet, load_weights
from directloss_repro.seeding import seeded
from directloss_repro.validation import Count, CountOrZero, Flag, Whole

LAYERS = ("all", "head")
SMALLEST = 63
"""The side of the smallest image that leaves something after AlexNet's convolutions and poolings."""
UNTRAINED = (
    "The network starts from random numbers, because no --weights were given. The paper starts from weights trained "
    "on ImageNet."
)
HALF_TRAINED = "The file of weights has no fully connected layers ({missing}); these start from random numbers."


class PhotoConfig(Config):
    """What an experiment with AlexNet has to say besides."""

    hidden: tuple[int, ...] = ()
    """Of the head, where the convolutions are frozen."""
    layers: str = "all"
    """``all`` are trained; or the convolutions stay as they are, their features are stored, and a ``head`` learns."""
    size: Annotated[Whole, Field(ge=SMALLEST, le=10_000)] = CROP
    """Side of the images that the network sees."""
    context: CountOrZero = CONTEXT
    """Pixels of a crop, on each side, that show what is around the box."""
    width: Count = 4096
    """Of AlexNet's fully connected layers."""
    pool: CountOrZero = 0
    """Stored features are averaged over a grid of so many cells on each side; 0 for those of the last convolution."""
    weights: str = ""
    """The content of the file of weights, in short; ``--weights`` sets it."""
    batch_size: CountOrZero = 0
    """0 for the whole training data in one batch."""
    chunk: CountOrZero = 0
    """How many items of a batch are in memory at once; 0 for all."""
    early: Flag = False
    """Whether the number of iterations is chosen as well: that with the best validation AP on the curve."""

    hard_rounds: CountOrZero = 0
    """How often the hardest negatives are added and training goes on."""

    datasets: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        super().check()
        check_choice("layers", self.layers, LAYERS)
        if 2 * self.context >= self.size:
            fail("context", f"must leave room for the box in {self.size} pixels", self.context)
        if self.early and self.select_on != "val":
            fail("early", 'needs select_on="val": training data cannot say when to stop', self.select_on)

    @property
    def keeps_best(self) -> bool:
        return self.early

    @property
    def rounds(self) -> int:
        return self.hard_rounds

    @property
    def at_once(self) -> int:
        return self.chunk or AT_ONCE

    def batch_of(self, method: Method) -> int | None:
        return self.batch_size or None

    @property
    def chunked(self) -> int | None:
        return self.chunk or None


def make_alexnet(config: PhotoConfig, weights: str | None) -> AlexNet:
    """AlexNet from its weights, or from random numbers that are always the same."""
    model = seeded(lambda: AlexNet(config.width), "alexnet")
    if weights is not None:
        load_weights(model, Path(weights))
    return model


def notes_on_weights(config: PhotoConfig, weights: str | None) -> tuple[str, ...]:
    """What a reader must know about where training started."""
    if weights is None:
        return (UNTRAINED,)
    model = AlexNet(config.width)
    loaded = load_weights(model, Path(weights))
    missing = [name for name in ("classifier.1", "classifier.4") if name not in loaded]
    return (HALF_TRAINED.format(missing=", ".join(missing)),) if missing and config.layers == "all" else ()


def make_embed(config: PhotoConfig, weights: str | None) -> Callable[[Tensor], Tensor]:
    """Normalised crops ``(b, 3, s, s)`` to what the frozen convolutions see in them ``(b, d)``."""

    @lru_cache(maxsize=1)  # made when it is needed: mostly the features are stored already
    def features() -> nn.Module:
        return make_alexnet(config, weights).features.eval()

    def embed(crops: Tensor) -> Tensor:
        values: Tensor = features()(crops)
        return (F.adaptive_avg_pool2d(values, config.pool) if config.pool else values).flatten(1)

    return embed


def view_name(config: PhotoConfig) -> str:
    """What stored crops or features depend on, besides the images."""
    kind = f"features{config.pool or ''}-{config.weights or 'random'}" if config.layers == "head" else "crops"
    return f"{kind}-{config.size}-{config.context}"


def make_model(config: Any, inputs: int) -> nn.Module:
    """AlexNet, or a head for stored features."""
    return AlexNet(config.width) if config.layers == "all" else Scorer(inputs, config.hidden)


def start_from_weights(config: Any, source: Source, model: nn.Module) -> None:
    """Only the whole network has layers that a file of weights fits."""
    if isinstance(model, AlexNet) and source.weights is not None:
        load_weights(model, Path(source.weights))
