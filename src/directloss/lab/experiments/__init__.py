"""The experiments by name. To add one: a file that declares it, and a line here."""

from __future__ import annotations

from directloss._checks import fail, near
from directloss.lab.experiments.ablations import ABLATIONS
from directloss.lab.experiments.base import PRESETS, Experiment, Source
from directloss.lab.experiments.classes import CIFAR10, CIFAR100
from directloss.lab.experiments.digits_noise import DIGITS_NOISE
from directloss.lab.experiments.linear import LINEAR, LINEAR_NOISY
from directloss.lab.experiments.mnist_ap import MNIST_AP
from directloss.lab.experiments.pose import POSE
from directloss.lab.experiments.robustness import ROBUSTNESS
from directloss.lab.experiments.synthetic import SYNTHETIC
from directloss.lab.experiments.voc_action import VOC_ACTION
from directloss.lab.experiments.voc_detection import VOC_DETECTION

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        SYNTHETIC, ROBUSTNESS, LINEAR, LINEAR_NOISY, DIGITS_NOISE, MNIST_AP, CIFAR10, CIFAR100, POSE,
        *ABLATIONS, VOC_ACTION, VOC_DETECTION,
    )
}  # fmt: skip


def get_experiment(name: str) -> Experiment:
    """The experiment of a name."""
    known = list(EXPERIMENTS)
    if name not in EXPERIMENTS:
        fail("experiment", "must be a known one", repr(name), near(name, known) or f"Known: {', '.join(known)}.")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "PRESETS", "Experiment", "Source", "get_experiment"]
