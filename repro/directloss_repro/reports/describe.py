"""What each experiment shows, which figure or table of which paper it follows, and what the paper claims there.

To add an experiment to the reports, add a `Description`. An experiment without one gets tables and figures, but
no verdicts. Differences are fractions here (0.02 = 2 points of AP); the pages print points.
"""

from __future__ import annotations

from directloss_repro.reports.claims import Claim, Comparison, better
from directloss_repro.reports.description import EARLY, LARGE, MAIN, Reference
from directloss_repro.reports.description import Description as Description
from directloss_repro.reports.description import Figure as Figure
from directloss_repro.reports.uniloss import UNILOSS
from directloss_repro.reports.voc import ACTION_CLAIMS, ACTION_MEANS, ACTION_NOISES, VOC_ACTION, VOC_DETECTION

SUPPLEMENT = "Song et al. (ICML 2016), supplementary material"


def _beats(
    says: str, source: str, first: str, *others: str, by: float = 0.0, reading: str = "", place: str = "all"
) -> Claim:
    comparisons, above, fails_below = better(first, *others, by=by)
    return Claim(says, source, comparisons, above, fails_below, place=place, reading=reading)


_LARGE_TEXT = "The paper gives no number; we ask for at least 2 points."

SYNTHETIC = Description(
    title="Nine losses on synthetic ranking data",
    question=(
        "A random four-layer ReLU network ranks Gaussian points; the top 20 % are positive. "
        "Which loss trains a network of the same shape to the best average precision?"
    ),
    paper=f"{MAIN}, Sec. 4.1 and Fig. 3a; {EARLY}, Fig. 3",
    metrics=("test_ap", "test_accuracy", "train_ap"),
    figures=(
        Figure("curve", "test_ap", "ICML 2016, Fig. 3a"),
        Figure("curve", "test_accuracy", "2015 version, Fig. 3b"),
        Figure("methods", "test_ap"),
    ),
    claims=(
        _beats(
            "Positive direct loss on AP (pos-ap) beats every baseline by a large margin.",
            "Sec. 4.1",
            "pos-ap",
            "hinge-ap",
            "hinge-01",
            "per-ap",
            "per-01",
            "x-ent",
            by=LARGE,
            reading=_LARGE_TEXT,
        ),
        _beats(
            "The negative update (neg-ap) cannot compete when the model is not linear.",
            "Sec. 4.1",
            "pos-ap",
            "neg-ap",
            by=LARGE,
            reading="Measured as the lead of pos-ap; we ask for at least 2 points.",
        ),
        _beats(
            "The perceptron updates do badly, because they ignore the task loss.",
            "Sec. 4.1",
            "pos-ap",
            "per-ap",
            "per-01",
            by=LARGE,
            reading="Measured as the lead of pos-ap; we ask for at least 2 points.",
        ),
        _beats(
            "Direct loss on the 0-1 loss does not work well.",
            "Sec. 4.1",
            "pos-ap",
            "pos-01",
            "neg-01",
            by=LARGE,
            reading="Measured as the lead of pos-ap; we ask for at least 2 points.",
        ),
        _beats(
            "hinge-ap is slightly better than the methods built on the 0-1 loss.",
            "Sec. 4.1",
            "hinge-ap",
            "pos-01",
            "neg-01",
            "hinge-01",
            "per-01",
        ),
    ),
)

ROBUSTNESS = Description(
    title="Robustness to flipped labels",
    question=(
        "Points inside and outside a sphere, with a growing share of the training labels flipped. "
        "Which loss keeps its average precision on clean test data?"
    ),
    paper=f"{MAIN}, Sec. 4.1 and Fig. 3b",
    metrics=("test_ap", "test_accuracy"),
    figures=(
        Figure("noise", "test_ap", "ICML 2016, Fig. 3b"),
        Figure("lead", "test_ap", first="pos-ap"),
        Figure("noise", "test_accuracy"),
    ),
    claims=(
        _beats(
            "pos-ap is more robust to label noise than hinge-ap.",
            "Sec. 4.1, Fig. 3b",
            "pos-ap",
            "hinge-ap",
            place="noisy",
            reading="Measured as the difference of test AP, averaged over all levels with flipped labels.",
        ),
        _beats(
            "The hinge loss becomes a worse stand-in as labels get noisier.",
            "Sec. 4.1",
            "pos-ap",
            "hinge-ap",
            place="growth",
            reading="Measured as the lead of pos-ap under noise minus its lead without noise.",
        ),
    ),
)

