"""The experiments by name. To add one: a file that declares it, and a line here."""

from __future__ import annotations

from directloss._checks import fail, near
from directloss_repro.experiments.ablations import ABLATIONS
from directloss_repro.experiments.base import PRESETS, Experiment, Source
from directloss_repro.experiments.classes import CIFAR10, CIFAR100
from directloss_repro.experiments.digits_noise import DIGITS_NOISE
from directloss_repro.experiments.linear import LINEAR, LINEAR_NOISY
from directloss_repro.experiments.mnist_ap import MNIST_AP
from directloss_repro.experiments.pose import POSE
from directloss_repro.experiments.robustness import ROBUSTNESS
from directloss_repro.experiments.synthetic import SYNTHETIC
from directloss_repro.experiments.voc_action import VOC_ACTION
from directloss_repro.experiments.voc_detection import VOC_DETECTION
from directloss_repro.experiments.wrong_labels import WRONG_LABELS
from directloss_repro.reports.description import Description

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        SYNTHETIC, ROBUSTNESS, LINEAR, LINEAR_NOISY, DIGITS_NOISE, WRONG_LABELS, MNIST_AP, CIFAR10,
        CIFAR100, POSE, *ABLATIONS, VOC_ACTION, VOC_DETECTION,
    )
}  # fmt: skip


def get_experiment(name: str) -> Experiment:
    """The experiment of a name."""
    known = list(EXPERIMENTS)
    if name not in EXPERIMENTS:
        fail("experiment", "must be a known one", repr(name), near(name, known) or f"Known: {', '.join(known)}.")
    return EXPERIMENTS[name]


def describe(name: str) -> Description:
    """What the report of an experiment shows; one that is not known gets tables and figures, but no verdicts.

    Examples:
        >>> describe("robustness").title
        'Robustness to flipped labels'
        >>> describe("my-own").title
        'my-own'
    """
    return EXPERIMENTS[name].description if name in EXPERIMENTS else Description(name)


__all__ = ["EXPERIMENTS", "PRESETS", "Experiment", "Source", "describe", "get_experiment"]
