"""``ablation-...``: what matters in UniLoss? Its Sec. 4.5 and Tables 3 and 4, and questions of our own.

The paper: 5, 10 or 16 anchors of each type in all three tasks (Table 4); batches of 8 to 1,024 images on CIFAR-10
(Table 3); random anchors alone, with which it cannot train (Sec. 3.4). Ours: the distance spline in place of inverse
distances; good anchors around the nearest optimum; binaries flipped as they stand, as in the paper, or scores moved;
constants in place of the metric's values; comparisons found in the metric's code or written by hand, which must agree;
and direct loss on the same metric.

Each of these is a method with options in its name, see `directloss_repro.methods`; everything else is as in
``mnist-ap``,
``cifar10`` and ``pose``.

What the paper leaves open, and what we chose:

- Batches of all sizes have the same number of epochs, so not of steps, and the same learning rate.
- ``small`` is for two cores. ``ablation-ap``: 20,000 images of MNIST, 10 epochs. ``ablation-accuracy`` and
  ``ablation-batch``: 8,000 images of CIFAR-10, a ResNet-20 of 8 channels that sees them at half their size, 12 epochs
  with drops in the paper's proportion; learning rate 0.5 for UniLoss and 0.1 for the others. ``ablation-pose``: as in
  ``pose``, with the higher of its two learning rates.
- ``paper`` has the data, the networks and the schedules of the paper.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from directloss_repro.config import Grid
from directloss_repro.experiments import classes, mnist_ap, pose
from directloss_repro.experiments.base import Experiment
from directloss_repro.validation import Count

OPTIONS = ("anchors=5", "anchors=10", "spline", "nearest", "bits", "random", "control", "automatic")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


class ShrunkConfig(classes.ClassesConfig):
    """As `cifar10` has it, and how much smaller the network sees the images."""

    shrink: Count = 1
    """So many pixels in each direction become one, their mean; augmentation comes before."""


def _shrunk(config: classes.ClassesConfig, **changes: Any) -> ShrunkConfig:
    return ShrunkConfig(**{**dict(config), **changes})


def _model(config: ShrunkConfig, inputs: int) -> nn.Module:
    network = classes.CIFAR10.model(config, inputs)
    return network if config.shrink == 1 else nn.Sequential(nn.AvgPool2d(config.shrink), network)


def _variants(method: str) -> tuple[str, ...]:
    return (method, *(f"{method}:{option}" for option in OPTIONS))


_AP = ("x-ent", "pos-ap", *_variants("uniloss-ap"))
_ACCURACY = ("x-ent", "both-accuracy", *_variants("uniloss-accuracy"))
_POSE = ("uniloss-pckh", *(f"uniloss-pckh:{option}" for option in ("anchors=5", "anchors=10", "control")))
_BATCH = tuple("uniloss-accuracy" if size == 128 else f"uniloss-accuracy:batch={size}" for size in SIZES)

_SMALL = _shrunk(
    classes.SMALL,
    plain=classes.PAPER.plain,
    hinge=classes.PAPER.hinge,
    direct=classes.PAPER.direct,
    uniloss=Grid((0.5,), (0.0001,)),
    points=8_000,
    width=8,
    one_cycle=False,
    validation=1_000,
    epochs=12,
    drops=(8, 10),
    train_measured=1_000,
    evaluate_every=4,
    seeds=3,
    shrink=2,
)

ABLATION_AP = dataclasses.replace(
    mnist_ap.MNIST_AP,
    name="ablation-ap",
    summary="UniLoss on AP: anchors, interpolation, values, who finds the pairs; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": mnist_ap.QUICK.but(methods=_AP),
        "small": mnist_ap.PAPER.but(methods=_AP, points=20_000, epochs=10, train_measured=5_000, evaluate_every=5),
        "paper": mnist_ap.PAPER.but(methods=_AP),
    },
)

ABLATION_ACCURACY = dataclasses.replace(
    classes.CIFAR10,
    name="ablation-accuracy",
    summary="UniLoss on accuracy: the same questions; needs --data-root",
    model=_model,
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": _shrunk(classes.QUICK, methods=_ACCURACY, shrink=2),
        "small": _SMALL.but(methods=_ACCURACY),
        "paper": _shrunk(classes.PAPER, methods=_ACCURACY),
    },
)

ABLATION_BATCH = dataclasses.replace(
    classes.CIFAR10,
    name="ablation-batch",
    summary="UniLoss on accuracy with batches of 8 to 1,024; needs --data-root",
    model=_model,
    paper="UniLoss, Sec. 4.5 and Table 3",
    presets={
        "quick": _shrunk(classes.QUICK, methods=_BATCH, shrink=2),
        "small": _SMALL.but(methods=_BATCH),
        "paper": _shrunk(classes.PAPER, methods=_BATCH),
    },
)

ABLATION_POSE = dataclasses.replace(
    pose.POSE,
    name="ablation-pose",
    summary="UniLoss on PCK with fewer anchors and with constant values; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": pose.QUICK.but(methods=_POSE),
        "small": pose.SMALL.but(methods=_POSE, **pose.grids(0.0025), evaluate_every=20),
        "paper": pose.PAPER.but(methods=_POSE),
    },
)

ABLATIONS: tuple[Experiment, ...] = (ABLATION_AP, ABLATION_ACCURACY, ABLATION_BATCH, ABLATION_POSE)