LINEAR = Description(
    title="Linear scorer on separable data",
    question="Labels are the sign of a sum, the scorer is linear: do the negative update and the perceptron do well?",
    paper=f"{EARLY}, Sec. 5.3 and Fig. 4; {SUPPLEMENT}, Sec. 3 and Fig. 1a",
    metrics=("test_ap", "test_accuracy"),
    figures=(
        Figure("curve", "test_ap", "2015 version, Fig. 4a"),
        Figure("curve", "test_accuracy", "2015 version, Fig. 4b"),
        Figure("methods", "test_ap"),
    ),
    claims=(
        Claim(
            "Without noise, the negative update is slightly better than the positive one.",
            "Supplement, Sec. 3",
            (Comparison("neg-ap", "pos-ap"),),
            fails_below=0.001,
            reading="AP is close to 100 here, so a lead of 0.1 points already counts.",
        ),
        Claim(
            "The perceptron also performs well.",
            "Supplement, Sec. 3",
            (Comparison("per-ap", "pos-ap"),),
            above=-LARGE,
            fails_below=-LARGE,
            reading="We ask that per-ap is less than 2 points behind pos-ap.",
        ),
    ),
)

LINEAR_NOISY = Description(
    title="Linear scorer, 20 % of the labels flipped",
    question="The same linear problem, one label in five flipped: do the negative update and the perceptron suffer?",
    paper=f"{EARLY}, Sec. 5.3 and Fig. 5; {SUPPLEMENT}, Sec. 3 and Fig. 1b",
    metrics=("test_ap", "test_accuracy"),
    figures=(
        Figure("curve", "test_ap", "2015 version, Fig. 5a"),
        Figure("curve", "test_accuracy", "2015 version, Fig. 5b"),
        Figure("methods", "test_ap"),
    ),
    claims=(
        Claim(
            "With noise, the negative update and the perceptron perform alike.",
            "Supplement, Sec. 3",
            (Comparison("neg-ap", "per-ap"),),
            above=-LARGE,
            fails_below=-LARGE,
            under=LARGE,
            reading="We ask that they differ by less than 2 points of AP.",
        ),
        _beats(
            "The negative update and the perceptron are more vulnerable to noisy labels than the positive update.",
            "ICML 2016, Sec. 4.1",
            "pos-ap",
            "neg-ap",
            "per-ap",
        ),
    ),
)

DIGITS_NOISE = Description(
    title="Ten classes under label noise",
    question=(
        "One detector for each digit, with a growing share of the training labels flipped: "
        "the protocol of the paper's action classification, on data that everybody has."
    ),
    paper=f"{MAIN}, Sec. 4.2, Table 1 and Fig. 4",
    metrics=("test_ap",),
    figures=(Figure("noise", "test_ap", "ICML 2016, Fig. 4"), Figure("lead", "test_ap", first="pos-ap")),
    claims=ACTION_CLAIMS,
    reference=Reference("Paper, Table 1: mean over 10 action classes of PASCAL VOC 2012", ACTION_NOISES, ACTION_MEANS),
)


FIT = Description(
    title="Direct loss and its rivals on your data",
    question=(
        "One table, one metric: is a network that was trained on the metric itself better on rows that it has never "
        "seen? Every loss was tuned with the same number of trials on validation rows."
    ),
)

DESCRIPTIONS: dict[str, Description] = {
    "synthetic": SYNTHETIC,
    "robustness": ROBUSTNESS,
    "linear": LINEAR,
    "linear-noisy": LINEAR_NOISY,
    "digits-noise": DIGITS_NOISE,
    **UNILOSS,
    "voc-action": VOC_ACTION,
    "voc-detection": VOC_DETECTION,
}
"""The papers' experiments."""


def describe(experiment: str) -> Description:
    """The description of an experiment, or a plain one for an experiment without claims.

    Example:
        >>> describe("robustness").title
        'Robustness to flipped labels'
        >>> describe("my-own").title
        'my-own'
    """
    plain = Description(title=experiment, question="")
    return {**DESCRIPTIONS, "fit": FIT}.get(experiment, plain)
