"""The settings of an experiment: frozen pydantic models that reject unknown keys and values of the wrong type."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field

from directloss._checks import check_choice, fail
from directloss_repro.fields import (
    AboveZero,
    Count,
    CountOrZero,
    Epsilon,
    Flag,
    Frozen,
    NotNegative,
    Number,
    ShareOrAll,
    Whole,
    parse,
)
from directloss_repro.files import stable_hash
from directloss_repro.methods import FAMILIES, Method, parse_method
from directloss_repro.records import Params
from directloss_repro.seeding import SEARCH_SEED

AT_ONCE = 500
"""Batch size of evaluation on images."""


class Grid(Frozen):
    """The values to try for each hyper-parameter; ``epsilon`` is empty for methods without one.

    Examples:
        >>> len(Grid((0.01, 0.1), (0.0,), (1.0, "auto")))
        4
    """

    learning_rate: tuple[AboveZero, ...]
    weight_decay: tuple[NotNegative, ...] = (0.0,)
    epsilon: tuple[Epsilon, ...] = ()

    def __init__(
        self,
        learning_rate: Sequence[float] = (),
        weight_decay: Sequence[float] = (0.0,),
        epsilon: Sequence[float | str] = (),
        **unknown: Any,
    ) -> None:
        # Positional, because a config has many grids.
        BaseModel.__init__(self, learning_rate=learning_rate, weight_decay=weight_decay, epsilon=epsilon, **unknown)

    def check(self) -> None:
        """Raise if the grid is empty."""
        if not self.learning_rate or not self.weight_decay:
            fail("grid", "must have at least one learning rate and one weight decay", repr(self))

    def points(self) -> list[Params]:
        """Every combination, in a fixed order."""
        space = {name: values for name, values in self if values}
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]

    def __len__(self) -> int:
        return len(self.points())


def same_grids(*rates: float, decay: tuple[float, ...] = (0.0,)) -> dict[str, Any]:
    """The same learning rates for every family of methods, for experiments that tune nothing else."""
    return {
        "direct": Grid(rates, decay, ("auto",)),
        "hinge": Grid(rates, decay, (1.0,)),
        "plain": Grid(rates, decay),
        "uniloss": Grid(rates, decay),
    }


class Config(Frozen):
    """The settings that all experiments share; each adds those of its own data.

    The three grids belong to the three families of methods: ``direct`` (pos- and neg-), ``hinge`` and ``plain`` (the
    perceptrons and cross-entropy, which have no epsilon). They must have the same number of points: a method that may
    try more settings than its rival has an unfair advantage.
    """

    methods: tuple[str, ...]
    direct: Grid
    hinge: Grid
    plain: Grid
    iterations: Count
    evaluate_every: Count
    seeds: Annotated[Whole, Field(ge=1, le=SEARCH_SEED)]
    hidden: tuple[Count, ...]
    """Widths of the hidden layers; empty for a linear scorer."""
    search_seeds: Count = 1
    noise: tuple[Annotated[Number, Field(ge=0, le=0.5)], ...] = (0.0,)
    """Shares of flipped labels."""
    noisy_parts: tuple[Literal["train", "val", "test"], ...] = ("train", "val")
    """Which parts of the data have their labels flipped."""
    classes: tuple[str, ...] = ()
    """One problem per class; empty if the data is a single problem."""
    select_on: Literal["train", "val"] = "train"
    """The part on which hyper-parameters are selected; see `directloss_repro.runner`."""
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = "adam"
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """For ``sgd`` only."""

    known_classes: ClassVar[tuple[str, ...]] = ()
    """The classes that there are, if the data has any."""

    def check(self) -> None:
        """Raise unless budgets are equal, methods with an epsilon have values for it, and nothing is listed twice."""
        grids = self.grids()
        sizes = {family: len(grid) for family, grid in grids.items()}
        if len(set(sizes.values())) != 1:
            fail("grids", "must have the same number of points for every family of methods", sizes)
        for family, grid in grids.items():
            if bool(grid.epsilon) != FAMILIES[family]:
                rule = "must have values" if FAMILIES[family] else "must be empty"
                fail(f"{family}.epsilon", rule, grid.epsilon)
        for method in self.methods:
            parse_method(method)
        for name, values in (("methods", self.methods), ("noise", self.noise)):
            if not values or len(set(values)) != len(values):
                fail(name, "must have at least one, and each once", ", ".join(map(str, values)) or "empty")
        unknown = [name for name in self.classes if name not in self.known_classes]
        if self.known_classes and (unknown or not self.classes):
            fail("classes", f"must be among {', '.join(self.known_classes)}", ", ".join(unknown) or "empty")

    # ------------------------------------------------------------------ derived settings

    def grids(self) -> dict[str, Grid]:
        """The grid of each family that has one."""
        return {family: grid for family in FAMILIES if (grid := getattr(self, family, None)) is not None}

    def grid(self, method: Method) -> Grid:
        """The grid of a method's family; UniLoss uses the plain one if it has none of its own."""
        return self.grids().get(method.family, self.plain)

    @property
    def keeps_best(self) -> bool:
        """Whether the iteration with the best validation metric counts, rather than the last."""
        return False

    @property
    def at_once(self) -> int | None:
        """Batch size of evaluation; None for all items at once."""
        return None

    @property
    def measured(self) -> int:
        """How many training items are evaluated; 0 for all."""
        return 0

    @property
    def relaxation(self) -> dict[str, Any]:
        """The settings of UniLoss."""
        return {}

    def batch_of(self, method: Method) -> int | None:
        """The batch size of a method; None for the full batch."""
        return None

    @property
    def chunked(self) -> int | None:
        """How many items of a batch go through the network at once; None for all."""
        return None

    def digest(self) -> str:
        """A digest of all settings that the result of a single run depends on."""
        kept = {key: value for key, value in self.to_dict().items() if key not in (*GROWING, *FAMILIES, "search_seeds")}
        return stable_hash(kept)

    # ------------------------------------------------------------------ to and from plain data

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; unknown and missing keys and wrong types are errors."""
        return parse(cls, values, "config")

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some settings replaced; ``"direct.epsilon"`` replaces a field of a grid."""
        values = self.to_dict()
        for path, value in changes.items():
            grid, _, key = path.rpartition(".")
            place = values.get(grid) if grid else values
            if not isinstance(place, dict):
                fail("config key", "must be a known one", repr(path), f"Known: {', '.join(values)}.")
            place[key] = value
        return self.from_dict(values)

    def check_grown_from(self, old: Config, where: str) -> None:
        """Raise unless only methods, seeds, noise levels or classes were added."""
        before, after = old.to_dict(), self.to_dict()
        for key in after:
            if key == "seeds":
                kept = after[key] >= before[key]
            elif key in GROWING:
                kept = set(after[key]) >= set(before[key])
            else:
                kept = after[key] == before[key]
            if not kept:
                fail(
                    f"config {key!r}",
                    f"must be what the run in {where} has, {json.dumps(before[key])}",
                    json.dumps(after[key]),
                    "Leave the option out to continue that run, or choose another folder with --out.",
                )


