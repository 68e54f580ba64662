"""``ablation-...``: what matters in UniLoss? Its Sec. 4.5 and Tables 3 and 4, and questions of our own.

The paper: 5, 10 or 16 anchors of each type in all three tasks (Table 4); batches of 8 to 1,024 images on CIFAR-10
(Table 3). Ours: the distance spline in place of inverse distances; good anchors around the nearest optimum; binaries
flipped as they stand, as in the paper, or scores moved; constants in place of the metric's values; comparisons found in
the metric's code or written by hand, which must agree; and direct loss on the same metric.

Each of these is a method with options in its name, see `directloss.lab.methods`; everything else is as in ``mnist-ap``,
``cifar10`` and ``pose``.

What the paper leaves open, and what we chose:

- Batches of all sizes have the same number of epochs, so not of steps, and the same learning rate.
- ``small`` is for two cores. ``ablation-ap``: 20,000 images of MNIST, 10 epochs. ``ablation-accuracy`` and
  ``ablation-batch``: 2,500 images of Fashion-MNIST, a ResNet-20 of 4 channels, 20 epochs. ``ablation-pose``: the mouse,
  as in ``pose``.
- ``paper`` has the data, the networks and the schedules of the paper.
"""

from __future__ import annotations

import dataclasses

from directloss.lab.experiments import classes, mnist_ap, pose
from directloss.lab.experiments.base import Experiment

OPTIONS = ("anchors=5", "anchors=10", "spline", "nearest", "bits", "control", "automatic")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def _variants(method: str) -> tuple[str, ...]:
    return (method, *(f"{method}:{option}" for option in OPTIONS))


_AP = ("x-ent", "pos-ap", *_variants("uniloss-ap"))
_ACCURACY = ("x-ent", "pos-accuracy", *_variants("uniloss-accuracy"))
_POSE = ("uniloss-pckh", *(f"uniloss-pckh:{option}" for option in ("anchors=5", "anchors=10", "control")))
_BATCH = tuple("uniloss-accuracy" if size == 128 else f"uniloss-accuracy:batch={size}" for size in SIZES)

_CLASSES = dataclasses.replace(
    classes.SMALL, methods=_ACCURACY, points=2_500, validation=1_000, width=4, train_measured=1_000, evaluate_every=10
)

ABLATION_AP = dataclasses.replace(
    mnist_ap.MNIST_AP,
    name="ablation-ap",
    summary="UniLoss on AP: anchors, interpolation, values, who finds the pairs; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": dataclasses.replace(mnist_ap.QUICK, methods=_AP),
        "small": dataclasses.replace(
            mnist_ap.PAPER, methods=_AP, points=20_000, epochs=10, train_measured=5_000, evaluate_every=5
        ),
        "paper": dataclasses.replace(mnist_ap.PAPER, methods=_AP),
    },
)

ABLATION_ACCURACY = dataclasses.replace(
    classes.CIFAR10,
    name="ablation-accuracy",
    summary="UniLoss on accuracy: the same questions; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": dataclasses.replace(classes.QUICK, methods=_ACCURACY),
        "small": _CLASSES,
        "paper": dataclasses.replace(classes.PAPER, methods=_ACCURACY),
    },
)

ABLATION_BATCH = dataclasses.replace(
    classes.CIFAR10,
    name="ablation-batch",
    summary="UniLoss on accuracy with batches of 8 to 1,024; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 3",
    presets={
        "quick": dataclasses.replace(classes.QUICK, methods=_BATCH),
        "small": dataclasses.replace(_CLASSES, methods=_BATCH),
        "paper": dataclasses.replace(classes.PAPER, methods=_BATCH),
    },
)

ABLATION_POSE = dataclasses.replace(
    pose.POSE,
    name="ablation-pose",
    summary="UniLoss on PCK with fewer anchors and with constant values; needs --data-root",
    paper="UniLoss, Sec. 4.5 and Table 4",
    presets={
        "quick": dataclasses.replace(pose.QUICK, methods=_POSE),
        "small": dataclasses.replace(pose.SMALL, methods=_POSE, evaluate_every=20),
        "paper": dataclasses.replace(pose.PAPER, methods=_POSE),
    },
)

ABLATIONS: tuple[Experiment, ...] = (ABLATION_AP, ABLATION_ACCURACY, ABLATION_BATCH, ABLATION_POSE)
