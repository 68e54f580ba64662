"""The numbers of an experiment: frozen, complete, and strict about unknown keys."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from directloss._checks import check_choice, check_epsilon, fail, near
from directloss_repro.methods import FAMILIES, Method, parse_method
from directloss_repro.rules import (
    ABOVE_ZERO,
    COUNT,
    COUNT_OR_ZERO,
    NOT_NEGATIVE,
    SHARE_OR_ALL,
    Rule,
    Rules,
    check_numbers,
    share,
    whole,
)
from directloss_repro.schedule import Schedule, steps_per_epoch

Params = dict[str, float | str]
"""Hyper-parameters of one run, such as ``{"learning_rate": 0.01, "weight_decay": 0.0, "epsilon": "auto"}``."""

SELECTIONS = ("train", "val")
OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")
PARTS = ("train", "val", "test")
INTERPOLATIONS = ("inverse-distance", "distance-spline")
SEARCH_SEED = 1000
"""Seeds of search runs start here, seeds of final runs at 0: they never meet."""


AT_ONCE = 500
"""How many images a network measures at once."""


@dataclass(frozen=True)
class Grid:
    """The values to try of each hyper-parameter; an empty ``epsilon`` for methods that have none.

    Example:
        >>> len(Grid(learning_rate=(0.01, 0.1), weight_decay=(0.0,), epsilon=(1.0, "auto")))
        4
    """

    learning_rate: tuple[float, ...]
    weight_decay: tuple[float, ...] = (0.0,)
    epsilon: tuple[float | str, ...] = ()

    def __post_init__(self) -> None:
        if not self.learning_rate or not self.weight_decay:
            fail("grid", "must have at least one learning rate and one weight decay", self)
        ABOVE_ZERO.check("learning_rate", self.learning_rate)
        NOT_NEGATIVE.check("weight_decay", self.weight_decay)
        for epsilon in self.epsilon:
            check_epsilon(epsilon)
        # 1 and 1.0 are the same setting and must have the same name.
        for name, values in self.space().items():
            object.__setattr__(self, name, tuple(v if isinstance(v, str) else float(v) for v in values))

    def space(self) -> dict[str, tuple[float | str, ...]]:
        """Name of each hyper-parameter with its values."""
        named = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay, "epsilon": self.epsilon}
        return {name: values for name, values in named.items() if values}

    def points(self) -> list[Params]:
        """Every combination, in a fixed order."""
        space = self.space()
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]

    def __len__(self) -> int:
        return len(self.points())


@dataclass(frozen=True)
class Config:
    """What every experiment has to say; each adds the numbers of its own data.

    The three grids belong to the three families of methods: ``direct`` (pos- and neg-), ``hinge`` and ``plain`` (the
    perceptrons and cross-entropy, which have no epsilon). They must have the same number of points, because a method
    that may try more settings than its rival has an advantage that says nothing about the method.
    """

    methods: tuple[str, ...]
    direct: Grid
    hinge: Grid
    plain: Grid
    iterations: int
    evaluate_every: int
    seeds: int
    hidden: tuple[int, ...]
    """Widths of the hidden layers; none for a linear scorer."""
    search_seeds: int = 1
    noise: tuple[float, ...] = (0.0,)
    """Shares of flipped labels."""
    noisy_parts: tuple[str, ...] = ("train", "val")
    """Which parts of the data have their labels flipped."""
    classes: tuple[str, ...] = ()
    """One problem for each of them; none when the data is one problem."""
    select_on: str = "train"
    """Where the AP that chooses hyper-parameters is measured; see `directloss_repro.runner`."""
    optimizer: str = "adam"
    momentum: float = 0.9
    """For ``sgd`` only."""

    rules: ClassVar[Rules] = {
        "iterations": COUNT,
        "evaluate_every": COUNT,
        "seeds": whole(1, SEARCH_SEED, ", where the seeds of the search begin"),
        "search_seeds": COUNT,
        "hidden": COUNT,
        "noise": share(0, 0.5, "shares of flipped labels", "Write 20 % as 0.2 or as 20%."),
        "momentum": Rule("a number from 0 to below 1", lambda value: 0 <= value < 1),
    }
    """What each number must be. An experiment adds those of its own numbers; every number has one."""

    def __post_init__(self) -> None:
        check_numbers(self)
        grids = self.grids()
        sizes = {family: len(grid) for family, grid in grids.items()}
        if len(set(sizes.values())) != 1:
            fail("grids", "must have the same number of points for every family of methods", sizes)
        for family, grid in grids.items():
            if bool(grid.epsilon) != FAMILIES[family]:
                rule = "must have values" if FAMILIES[family] else "must be empty"
                fail(f"{family}.epsilon", rule, grid.epsilon)
        if not self.methods:
            fail("methods", "must name at least one method", "empty")
        for method in self.methods:
            parse_method(method)
        _check_unique("methods", self.methods)
        if not self.noise:
            fail("noise", "must name at least one share of flipped labels", "empty")
        _check_unique("noise", self.noise)
        for part in self.noisy_parts:
            check_choice("noisy_parts", part, PARTS)
        object.__setattr__(self, "noise", tuple(float(flipped) for flipped in self.noise))
        check_choice("select_on", self.select_on, SELECTIONS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)

    # ------------------------------------------------------------------ what follows from the numbers

    def grids(self) -> dict[str, Grid]:
        """The grid of each family that has one."""
        return {family: grid for family in FAMILIES if (grid := getattr(self, family, None)) is not None}

    def grid(self, method: Method) -> Grid:
        """The grid of a method's family; UniLoss, which has no epsilon, is tuned as the plain ones without its own."""
        return self.grids().get(method.family, self.plain)

    @property
    def keeps_best(self) -> bool:
        """Whether the iteration with the best validation metric counts, rather than the last."""
        return False

    @property
    def rounds(self) -> int:
        """How often training goes on with harder data."""
        return 0

    @property
    def at_once(self) -> int | None:
        """How many items a network measures at once; None for all."""
        return None

    @property
    def measured(self) -> int:
        """How many training items are measured; 0 for all."""
        return 0

    @property
    def relaxation(self) -> dict[str, Any]:
        """The settings of UniLoss."""
        return {}

    def paced(self, schedule: Schedule, method: Method, items: int) -> Schedule:
        """The schedule of a method: the full batch, unless a config has batches or epochs."""
        return schedule

    def digest(self) -> str:
        """A short name for everything that one run's result depends on, besides the run's own description."""
        kept = {key: value for key, value in self.to_dict().items() if key not in (*GROWING, *FAMILIES, "search_seeds")}
        return stable_hash(kept)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; unknown and missing keys and wrong types are errors."""
        config: Self = build(cls, values, "config")
        return config

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some numbers replaced; ``"direct.epsilon"`` reaches into a grid."""
        values = self.to_dict()
        for path, value in changes.items():
            place = values
            *outer, last = path.split(".")
            for name in outer:
                place = _step(place, name, path)
            _step(place, last, path)
            place[last] = value
        return self.from_dict(values)

    def check_grown_from(self, old: Config, where: str) -> None:
        """A run may go on with more methods, seeds, noise levels or classes, but with no other number changed."""
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
                    "Leave the option out to go on with that run, or choose another folder with --out.",
                )


