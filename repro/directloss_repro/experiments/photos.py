"""What the experiments on photographs share: AlexNet's weights, and how a network above it is trained."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor, nn

from directloss._checks import fail
from directloss_repro.config import AT_ONCE, Config
from directloss_repro.methods import Method
from directloss_repro.models.alexnet import AlexNet, load_weights
from directloss_repro.seeding import seeded
from directloss_repro.validation import Count, CountOrZero, Flag

YEAR = 2012
UNTRAINED = (
    "The network starts from random numbers, because no --weights were given. The paper starts from weights trained "
    "on ImageNet."
)
CONVOLUTIONS = "features."
"""How the names of their weights begin."""
HALF_TRAINED = "The file of weights has no fully connected layers ({missing}); these start from random numbers."


class PhotoConfig(Config):
    """What an experiment with AlexNet has to say besides."""

    dataset: Literal["voc"] = "voc"
    hidden: tuple[Count, ...] = ()
    """Hidden layers of the head on frozen convolutions."""
    pool: CountOrZero = 0
    """Features of a crop or box are pooled into so many cells on each side; 0 for all that the convolutions give."""
    weights: str = ""
    """The content of the file of weights, in short; ``--weights`` sets it."""
    batch_size: CountOrZero = 0
    """0 for the whole training data in one batch."""
    chunk: CountOrZero = 0
    """How many items of a batch are in memory at once; 0 for all."""
    early: Flag = False
    """Whether the number of iterations is chosen as well: that with the best validation AP on the curve."""

    known_classes: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        super().check()
        unknown = [name for name in self.classes if name not in self.known_classes]
        if unknown or not self.classes:
            fail("classes", f"must be among {', '.join(self.known_classes)}", ", ".join(unknown) or "empty")
        if self.early and self.select_on != "val":
            fail("early", 'needs select_on="val": training data cannot say when to stop', self.select_on)

    @property
    def keeps_best(self) -> bool:
        return self.early

    @property
    def at_once(self) -> int:
        return self.chunk or AT_ONCE

    def batch_of(self, method: Method) -> int | None:
        return self.batch_size or None

    @property
    def chunked(self) -> int | None:
        return self.chunk or None


def convolutions_from(weights: str | None) -> Callable[[Tensor], Tensor]:
    """AlexNet's five convolutions with the weights of a file, or with random numbers that are always the same."""

    @lru_cache(maxsize=1)  # loaded when they are needed: mostly the features are stored already
    def layers() -> nn.Module:
        model = seeded(lambda: AlexNet(1), "alexnet")
        if weights is not None:
            load_weights(model, Path(weights), CONVOLUTIONS)
        return model.features[:-1].eval()  # without the last pooling

    return lambda images: layers()(images)


def check_convolutions(_config: PhotoConfig, weights: str) -> None:
    """Complain about a file of weights whose convolutions do not fit."""
    load_weights(AlexNet(1), Path(weights), CONVOLUTIONS)
