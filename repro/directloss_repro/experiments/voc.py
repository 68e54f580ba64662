"""What the two experiments on PASCAL VOC share: AlexNet's weights, settings of a head, and the usable classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from directloss._checks import fail
from directloss_repro.config import AT_ONCE, Config
from directloss_repro.data.voc import Skipped
from directloss_repro.fields import Count, CountOrZero, Flag
from directloss_repro.methods import Method
from directloss_repro.models import resnet50
from directloss_repro.models.alexnet import AlexNet, load_weights
from directloss_repro.seeding import SEARCH_SEED, seeded, stage_of

UNTRAINED = (
    "The network starts from random numbers, because no --weights were given. The paper starts from weights trained "
    "on ImageNet."
)
HALF_TRAINED = "The file of weights has no fully connected layers ({missing}); these start from random numbers."
CONVOLUTIONS = "features."
"""The prefix of the names of their weights."""


class VocConfig(Config):
    """The settings of both experiments."""

    dataset: Literal["voc"] = "voc"
    hidden: tuple[Count, ...] = ()
    """Hidden layers of the head on frozen convolutions."""
    pool: CountOrZero = 0
    """Cells per direction into which the features of a crop or box are pooled; 0 for no pooling."""
    weights: str = ""
    """The digest of the file of weights; ``--weights`` sets it."""
    batch_size: CountOrZero = 0
    """0 for the whole training data in one batch."""
    chunk: CountOrZero = 0
    """How many items of a batch are in memory at once; 0 for all."""
    early: Flag = False
    """Whether to stop early, at the iteration with the best validation AP on the curve."""

    def check(self) -> None:
        super().check()
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

    def runs(self) -> list[tuple[str, int]]:
        """Stage and seed of each run of a class."""
        searched = range(SEARCH_SEED, SEARCH_SEED + self.search_seeds) if len(self.direct) > 1 else ()
        return [(stage_of(seed), seed) for seed in (*range(self.seeds), *searched)]


def usable_classes(config: VocConfig, check: Callable[[str], None], skipped: Skipped) -> tuple[str, ...]:
    """The classes for which ``check`` does not raise; ``skipped`` gets the reasons for the others."""
    kept = []
    for name in config.classes:
        with skipped.catching(f"The class {name!r} is left out: "):
            check(name)
            kept.append(name)
    skipped.check_something_left(len(kept), "the classes")
    return tuple(kept)


def convolutions_from(weights: str | None) -> Callable[[Tensor], Tensor]:
    """AlexNet's five convolutions with the weights of a file, or with fixed random weights."""

    @lru_cache(maxsize=1)  # lazy: usually the features are already cached
    def layers() -> nn.Module:
        model = seeded(lambda: AlexNet(1), "alexnet")
        if weights is not None:
            load_weights(model, Path(weights), CONVOLUTIONS)
        return model.features[:-1].eval()  # without the last pooling

    return lambda images: layers()(images)


def check_convolutions(_config: VocConfig, weights: str) -> None:
    """Raise if the convolutions of a file of weights do not fit, or if a folder does not hold a ResNet-50."""
    if Path(weights).is_dir():
        resnet50.load_keras(resnet50.ResNet50(), resnet50.read_tfjs(Path(weights)))
        return
    load_weights(AlexNet(1), Path(weights), CONVOLUTIONS)