@dataclass(frozen=True, kw_only=True)
class EpochConfig(Config):
    """An experiment that trains in minibatches: what it has to say besides.

    One more grid belongs to UniLoss. Where a paper fixes the learning rate, each grid has that one point, and there is
    no search.
    """

    uniloss: Grid
    iterations: int = 0
    """Follows from ``epochs``."""
    evaluate_every: int = 1
    """In epochs."""
    hidden: tuple[int, ...] = ()
    dataset: str
    """Which of the experiment's data sets lies at ``--data-root``."""
    epochs: int
    batch_size: int
    drops: tuple[int, ...] = ()
    """Epochs from which on the learning rate is multiplied by ``factor``."""
    factor: float = 0.1
    points: int = 0
    """How many items of the training data are used; 0 for all."""
    train_measured: int = 0
    """How many training items are measured on the way; 0 for all."""
    anchors: int = 16
    """UniLoss: of each of its three types."""
    interpolation: str = "inverse-distance"
    fraction: float = 1.0
    """UniLoss: share of the comparisons in each step."""
    stretch: int = 1
    """UniLoss: how many times longer its schedule is."""

    rules: ClassVar[Rules] = {
        "iterations": Rule("0, because this experiment counts epochs", lambda value: value == 0, "Set epochs."),
        "epochs": COUNT,
        "batch_size": COUNT,
        "drops": COUNT,
        "factor": ABOVE_ZERO,
        "points": COUNT_OR_ZERO,
        "train_measured": COUNT_OR_ZERO,
        "anchors": COUNT,
        "fraction": SHARE_OR_ALL,
        "stretch": COUNT,
    }
    datasets: ClassVar[tuple[str, ...]] = ()
    """The data sets that the experiment knows."""
    has_noise: ClassVar[bool] = False
    """Whether labels are 0 or 1, so that they can be flipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != (0.0,) and not self.has_noise:
            fail("noise", "must be 0, because this experiment has no 0/1 labels to flip", self.noise)
        check_choice("dataset", self.dataset, self.datasets)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)

    def batch_of(self, method: Method) -> int:
        """The size of the batches of a method, which may name one itself."""
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

    def paced(self, schedule: Schedule, method: Method, items: int) -> Schedule:
        """Epochs as iterations; UniLoss may have more of them."""
        size = self.batch_of(method)
        steps = steps_per_epoch(items, size)
        whole = steps * (self.stretch if method.family == "uniloss" else 1)
        return dataclasses.replace(
            schedule,
            iterations=whole * self.epochs,
            evaluate_every=schedule.evaluate_every * steps,
            batch_size=size,
            drops=tuple(whole * drop for drop in self.drops),
            factor=self.factor,
        )


GROWING = ("methods", "noise", "classes", "seeds")
"""What a resumed run may have more of: each run's result does not depend on them."""


