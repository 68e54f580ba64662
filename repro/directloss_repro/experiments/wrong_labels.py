"""``wrong-labels``: a linear scorer learns to rank digits with some labels wrong. This is the demonstration.

A linear scorer cannot memorise wrong labels, but with cross-entropy each of them still affects the whole scorer. The
library's default, which trains on the metric, ranks better both with and without wrong labels. For a case where our
losses do not win, a network on two shells, see `robustness`.

The data are the digits of scikit-learn, in thirds, as in `digits-noise`. Labels are flipped in the training and in the
validation third; the test third is clean. Settings are chosen on the validation third, six for each method.
"""

from __future__ import annotations

from directloss_repro.config import Grid
from directloss_repro.experiments.base import Experiment
from directloss_repro.experiments.digits_noise import DIGITS_NOISE, PAPER
from directloss_repro.reports import description as report

ALL = PAPER.but(
    methods=("direct-ap", "hinge-ap", "x-ent"), noise=(0.0, 0.1, 0.2, 0.3, 0.4), hidden=(),
    direct=Grid((0.01,), (0.0, 0.01), (1.0, 10.0, "auto")), hinge=Grid((0.01,), (0.0, 0.01), (1.0, 10.0, 100.0)),
    plain=Grid((0.003, 0.01), (0.0, 0.003, 0.01)),
)  # fmt: skip
QUICK = ALL.but(noise=(0.0, 0.2, 0.4), classes=("1", "8", "9"), seeds=5)

WRONG_LABELS = Experiment(
    name="wrong-labels",
    summary="A linear scorer and wrong labels: the library's default against hinge-ap and cross-entropy",
    paper="ours; the data of digits-noise",
    presets={"quick": QUICK, "paper": ALL},
    data=DIGITS_NOISE.data,
    description=report.Description(
        title="Ranking with wrong labels",
        question=(
            "A linear scorer ranks the images of one digit above all others, and a share of its training labels is "
            "wrong. Which loss keeps its average precision on clean test data?"
        ),
        metrics=("test_ap",),
        figures=report.over_noise("direct-ap"),
        claims=(
            report.Claim(
                "With wrong labels, the library's default ranks better than cross-entropy and than the hinge loss.",
                report.OURS,
                report.against("direct-ap", "x-ent", "hinge-ap"),
                place="noisy",
            ),
            report.Claim(
                "With right labels, too, it ranks better than cross-entropy.",
                report.OURS,
                report.against("direct-ap", "x-ent"),
                place="clean",
            ),
        ),
    ),
)
