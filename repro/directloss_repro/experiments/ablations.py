"""``ablation-...``: what matters in UniLoss? Sec. 4.5 and Tables 3 and 4 of the paper, and questions of our own.

The paper: 5, 10 or 16 anchors of each type in all three tasks (Table 4); batches of 8 to 1,024 images on CIFAR-10
(Table 3); random anchors alone, with which it cannot train (Sec. 3.4). Ours: the distance spline instead of inverse
distances; good anchors around the nearest optimum; binaries flipped directly, as in the paper, or scores moved;
constants instead of the metric's values; comparisons found in the metric's code or written by hand, which must agree;
and direct loss on the same metric.

Each of these is a method with options in its name (see `directloss_repro.methods`); everything else is as in
``mnist-ap``, ``cifar10`` and ``pose``.

What the paper leaves open, and what we chose:

- All batch sizes train for the same number of epochs, hence not of steps, with the same learning rate.
- ``small`` is for two cores. ``ablation-ap``: 20,000 images of MNIST, 10 epochs. ``ablation-accuracy`` and
  ``ablation-batch``: 8,000 images of CIFAR-10, a ResNet-20 of 8 channels in bfloat16 that sees them at half their size,
  12 epochs with drops in the paper's proportion; learning rate 0.5 for UniLoss and 0.1 for the others.
  ``ablation-pose``: as in ``pose``, with 2,000 persons, the lower of its two learning rates and 3 seeds.
- ``paper`` has the data, the networks and the schedules of the paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from directloss_repro.config import Grid, same_grids
from directloss_repro.experiments import cifar, mnist_ap, pose
from directloss_repro.experiments.base import Experiment
from directloss_repro.fields import Count
from directloss_repro.reports import description as report

OPTIONS = ("anchors=5", "anchors=10", "spline", "nearest", "bits", "random", "control", "automatic")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


class ShrunkConfig(cifar.ClassesConfig):
    """The config of `cifar10`, and how far the images are shrunk."""

    shrink: Count = 1
    """Images are averaged over squares of this side, after augmentation and before the network."""


def _shrunk(config: cifar.ClassesConfig, **changes: Any) -> ShrunkConfig:
    return ShrunkConfig(**{**dict(config), **changes})


def _model(config: ShrunkConfig, inputs: int) -> nn.Module:
    network = cifar.CIFAR10.model(config, inputs)
    return network if config.shrink == 1 else nn.Sequential(nn.AvgPool2d(config.shrink), network)


def _variants(method: str) -> tuple[str, ...]:
    return (method, *(f"{method}:{option}" for option in OPTIONS))


_AP = ("x-ent", "direct-ap", *_variants("uniloss-ap"))
_ACCURACY = ("x-ent", "direct-accuracy", *_variants("uniloss-accuracy"))
_POSE = ("uniloss-pckh", *(f"uniloss-pckh:{option}" for option in ("anchors=5", "anchors=10", "control")))
_BATCH = tuple("uniloss-accuracy" if size == 128 else f"uniloss-accuracy:batch={size}" for size in SIZES)

_SMALL = _shrunk(
    cifar.PAPER, uniloss=Grid((0.5,), (0.0001,)), points=8_000, width=8, validation=1_000, epochs=12, drops=(8, 10),
    train_measured=1_000, evaluate_every=4, bfloat16=True, seeds=3, shrink=2,
)  # fmt: skip

TABLE_3 = {8: 87.89, 16: 90.05, 32: 90.82, 64: 91.23, 128: 91.64, 256: 90.94, 512: 89.10, 1024: 87.20}
"""Accuracy on CIFAR-10 for each batch size."""
TABLE_4 = {
    "uniloss-ap": {5: 99.88, 10: 99.87, 16: 99.88},
    "uniloss-accuracy": {5: 91.55, 10: 91.54, 16: 91.64},
    "uniloss-pckh": {5: 94.79, 10: 94.95, 16: 95.77},
}
"""Each of the three tasks, for each number of anchors of each type."""


def _by_name(method: str, option: str, table: Mapping[int, float], usual: int) -> dict[str, float]:
    return {method if size == usual else f"{method}:{option}={size}": value for size, value in table.items()}


PRINTED = _by_name("uniloss-accuracy", "batch", TABLE_3, 128)
for _method, _table in TABLE_4.items():
    PRINTED |= _by_name(_method, "anchors", _table, 16)


def _pair(first: str, second: str) -> report.Comparison:
    return report.Comparison(first, second, round(PRINTED[first] - PRINTED[second], 2))


def _reference(title: str, method: str, dataset: str, **others: tuple[float]) -> report.Reference:
    means = {name: (value,) for name, value in PRINTED.items() if name.startswith(method)}
    return report.Reference(f"Paper, {title}", means | others, dataset=dataset)


def _alike(says: str, method: str, *options: str, within: float, metric: str) -> report.Claim:
    """Our own claim that these options of a method change little."""
    pairs = (report.Comparison(f"{method}:{option}", method) for option in options)
    return report.alike(says, report.OURS, *pairs, within=within, metric=metric)


def _claims(method: str, metric: str, rival: str, within: float) -> tuple[report.Claim, ...]:
    """The paper's claims about anchors and ours, the same for both metrics."""
    return (
        report.alike(
            "Fewer anchors do as well as 16 of each type.",
            "Sec. 4.5, Table 4",
            *(_pair(f"{method}:anchors={few}", method) for few in (5, 10)),
            within=within,
            metric=metric,
        ),
        report.leads(
            "Random anchors alone cannot train the network.",
            "Sec. 3.4",
            report.against(method, f"{method}:random"),
            "We ask for a lead of more than 10 points of the mix of good, nearby and random ones.",
            by=10.0,
            metric=metric,
        ),
        _alike(
            "Comparisons that are found in the metric's code train as well as those written by hand.",
            method, "automatic", within=within / 2, metric=metric,
        ),
        _alike(
            "The distance spline does as well as inverse distances.", method, "spline", within=within, metric=metric
        ),
        _alike(
            "It does not matter around which optimum good anchors lie, nor whether all anchors are consistent.",
            method, "nearest", "bits", within=within, metric=metric,
        ),
        _values_matter(method, metric),
        report.alike(
            "UniLoss and direct loss on the same metric perform alike.",
            report.OURS,
            report.Comparison(method, rival),
            within=within,
            metric=metric,
        ),
    )  # fmt: skip


