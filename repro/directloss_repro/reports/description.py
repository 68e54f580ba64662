"""What a report says of an experiment: its question, its figures, the paper's claims and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from directloss_repro.reports.claims import Claim

MAIN = "Song et al., Training Deep Neural Networks via Direct Loss Minimization (ICML 2016)"
UNI = "Liu, Wang, Deng, UniLoss: Unified Surrogate Loss by Adaptive Interpolation (ECCV 2020)"
EARLY = "Song et al., Direct Loss Minimization for Training Deep Neural Nets (2015)"

LARGE = 0.02
"""Our reading of "by a large margin", "much" and "not competitive": at least 2 points of AP."""


@dataclass(frozen=True)
class Figure:
    """One panel. ``kind`` is "curve" (over iterations), "noise" (over label noise), "methods" (one row for each
    method) or "lead" (difference of the first method to the others, over label noise).

    Of UniLoss's experiments: "epochs" (training and validation over epochs; the metric without the name of a part),
    "sizes" (over the number of an option of methods, which is ``first``) or "frames" (keypoints on test images; the
    method ``first`` and its best rival).
    """

    kind: str
    metric: str = "test_ap"
    paper: str = ""
    first: str = ""
    printed: tuple[tuple[float, float], ...] = ()
    """For "sizes": the paper's numbers."""


@dataclass(frozen=True)
class Reference:
    """Numbers that the paper prints: method -> one for each noise level, None where it prints none."""

    title: str
    noises: tuple[float, ...]
    means: Mapping[str, tuple[float | None, ...]]
    classes: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(default_factory=dict)
    """The same for each class."""
    dataset: str = ""
    """What the config of a run on the paper's own data has as ``dataset``."""


@dataclass(frozen=True)
class Description:
    """The declarative part of an experiment's report."""

    title: str
    question: str
    paper: str = ""
    metrics: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()
    reference: Reference | None = None
