"""What an experiment is: a declaration. It has no training loop and no loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from directloss._checks import check_choice
from directloss.lab.config import Config
from directloss.lab.data import Split

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
    everywhere. ``model(config, inputs)`` builds a scorer from torch's global generator, which the runner has seeded.
    """

    name: str
    summary: str
    paper: str
    presets: Mapping[str, Config]
    data: Callable[[Any, Source], Split]
    model: Callable[[Any, int], nn.Module]
    takes_data_root: bool = False

    def config(self, preset: str) -> Config:
        """The numbers of a preset."""
        check_choice("--preset", preset, self.presets)
        return self.presets[preset]

    def config_from(self, values: Mapping[str, Any]) -> Config:
        """The config that was stored with a run."""
        return type(self.presets["quick"]).from_dict(values)
