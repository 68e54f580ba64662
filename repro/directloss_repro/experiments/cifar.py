"""``cifar10`` and ``cifar100``: accuracy of a ResNet-20. UniLoss (ECCV 2020), Sec. 4.4, Tables 2 and 3, Fig. 2.

The paper: ResNet-20; per-pixel normalisation; crops of images padded by 4 pixels, and flips; 45,000 images for
training and 5,000 for validation; SGD, batches of 128, 200 epochs, learning rate 0.1, divided by 10 at epoch 140 and
again at 160; 16 anchors of each type. On CIFAR-100, UniLoss relaxes 20 % of the comparisons in each step and trains
five times as long. Accuracy 91.64 % and 65.92 % (UniLoss), 91.49 % and 65.90 % (cross-entropy).

``--data-root`` may hold CIFAR-10, CIFAR-100, MNIST or Fashion-MNIST; the experiment recognises them by their files.

What the paper leaves open, and what we chose:

- Changed: anchors of UniLoss lie in score space, where each is the configuration of some scores. The paper flips bits
  directly: this is ``uniloss-accuracy:bits``, compared in ``ablation-accuracy``.
- Momentum 0.9 and weight decay 0.0001, as in the ResNet paper. Incomplete batches are skipped.
- Test accuracy is measured after the last epoch. The validation images are the same for all seeds.
- ``small`` is for two cores: the same network and images, but 15 epochs with one cycle of the learning rate, which
  reaches 87 % in a tenth of the time; highest rate 0.2 (UniLoss 0.5); the network computes in bfloat16. Direct
  loss is ours. The training curve is measured on 2,000 images (``paper``: 5,000). On CIFAR-100 all methods train for
  the same number of epochs, and UniLoss also with all comparisons.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from torch import nn

from directloss_repro.config import EpochConfig, Grid, same_grids
from directloss_repro.data import Split
from directloss_repro.data.labelled_images import CLASSES, crop_and_flip, identify, recognise, split_classes
from directloss_repro.experiments.base import Experiment, Source
from directloss_repro.fields import Count, Flag
from directloss_repro.models import ResNet20
from directloss_repro.reports import description as report


class ClassesConfig(EpochConfig):
    """Images with classes, and the network's size."""

    validation: Count = 5_000
    width: Count = 16
    """Channels of the first stage of the ResNet."""
    bfloat16: Flag = False
    """Whether the ResNet computes in bfloat16; its weights and the loss stay in float32."""

    datasets: ClassVar[tuple[str, ...]] = ("cifar10", "cifar100", "fashion-mnist", "mnist")


def _data(config: ClassesConfig, source: Source) -> Split:
    return split_classes(config.dataset, source.files.root or "", config.validation, config.points)


def _model(config: ClassesConfig, inputs: int) -> nn.Module:
    return ResNet20(inputs, CLASSES[config.dataset], config.width, bfloat16=config.bfloat16)


_DECAY = (0.0001,)

PAPER = ClassesConfig(
    methods=("x-ent", "uniloss-accuracy"), **same_grids(0.1, decay=_DECAY), dataset="cifar10", epochs=200,
    drops=(140, 160), batch_size=128, optimizer="sgd", momentum=0.9, seeds=3, select_on="val", train_measured=5_000,
)  # fmt: skip

SMALL = PAPER.but(
    methods=("x-ent", "uniloss-accuracy", "direct-accuracy"),
    **{**same_grids(0.2, decay=_DECAY), "uniloss": Grid((0.5,), _DECAY)}, epochs=15, drops=(), one_cycle=True,
    train_measured=2_000, bfloat16=True, seeds=2,
)  # fmt: skip

QUICK = SMALL.but(points=1_000, validation=500, width=4, epochs=2, train_measured=200)

METRICS = ("test_accuracy", "val_accuracy", "train_accuracy")


def _description(title: str, question: str, dataset: str, ours: float, theirs: float) -> report.Description:
    """``ours`` and ``theirs`` are the accuracies of UniLoss and of cross-entropy in the paper."""
    return report.Description(
        title=title,
        question=question,
        paper=(
            f"{report.UNI}, Sec. 4.4, Table 2: accuracy on {dataset} {ours:.2f} (UniLoss), {theirs:.2f} (cross-entropy)"
        ),
        metrics=METRICS,
        figures=(
            report.Figure("epochs", "accuracy", "UniLoss, Fig. 2"),
            report.Figure("methods", "test_accuracy", "UniLoss, Table 2"),
        ),
        claims=(
            report.alike(
                "UniLoss and cross-entropy perform alike.",
                "Sec. 4.4, Table 2",
                report.Comparison("uniloss-accuracy", "x-ent", round(ours - theirs, 2)),
                within=1.0,
                metric="test_accuracy",
            ),
        ),
        reference=report.Reference(
            f"Paper, Table 2: {dataset}",
            {"uniloss-accuracy": (ours,), "x-ent": (theirs,)},
            dataset=dataset.lower().replace("-", ""),
        ),
    )


_TEN = _description(
    "Ten classes of images",
    "A ResNet-20 classifies images. Does UniLoss on accuracy match cross-entropy, the usual loss?",
    "CIFAR-10",
    91.64,
    91.49,
)
_LOWER_IN_TRAINING = report.lower_in_training("x-ent", "uniloss-accuracy", "train_accuracy")

CIFAR10 = Experiment(
    name="cifar10",
    summary="Ten classes of images: accuracy by UniLoss and cross-entropy",
    paper="UniLoss, Sec. 4.4, Tables 2 and 3, Fig. 2",
    presets={"quick": QUICK, "small": SMALL, "paper": PAPER},
    data=_data,
    model=_model,
    check_data=lambda config, root: identify(config.dataset, root),
    recognise=recognise,
    description=dataclasses.replace(_TEN, claims=(*_TEN.claims, _LOWER_IN_TRAINING)),
    metric="accuracy",
    augment=crop_and_flip,
)

_HUNDRED: dict[str, Any] = {"dataset": "cifar100", "fraction": 0.2}

CIFAR100 = dataclasses.replace(
    CIFAR10,
    name="cifar100",
    summary="A hundred classes, a fifth of the comparisons in each step",
    paper="UniLoss, Sec. 4.4 and Table 2",
    presets={
        "quick": QUICK.but(**_HUNDRED, stretch=2),
        "small": SMALL.but(
            **_HUNDRED, methods=("x-ent", "uniloss-accuracy", "uniloss-accuracy:all", "direct-accuracy")
        ),
        "paper": PAPER.but(**_HUNDRED, stretch=5),
    },
    description=_description(
        "A hundred classes of images",
        "The same with a fifth of the comparisons in each step of UniLoss. The paper trains it five times as long.",
        "CIFAR-100",
        65.92,
        65.90,
    ),
)
