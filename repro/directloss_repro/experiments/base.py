"""What an experiment is: a declaration. It has no training loop and no loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import DirectLossError, check_choice, fail
from directloss_repro.config import Config, EpochConfig
from directloss_repro.data import Part, Split
from directloss_repro.data.seen import Seen
from directloss_repro.methods import parse_method
from directloss_repro.records import Record
from directloss_repro.reports.description import Description

Say = Callable[[str, int, int], None]
"""Told which stage of the preparation is under way, and how many of how many steps are done."""

PRESETS = ("quick", "paper")


@dataclass(frozen=True)
class Source:
    """Which data is asked for. All methods of a seed get the same."""

    seed: int
    label: str | None = None
    root: str | None = None
    weights: str | None = None
    """A file of weights to start from."""
    cache: str | None = None
    """A folder for what is computed from the data once."""
    stage: str = "final"
    """``search`` or ``final``."""


@dataclass(frozen=True)
class Ready:
    """What came of the preparation."""

    classes: tuple[str, ...]
    """The classes that can be trained and judged."""
    reasons: tuple[str, ...] = ()
    """What was left out, and why: one sentence each."""
    notes: tuple[str, ...] = ()
    """What else a reader of the results must know."""


@dataclass(frozen=True)
class Judged:
    """What an experiment that judges its test data itself found."""

    metrics: dict[str, float]
    shown: dict[str, Any] | None = None
    """Plain data for drawings; it is stored with the record."""


@dataclass(frozen=True)
class Experiment:
    """Data, model, methods, search space and evaluation of one figure or table.

    ``data(config, source)`` gives clean labels; flipping them is left to the runner, so that noise means the same
    everywhere. ``model(config, inputs)`` builds a scorer from torch's global generator, which the runner has seeded;
    ``inputs`` is the second dimension of the data: its width, or its channels.
    """

    name: str
    summary: str
    paper: str
    presets: Mapping[str, Config]
    data: Callable[[Any, Source], Split]
    model: Callable[[Any, int], nn.Module]
    description: Description
    """What the report shows: question, figures, claims and the paper's numbers."""
    metric: str = "ap"
    """What it is judged by, one of `directloss_repro.evaluation`: records have ``{part}_{metric}``."""
    augment: Callable[[Part, torch.Generator], Part] | None = None
    """Changes each training batch at random."""
    look: Callable[[Any, str], Seen | None] | None = None
    """``look(config, root)`` complains about what is missing at ``--data-root``, and tells which data it is, where that
    can be told; None where the data is drawn."""
    recognise: Callable[[str], str | None] | None = None
    """Which data set lies at ``--data-root``, by its files; None where they do not tell. ``--dataset`` goes before."""
    with_root: Mapping[str, Any] = field(default_factory=dict)
    """What ``--data-root`` changes in the config, where there is data without it too."""
    weights: Callable[[Any, str], object] | None = None
    """``weights(config, path)`` complains about a file of weights that does not fit; None where there is none to start
    from. With it the config has a key ``weights``, the file's content in short."""
    ready: Callable[[Any, Source, int, Say], Ready] | None = None
    """``ready(config, source, workers, say)`` computes what all runs share, before the first of them."""
    start: Callable[[Any, Source, nn.Module], None] | None = None
    """Loads weights into a new model."""
    judge: Callable[[Any, Source, Tensor, float], Judged] | None = None
    """``judge(config, source, scores, threshold)`` measures the scores of all test items, where AP of labels will not
    do. The threshold is the one with the fewest errors on the training data."""
    show: Callable[[nn.Module, Split], dict[str, Any]] | None = None
    """What a trained network of the first seed says about a few test items: plain data, stored with the record."""
    draw: Callable[[Any, Source, list[Record], Path], None] | None = None
    """``draw(config, source, records, folder)`` makes pictures of what final runs have left in ``shown``."""

    @property
    def needs_root(self) -> bool:
        """Whether there is no data without ``--data-root``."""
        return self.look is not None and not self.with_root

    def config(self, preset: str) -> Config:
        """The numbers of a preset."""
        check_choice("--preset", preset, self.presets)
        return self.presets[preset]

    def config_from(self, values: Mapping[str, Any]) -> Config:
        """The config that was stored with a run."""
        return type(self.presets["quick"]).from_dict(values)

    def check(self, config: Config, root: str | None) -> Seen | None:
        """Methods that fit the metric, and data that is there; which data, where that can be told."""
        for name in config.methods:
            method = parse_method(name)
            method.check_fits(self.metric)
            if not isinstance(config, EpochConfig):
                method.check_full_batch()
        if root is None:
            if self.needs_root:
                rule = f"must name the folder with the data of {self.name!r}"
                fail("--data-root", rule, "missing", self._datasets(config))
            return None
        if self.look is None:
            fail("--data-root", f"must be left out: {self.name!r} draws its data itself", root)
        try:
            return self.look(config, root)
        except DirectLossError as error:
            raise DirectLossError(f"{error} {self._datasets(config)}".rstrip()) from None

    def _datasets(self, config: Config) -> str:
        """Which data is expected, and how to ask for other data."""
        known = getattr(config, "datasets", ())
        if len(known) < 2:
            return ""
        others = ", ".join(name for name in known if name != getattr(config, "dataset", ""))
        return f"Expected is --dataset {getattr(config, 'dataset', '')}; known besides: {others}."