def _values_matter(method: str, metric: str) -> report.Claim:
    return report.Claim(
        "The metric's values at the anchors matter: constants in their place do worse.",
        report.OURS,
        report.against(method, f"{method}:control"),
        metric=metric,
        reading="The constants are 1 for good anchors, 0 for bad ones, and the current value for nearby ones.",
    )


def _by_anchors(method: str, metric: str) -> tuple[report.Figure, ...]:
    sizes = report.Figure("sizes", metric, "UniLoss, Table 4", "anchors", TABLE_4[method])
    return report.Figure("methods", metric), sizes


def _on_cifar(name: str, summary: str, methods: tuple[str, ...], description: report.Description) -> Experiment:
    return dataclasses.replace(
        cifar.CIFAR10,
        name=name,
        summary=summary,
        model=_model,
        paper=description.paper.replace(report.UNI, "UniLoss"),
        description=description,
        presets={
            "quick": _shrunk(cifar.QUICK, methods=methods, shrink=2),
            "small": _SMALL.but(methods=methods),
            "paper": _shrunk(cifar.PAPER, methods=methods),
        },
    )


ABLATION_AP = dataclasses.replace(
    mnist_ap.MNIST_AP,
    name="ablation-ap",
    summary="UniLoss on AP: anchors, interpolation, values, automatic comparisons",
    paper="UniLoss, Sec. 4.5 and Table 4",
    description=report.Description(
        title="What matters in UniLoss: average precision",
        question="Zeros among other digits: anchors, interpolation, the metric's values, and automatic comparisons.",
        paper=f"{report.UNI}, Sec. 4.5 and Table 4",
        metrics=("test_ap", "val_ap", "train_ap"),
        figures=_by_anchors("uniloss-ap", "test_ap"),
        claims=_claims("uniloss-ap", "test_ap", "direct-ap", 0.5),
        reference=_reference("Table 4: MNIST", "uniloss-ap", "mnist", **{"x-ent": (99.89,)}),
    ),
    presets={
        "quick": mnist_ap.QUICK.but(methods=_AP),
        "small": mnist_ap.PAPER.but(methods=_AP, points=20_000, epochs=10, train_measured=5_000, evaluate_every=5),
        "paper": mnist_ap.PAPER.but(methods=_AP),
    },
)

