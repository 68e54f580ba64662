"""The experiments by name. To add one: a file that declares it under its name in capitals, and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from directloss._errors import fail, near

if TYPE_CHECKING:
    from directloss_repro.experiments.base import Experiment
    from directloss_repro.reports.description import Description

FILES = {
    "synthetic": "synthetic",
    "robustness": "robustness",
    "linear": "linear",
    "linear-noisy": "linear",
    "digits-noise": "digits_noise",
    "wrong-labels": "wrong_labels",
    "mnist-ap": "mnist_ap",
    "cifar10": "cifar",
    "cifar100": "cifar",
    "pose": "pose",
    "ablation-ap": "ablations",
    "ablation-accuracy": "ablations",
    "ablation-batch": "ablations",
    "ablation-pose": "ablations",
    "voc-action": "voc_action",
    "voc-detection": "voc_detection",
}
"""The experiments, in the order of the papers, and the files that declare them."""
PRESETS = ("quick", "small", "paper")
"""All presets; most experiments have only ``quick`` and ``paper``."""


def get_experiment(name: str) -> Experiment:
    """The experiment with this name. Its file is imported here, so that listing names is cheap."""
    if name not in FILES:
        fail("experiment", "must be a known one", repr(name), near(name, list(FILES)) or f"Known: {', '.join(FILES)}.")
    module = import_module(f"directloss_repro.experiments.{FILES[name]}")
    found: Experiment = getattr(module, name.replace("-", "_").upper())
    return found


def describe(name: str) -> Description:
    """What the report of an experiment shows; an unknown one gets tables and figures, but no verdicts.

    Examples:
        >>> describe("robustness").title
        'Robustness to flipped labels'
        >>> describe("my-own").title
        'my-own'
    """
    from directloss_repro.reports.description import Description

    return get_experiment(name).description if name in FILES else Description(name)
