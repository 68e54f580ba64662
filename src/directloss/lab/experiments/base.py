"""What an experiment is: a declaration. It has no training loop and no loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from directloss._checks import check_choice, fail
from directloss.lab.config import Config
from directloss.lab.data import Part, Split
from directloss.lab.methods import parse_method

PRESETS = ("quick", "paper")


@dataclass(frozen=True)
class Source:
    """Which data is asked for. All methods of a seed get the same."""

    seed: int
    label: str | None = None
    root: str | None = None


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
    metric: str = "ap"
    """What it is judged by: records have ``{part}_{metric}``, and settings are chosen by it. See `lab.evaluation`."""
    augment: Callable[[Part, torch.Generator], Part] | None = None
    """Changes each training batch at random."""
    look: Callable[[Any, str], None] | None = None
    """``look(config, root)`` complains about what is missing at ``--data-root``; None where the data is drawn."""
    needs_root: bool = False
    """Whether there is no data without ``--data-root``."""
    with_root: Mapping[str, Any] = field(default_factory=dict)
    """What ``--data-root`` changes in the config."""

    def config(self, preset: str) -> Config:
        """The numbers of a preset."""
        check_choice("--preset", preset, self.presets)
        return self.presets[preset]

    def config_from(self, values: Mapping[str, Any]) -> Config:
        """The config that was stored with a run."""
        return type(self.presets["quick"]).from_dict(values)

    def check(self, config: Config, root: str | None) -> None:
        """Methods that fit the metric, and data that is there."""
        for method in config.methods:
            parse_method(method).check_fits(self.metric)
        if root is None:
            if self.needs_root:
                fail("--data-root", f"must name the folder with the data of {self.name!r}", "missing")
        elif self.look is None:
            fail("--data-root", f"must be left out: {self.name!r} draws its data itself", root)
        else:
            self.look(config, root)