ABLATION_ACCURACY = _on_cifar(
    "ablation-accuracy",
    "UniLoss on accuracy: the same questions",
    _ACCURACY,
    report.Description(
        title="What matters in UniLoss: accuracy",
        question=(
            "A ResNet-20 classifies images: anchors, interpolation, the metric's values, and automatic comparisons."
        ),
        paper=f"{report.UNI}, Sec. 4.5 and Table 4",
        metrics=cifar.METRICS,
        figures=_by_anchors("uniloss-accuracy", "test_accuracy"),
        claims=_claims("uniloss-accuracy", "test_accuracy", "direct-accuracy", 2.0),
        reference=_reference("Table 4: CIFAR-10", "uniloss-accuracy", "cifar10", **{"x-ent": (91.49,)}),
    ),
)

ABLATION_BATCH = _on_cifar(
    "ablation-batch",
    "UniLoss on accuracy with batches of 8 to 1,024",
    _BATCH,
    report.Description(
        title="UniLoss with small and large batches",
        question="A batch stands for the whole data set: how small may it be, and how large?",
        paper=f"{report.UNI}, Sec. 4.5 and Table 3",
        metrics=cifar.METRICS,
        figures=(
            report.Figure("sizes", "test_accuracy", "UniLoss, Table 3", "batch", TABLE_3),
            report.Figure("sizes", "train_accuracy", first="batch"),
        ),
        claims=(
            report.Claim(
                "Very small and very large batches do worse than batches of 128.",
                "Sec. 4.5, Table 3",
                tuple(_pair("uniloss-accuracy", f"uniloss-accuracy:batch={size}") for size in (8, 1024)),
                metric="test_accuracy",
            ),
            report.alike(
                "Batches that are not extreme do about as well as batches of 128.",
                "Sec. 4.5, Table 3",
                *(_pair(f"uniloss-accuracy:batch={size}", "uniloss-accuracy") for size in (32, 64, 256)),
                within=2.0,
                metric="test_accuracy",
            ),
        ),
        reference=_reference("Table 3: CIFAR-10", "uniloss-accuracy", "cifar10"),
    ),
)

ABLATION_POSE = dataclasses.replace(
    pose.POSE,
    name="ablation-pose",
    summary="UniLoss on PCK with fewer anchors and with constant values",
    paper="UniLoss, Sec. 4.5 and Table 4",
    description=report.Description(
        title="What matters in UniLoss: keypoints",
        question="Heatmaps have more comparisons than any other task here: how many anchors do they need?",
        paper=f"{report.UNI}, Sec. 4.5 and Table 4",
        metrics=pose.METRICS,
        figures=(*_by_anchors("uniloss-pckh", "test_pck"), pose.FRAMES),
        claims=(
            report.Claim(
                "Fewer anchors are slightly worse for keypoints.",
                "Sec. 4.5, Table 4",
                tuple(_pair("uniloss-pckh", f"uniloss-pckh:anchors={few}") for few in (5, 10)),
                metric="test_pck",
            ),
            _values_matter("uniloss-pckh", "test_pck"),
        ),
        reference=_reference("Table 4: MPII", "uniloss-pckh", "mpii"),
    ),
    presets={
        "quick": pose.QUICK.but(methods=_POSE),
        "small": pose.SMALL.but(methods=_POSE, **same_grids(0.0025), points=2_000, evaluate_every=12, seeds=3),
        "paper": pose.PAPER.but(methods=_POSE),
    },
)
