"""``mnist-ap``: zeros among other digits, judged by AP. UniLoss (ECCV 2020), Sec. 4.2 and Table 4.

The paper: MNIST, zero against non-zero; 6,000 training images for validation; two hidden layers of 500 and 300 units;
SGD with a fixed learning rate of 0.01 for 30 epochs; 16 anchors of each type; cross-entropy with two outputs as
baseline. AP 0.9988 (UniLoss) and 0.9989 (cross-entropy).

What the paper leaves open, and what we chose:

- Changed: anchors of UniLoss lie in score space, where each is the configuration of some scores. The paper flips bits
  directly: this is ``uniloss-ap:bits``, compared in ``ablation-ap``.
- Batches of 128, as for CIFAR; momentum 0.9; no weight decay; pixels from 0 to 1.
- AP is measured on the 10,000 test images after the last epoch. The validation images are the same for all seeds.
- All methods train the network with two outputs. Its score is their difference, of which the cross-entropy of two
  classes is a function.
- Direct loss is ours: the library's default (direct-ap) and the positive update without noise (pos-ap), with the same
  learning rate and the automatic epsilon. One setting, like every other method.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from directloss_repro.config import EpochConfig, same_grids
from directloss_repro.data import Split
from directloss_repro.data.labelled_images import identify, recognise, zeros_against_rest
from directloss_repro.experiments.base import Experiment, Source
from directloss_repro.fields import Count
from directloss_repro.models import Scorer
from directloss_repro.reports import description as report


class MnistConfig(EpochConfig):
    """Zeros against other digits."""

    validation: Count = 6_000

    datasets: ClassVar[tuple[str, ...]] = ("mnist", "fashion-mnist")
    has_noise: ClassVar[bool] = True


def _data(config: MnistConfig, source: Source) -> Split:
    return zeros_against_rest(config.dataset, source.files.root or "", config.validation, config.points)


def _model(config: MnistConfig, inputs: int) -> nn.Module:
    return Scorer(inputs, config.hidden, outputs=2)


PAPER = MnistConfig(
    methods=("x-ent", "uniloss-ap", "direct-ap", "pos-ap"), **same_grids(0.01), dataset="mnist", epochs=30,
    batch_size=128, optimizer="sgd", momentum=0.9, seeds=5, hidden=(500, 300), select_on="val", train_measured=10_000,
)  # fmt: skip

QUICK = PAPER.but(epochs=3, points=6_000, train_measured=2_000, seeds=2)

MNIST_AP = Experiment(
    name="mnist-ap",
    summary="Zeros among other digits: UniLoss, direct loss and cross-entropy",
    paper="UniLoss, Sec. 4.2 and Table 4",
    presets={"quick": QUICK, "paper": PAPER},
    data=_data,
    model=_model,
    check_data=lambda config, root: identify(config.dataset, root),
    recognise=recognise,
    description=report.Description(
        title="Zeros among other digits",
        question=(
            "One digit in ten is a zero; a network of two hidden layers ranks the images. "
            "Does training on average precision itself, by UniLoss or by direct loss, reach what cross-entropy reaches?"
        ),
        paper=f"{report.UNI}, Sec. 4.2: AP 0.9988 (UniLoss), 0.9989 (cross-entropy)",
        metrics=("test_ap", "val_ap", "train_ap", "test_accuracy"),
        figures=(report.Figure("epochs", "ap"), report.Figure("curve", "test_ap"), report.Figure("methods", "test_ap")),
        claims=(
            report.alike(
                "UniLoss and cross-entropy perform alike.",
                "Sec. 4.2",
                report.Comparison("uniloss-ap", "x-ent", -0.01),
                within=0.5,
            ),
        ),
        reference=report.Reference(
            "Paper, Sec. 4.2: MNIST", {"uniloss-ap": (99.88,), "x-ent": (99.89,)}, dataset="mnist"
        ),
    ),
)
