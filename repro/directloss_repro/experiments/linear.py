"""``linear`` and ``linear-noisy``: a linear scorer, separable data and 20 % flipped labels.

ICML 2016 supplement, Sec. 3, Fig. 1; 2015 version, Sec. 5.3, Fig. 4 and 5. The paper: 20,000 points of a 10-dimensional
standard normal, positive where the coordinates sum to more than 0; 10,000 train, 10,000 test; for the second data set
20 % of the labels are flipped; the scorer is w . x.

What the paper leaves open, and what we chose:

- The paper flips labels of the whole data set, so here the exact share is flipped in training **and** test labels.
  The best AP on the noisy data is therefore well below 1.
- w . x has no bias. It starts from PyTorch's default initialisation, new for each seed along with new points.
- Adam, full batch, 300 iterations (``paper``); grids on training AP, as in `synthetic`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from directloss_repro import PAPER_METHODS
from directloss_repro.data import Part, Split
from directloss_repro.experiments.base import Experiment, Source
from directloss_repro.experiments.synthetic import FEW, GRIDS, PointsConfig
from directloss_repro.models import Scorer
from directloss_repro.reports import description as report
from directloss_repro.seeding import generator


def half_space(points: int, dimensions: int, *seed: object) -> Part:
    """Standard normal points, positive where the sum of their coordinates is above 0."""
    x = torch.randn(points, dimensions, generator=generator("half-space", *seed))
    return Part(x, (x.sum(1) > 0).long())


def _data(config: PointsConfig, source: Source) -> Split:
    everything = half_space(config.points, config.dimensions, "linear", source.seed)
    index = torch.arange(config.points)  # the points are independent draws, so the first ones are a random half
    return Split(everything.take(index[: config.train_points]), everything.take(index[config.train_points :]))


def _model(config: PointsConfig, inputs: int) -> nn.Module:
    return Scorer(inputs, config.hidden, bias=bool(config.hidden))


PAPER = PointsConfig(
    methods=PAPER_METHODS, **GRIDS, iterations=300, evaluate_every=10, seeds=10, search_seeds=2, hidden=()
)
QUICK = PAPER.but(**FEW, iterations=100, evaluate_every=5)
_NOISY: dict[str, Any] = {"noise": (0.2,), "noisy_parts": ("train", "val", "test")}


def _description(title: str, question: str, paper: str, figure: int, *claims: report.Claim) -> report.Description:
    return report.Description(
        title=title,
        question=question,
        paper=f"{report.EARLY}, Sec. 5.3 and Fig. {figure}; {report.SUPPLEMENT}, Sec. 3 and {paper}",
        metrics=("test_ap", "test_accuracy"),
        figures=(
            report.Figure("curve", "test_ap", f"2015 version, Fig. {figure}a"),
            report.Figure("curve", "test_accuracy", f"2015 version, Fig. {figure}b"),
            report.Figure("methods", "test_ap"),
        ),
        claims=claims,
    )


LINEAR = Experiment(
    name="linear",
    summary="A linear scorer on linearly separable data, nine losses",
    paper="ICML 2016 supplement, Fig. 1a; 2015 version, Fig. 4",
    presets={"quick": QUICK, "paper": PAPER},
    data=_data,
    model=_model,
    description=_description(
        "Linear scorer on separable data",
        "Labels are the sign of a sum, the scorer is linear: do the negative update and the perceptron do well?",
        "Fig. 1a",
        4,
        report.Claim(
            "Without noise, the negative update is slightly better than the positive one.",
            "Supplement, Sec. 3",
            report.against("neg-ap", "pos-ap"),
            fails_below=0.1,
            reading="AP is close to 100 here, so a lead of 0.1 points already counts.",
        ),
        report.leads(
            "The perceptron also performs well.",
            "Supplement, Sec. 3",
            report.against("per-ap", "pos-ap"),
            "We ask that per-ap is less than 2 points behind pos-ap.",
            by=-report.LARGE,
        ),
    ),
)

LINEAR_NOISY = dataclasses.replace(
    LINEAR,
    name="linear-noisy",
    summary="The same with 20 % of all labels flipped",
    paper="ICML 2016 supplement, Fig. 1b; 2015 version, Fig. 5",
    presets={"quick": QUICK.but(**_NOISY), "paper": PAPER.but(**_NOISY)},
    description=_description(
        "Linear scorer, 20 % of the labels flipped",
        "The same linear problem, one label in five flipped: do the negative update and the perceptron suffer?",
        "Fig. 1b",
        5,
        report.alike(
            "With noise, the negative update and the perceptron perform alike.",
            "Supplement, Sec. 3",
            report.Comparison("neg-ap", "per-ap"),
            within=report.LARGE,
        ),
        report.Claim(
            "The negative update and the perceptron are more vulnerable to noisy labels than the positive update.",
            "ICML 2016, Sec. 4.1",
            report.against("pos-ap", "neg-ap", "per-ap"),
        ),
    ),
)
