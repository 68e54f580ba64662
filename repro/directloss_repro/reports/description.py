"""What an experiment declares for its report: the question, the figures, the paper's claims and the paper's numbers.

All numbers are in per cent and all differences in points, as the papers print them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAIN = "Song et al., Training Deep Neural Networks via Direct Loss Minimization (ICML 2016)"
EARLY = "Song et al., Direct Loss Minimization for Training Deep Neural Nets (2015)"
SUPPLEMENT = "Song et al. (ICML 2016), supplementary material"
UNI = "Liu, Wang, Deng, UniLoss: Unified Surrogate Loss by Adaptive Interpolation (ECCV 2020)"

OURS = "not in the paper"
"""The source of our own claims."""
LARGE = 2.0
"""Our reading of "by a large margin", "much" and "not competitive": at least 2 points."""


@dataclass(frozen=True)
class Comparison:
    """``first`` against ``second``; ``paper`` is the paper's own difference, if it prints numbers."""

    first: str
    second: str
    paper: float | None = None


@dataclass(frozen=True)
class Claim:
    """One statement of a paper and the rule that judges it.

    It holds for a comparison when the interval lies above ``above`` (and below ``under``, if given), and fails when
    the interval lies below ``fails_below`` (or above ``under``). ``place`` is where two methods are compared: "all"
    (mean over all noise levels), "clean", "noisy" (mean over the levels with noise), or "growth" (the difference under
    noise minus the difference without).
    """

    says: str
    source: str
    comparisons: tuple[Comparison, ...]
    above: float = 0.0
    fails_below: float = 0.5
    """Above ``above``; otherwise two equal methods would stay undecided with any number of seeds."""
    under: float | None = None
    place: str = "all"
    metric: str = "test_ap"
    reading: str = ""

    @property
    def methods(self) -> set[str]:
        """The methods that it compares."""
        return {method for pair in self.comparisons for method in (pair.first, pair.second)}


def against(first: str, *others: str) -> tuple[Comparison, ...]:
    """``first`` against each of the others."""
    return tuple(Comparison(first, other) for other in others)


def leads(
    says: str, source: str, pairs: tuple[Comparison, ...], reading: str, by: float = LARGE, **where: str
) -> Claim:
    """The claim that the first of each pair is ahead by more than ``by`` points."""
    return Claim(says, source, pairs, by, by, None, reading=reading, **where)


def alike(says: str, source: str, *pairs: Comparison, within: float, **where: str) -> Claim:
    """The claim that the methods of each pair differ by less than ``within`` points."""
    reading = f"We ask that they differ by less than {within:g} points."
    return Claim(says, source, pairs, -within, -within, within, reading=reading, **where)


def lower_in_training(usual: str, ours: str, metric: str) -> Claim:
    """The UniLoss paper's claim about training results."""
    return Claim(
        "The training result of UniLoss is a little lower over the whole training.",
        "Appendix B, Fig. 2 and 3",
        against(usual, ours),
        metric=metric,
        reading="Measured at the end of training, as the lead of the conventional loss.",
    )


@dataclass(frozen=True)
class Figure:
    """One panel. ``kind`` is "curve" (over iterations), "noise" (over label noise), "methods" (one row per
    method), "lead" (of the method ``first``, over label noise), "epochs" (training and validation over epochs; the
    metric without the name of a part), "sizes" (over the number of the option ``first`` of methods) or "frames"
    (keypoints on test images; the method ``first`` and its best rival).
    """

    kind: str
    metric: str = "test_ap"
    paper: str = ""
    first: str = ""
    printed: Mapping[int, float] = field(default_factory=dict)
    """For "sizes": the paper's numbers."""


def over_noise(first: str, paper: str = "") -> tuple[Figure, Figure]:
    """AP over label noise, and the lead of a method."""
    return Figure("noise", "test_ap", paper), Figure("lead", "test_ap", first=first)


def rows(table: str) -> dict[str, list[float]]:
    """A table of a paper, as row name -> numbers, as printed."""
    lines = (line.split() for line in table.strip().splitlines())
    return {name: [float(word) for word in numbers] for name, *numbers in lines}


Numbers = Mapping[str, tuple[float | None, ...]]
"""Method -> a number for each noise level; None if the paper prints none."""


@dataclass(frozen=True)
class Reference:
    """Numbers that the paper prints."""

    title: str
    means: Numbers
    noises: tuple[float, ...] = (0.0,)
    classes: Mapping[str, Numbers] = field(default_factory=dict)
    """The numbers of each class."""
    dataset: str = ""
    """The config's ``dataset`` in a run on the paper's own data."""


@dataclass(frozen=True)
class Description:
    """The declarative part of an experiment's report."""

    title: str
    question: str = ""
    paper: str = ""
    metrics: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()
    reference: Reference | None = None