class EpochConfig(Config):
    """The settings of an experiment that trains in minibatches.

    UniLoss has its own grid. If a paper fixes the learning rate, each grid has one point and there is no search.
    """

    uniloss: Grid
    iterations: Literal[0] = 0
    """Follows from ``epochs``."""
    evaluate_every: Count = 1
    """In epochs."""
    hidden: tuple[Count, ...] = ()
    dataset: str
    """The data set at ``--data-root``."""
    epochs: Count
    batch_size: Count
    drops: tuple[Count, ...] = ()
    """Epochs at which the learning rate is multiplied by ``factor``."""
    factor: AboveZero = 0.1
    one_cycle: Flag = False
    """Whether the learning rate rises and falls once, instead of ``drops``."""
    points: CountOrZero = 0
    """How many training items are used; 0 for all."""
    train_measured: CountOrZero = 0
    """How many training items are evaluated for the curve; 0 for all."""
    anchors: Count = 16
    """UniLoss: anchors of each of the three types."""
    interpolation: Literal["inverse-distance", "distance-spline"] = "inverse-distance"
    fraction: ShareOrAll = 1.0
    """UniLoss: share of the comparisons that each step uses."""
    stretch: Count = 1
    """UniLoss: how many times longer its schedule is."""

    datasets: ClassVar[tuple[str, ...]] = ()
    """The data sets that the experiment knows."""
    has_noise: ClassVar[bool] = False
    """Whether labels are 0 or 1, so that they can be flipped."""

    def check(self) -> None:
        """Raise for an unknown data set, and for noise if labels cannot be flipped."""
        super().check()
        if self.noise != (0.0,) and not self.has_noise:
            fail("noise", "must be 0, because this experiment has no 0/1 labels to flip", self.noise)
        check_choice("dataset", self.dataset, self.datasets)

    def batch_of(self, method: Method) -> int:
        """The batch size of a method, whose name may set one."""
        return method.option("batch", self.batch_size)

    @property
    def at_once(self) -> int:
        return AT_ONCE

    @property
    def measured(self) -> int:
        return self.train_measured

    @property
    def relaxation(self) -> dict[str, Any]:
        return {"anchors": self.anchors, "interpolation": self.interpolation, "fraction": self.fraction}


GROWING = ("methods", "noise", "classes", "seeds")
"""What a resumed run may extend: the result of a single run does not depend on them."""
