"""``digits-noise``: the form of ICML 2016, Table 1, on handwritten digits.

The paper's table: ten classes of PASCAL VOC actions, each ranked against the rest, five noise levels, cross-entropy,
hinge-AP and pos-AP; the data in equal thirds for training, validation and test; learning rate, regularisation weight
and epsilon chosen on the validation third; the whole training third as one batch; 300 iterations; AP of each class.

Here the classes are the ten digits of scikit-learn, 1,797 images of 8 x 8: the same protocol on data that everybody
has. ``voc-action`` uses the paper's own data.

- Labels are flipped in the training and in the validation third; the test third is clean. (The caption of Table 1
  speaks of noise in the test data, its text of flipping labels at random.)
- The share is of all labels. With one positive in ten, 10 % noise makes about half of the positive labels wrong.
- A perceptron with one hidden layer of 64 units instead of AlexNet. Adam, as in `robustness`.
- Settings are chosen for each class, noise level and method, as in the paper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from directloss_repro.config import Config, Grid
from directloss_repro.data import Split, thirds
from directloss_repro.experiments import voc_action
from directloss_repro.experiments.base import Experiment, Source
from directloss_repro.reports import description as report


class DigitsConfig(Config):
    """Ten digits. The two fixed settings are part of the keys of stored records."""

    images: Literal["digits"] = "digits"
    points: Literal[6_000] = 6_000

    known_classes: ClassVar[tuple[str, ...]] = tuple("0123456789")


@lru_cache(maxsize=1)
def small_digits() -> tuple[Tensor, Tensor]:
    """The 1,797 digits of 8 x 8 pixels of scikit-learn: inputs ``(n, 64)`` from 0 to 1, classes ``(n,)``."""
    from sklearn.datasets import load_digits  # imported here: worker processes of other experiments do not need it

    data = load_digits()
    return torch.from_numpy(data.data).float() / 16.0, torch.from_numpy(data.target).long()


def _data(config: DigitsConfig, source: Source) -> Split:
    x, digits = small_digits()
    return thirds(x, (digits == int(source.group or 0)).long(), "digits", source.seed)


PAPER = DigitsConfig(
    methods=("x-ent", "hinge-ap", "pos-ap"), noise=(0.0, 0.1, 0.2, 0.3, 0.4), classes=DigitsConfig.known_classes,
    select_on="val", direct=Grid((0.003, 0.01), (0.0, 0.003, 0.03), (1.0, 10.0, "auto")),
    hinge=Grid((0.003, 0.01), (0.0, 0.003, 0.03), (1.0, 10.0, 100.0)),
    plain=Grid((0.001, 0.003, 0.01), (0.0, 0.001, 0.003, 0.01, 0.02, 0.03)), iterations=300, evaluate_every=20,
    seeds=10, search_seeds=1, hidden=(64,),
)  # fmt: skip

QUICK = PAPER.but(
    noise=(0.0, 0.2, 0.4), classes=("3", "8"), direct=Grid((0.01,), (0.0, 0.01), (1.0, 10.0, "auto")),
    hinge=Grid((0.01,), (0.0, 0.01), (1.0, 10.0, 100.0)), plain=Grid((0.003, 0.01), (0.0, 0.003, 0.01)), seeds=3,
)  # fmt: skip

DIGITS_NOISE = Experiment(
    name="digits-noise",
    summary="Each digit against the rest under label noise",
    paper="the form of ICML 2016, Table 1 and Fig. 4",
    presets={"quick": QUICK, "paper": PAPER},
    data=_data,
    description=report.Description(
        title="Ten classes under label noise",
        question=(
            "One detector for each digit, with a growing share of the training labels flipped: "
            "the protocol of the paper's action classification, on data that everybody has."
        ),
        paper=f"{report.MAIN}, Sec. 4.2, Table 1 and Fig. 4",
        metrics=("test_ap",),
        figures=report.over_noise("pos-ap", "ICML 2016, Fig. 4"),
        claims=voc_action.CLAIMS,
        reference=report.Reference(
            "Paper, Table 1: mean over 10 action classes of PASCAL VOC 2012", voc_action.MEANS, voc_action.NOISES
        ),
    ),
)
