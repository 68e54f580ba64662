"""What an experiment is: a declaration. It has no training loop and no loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss._checks import DirectLossError, check_choice, fail
from directloss_repro.config import Config, EpochConfig
from directloss_repro.data import Part, Split
from directloss_repro.files import DataIdentity
from directloss_repro.methods import parse_method
from directloss_repro.models import Scorer
from directloss_repro.records import Record
from directloss_repro.reports.description import Description

Progress = Callable[[str, int, int], None]
"""Called with a stage of the preparation, its finished steps, and their total."""


@dataclass(frozen=True)
class Files:
    """The locations of an experiment's files; they do not affect results."""

    root: str | None = None
    """The original files of the data set."""
    weights: str | None = None
    """The initial weights of a network."""
    cache: str | None = None
    """The folder for what is computed once from the data."""


@dataclass(frozen=True)
class Source:
    """Which data a run needs. All methods of a seed get the same data."""

    seed: int
    group: str | None = None
    """The class that is ranked against the rest; None for a single problem."""
    files: Files = Files()
    stage: str = "final"
    """``search`` or ``final``."""


@dataclass(frozen=True)
class Prepared:
    """The result of the preparation."""

    classes: tuple[str, ...]
    """The classes that can be trained and judged."""
    reasons: tuple[str, ...] = ()
    """What was left out, and why: one sentence each."""
    notes: tuple[str, ...] = ()
    """What else readers of the results need to know."""


def scorer(config: Config, inputs: int) -> nn.Module:
    """A ReLU network with the hidden layers of the config."""
    return Scorer(inputs, config.hidden)


@dataclass(frozen=True)
class Experiment:
    """Data, model, methods, search space and evaluation of one figure or table.

    ``data(config, source)`` returns clean labels; the runner flips them, so that noise means the same everywhere.
    ``model(config, inputs)`` builds a network with torch's global generator, which the runner has seeded; ``inputs`` is
    the second dimension of the data: features or channels. All other functions are optional.
    """

    name: str
    summary: str
    paper: str
    presets: Mapping[str, Config]
    data: Callable[[Any, Source], Split]
    description: Description
    """What the report shows: question, figures, claims and the paper's numbers."""
    model: Callable[[Any, int], nn.Module] = scorer
    metric: str = "ap"
    """The metric that judges it, from `directloss_repro.evaluation`: records have ``{part}_{metric}``."""
    augment: Callable[[Part, torch.Generator], Part] | None = None
    """Augments each training batch at random."""
    check_data: Callable[[Any, str], DataIdentity | None] | None = None
    """``check_data(config, root)`` raises if something is missing at ``--data-root``, and identifies the data if it
    can; None if the experiment needs no files."""
    recognise: Callable[[str], str | None] | None = None
    """The name of the data set at ``--data-root``, or None if its files do not tell. ``--dataset`` overrides it."""
    check_weights: Callable[[Any, str], object] | None = None
    """``check_weights(config, path)`` raises if a file of weights does not fit; None if ``--weights`` is not supported.
    If supported, the config has a key ``weights``, the digest of the file."""
    prepare: Callable[[Any, Files, int, Progress], Prepared] | None = None
    """``prepare(config, files, workers, progress)`` computes what all runs share, before the first of them."""
    load_weights: Callable[[Files, nn.Module], None] | None = None
    """Loads weights into a new model."""
    judge: Callable[[Any, Source, Tensor], dict[str, float]] | None = None
    """``judge(config, source, scores)`` evaluates the scores of all test items, if AP of labels is not enough."""
    show: Callable[[nn.Module, Split], dict[str, Any]] | None = None
    """What a trained network of the first seed predicts for a few test items: plain data, stored with the record."""
    draw: Callable[[Any, Files, list[Record], Path], None] | None = None
    """``draw(config, files, records, folder)`` makes pictures from the ``shown`` of final runs."""

    def config(self, preset: str) -> Config:
        """The config of a preset."""
        check_choice("--preset", preset, self.presets)
        return self.presets[preset]

    def config_from(self, values: Mapping[str, Any]) -> Config:
        """The config that was stored with a run."""
        return type(self.presets["quick"]).from_dict(values)

    def check(self, config: Config, root: str | None) -> DataIdentity | None:
        """Raise if a method does not fit the metric or data is missing; return the identity of the data, if known."""
        for name in config.methods:
            method = parse_method(name)
            method.check_fits(self.metric)
            if method.option("batch") and not isinstance(config, EpochConfig):
                rule = "must have no option 'batch' here, where the batch size is fixed"
                fail("methods", rule, repr(name))
        if self.check_data is None:
            if root is not None:
                fail("--data-root", f"must be left out: {self.name!r} needs no files", root)
            return None
        if root is None:
            rule = f"must name the folder with the data of {self.name!r}"
            fail("--data-root", rule, "missing", self._datasets(config))
        try:
            return self.check_data(config, root)
        except DirectLossError as error:
            raise DirectLossError(f"{error} {self._datasets(config)}".rstrip()) from None

    def _datasets(self, config: Config) -> str:
        """Which data is expected, and how to ask for other data."""
        if not isinstance(config, EpochConfig):
            return ""
        others = ", ".join(name for name in config.datasets if name != config.dataset)
        return f"Expected: --dataset {config.dataset}; also possible: {others}."