def stable_hash(values: object) -> str:
    """Sixteen hexadecimal digits that depend only on the values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _check_unique(argument: str, values: Sequence[object]) -> None:
    if len(set(values)) != len(values):
        fail(argument, "must name each once", ", ".join(map(str, values)))


def _step(place: Any, name: str, path: str) -> Any:
    if not isinstance(place, dict) or name not in place:
        known = sorted(place) if isinstance(place, dict) else []
        fail("config key", "must be a known one", repr(path), near(name, known) or f"Known: {', '.join(known)}.")
    return place[name]


def build(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """A dataclass out of plain data; unknown and missing keys and wrong types are errors that name ``where``."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in names:
            fail(f"{where} key", "must be a known one", repr(key), near(key, names) or f"Known: {', '.join(names)}.")
    needed = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in values]
    if needed:
        fail(where, "must have every key", f"without {', '.join(needed)}")
    return cls(**{key: _convert(value, hints[key], key) for key, value in values.items()})


def _convert(value: Any, kind: Any, key: str) -> Any:
    """A value out of JSON as the type that the dataclass declares: lists become tuples, dicts become grids."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            fail(f"config {key!r}", "must be a list", repr(value))
        return tuple(_convert(item, typing.get_args(kind)[0], key) for item in value)
    if origin in (typing.Union, types.UnionType):
        for option in typing.get_args(kind):
            if _is_a(value, option):
                return float(value) if option is float else value
        fail(f"config {key!r}", f"must be {kind}", repr(value))
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            fail(f"config {key!r}", "must be an object", repr(value))
        return build(typing.cast(type, kind), value, f"config {key!r}")
    if not _is_a(value, kind):
        fail(f"config {key!r}", f"must be of type {kind.__name__}", repr(value))
    return float(value) if kind is float else value


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
