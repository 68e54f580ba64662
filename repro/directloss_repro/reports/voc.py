"""The experiments on PASCAL VOC: the papers' Tables 1 and 2, number by number, and what they claim."""

from __future__ import annotations

from directloss_repro.reports.claims import Claim, Comparison
from directloss_repro.reports.description import EARLY, LARGE, MAIN, Description, Figure, Reference

ACTION_NOISES = (0.0, 0.1, 0.2, 0.3, 0.4)

# For each noise level, from the left to the right of Table 1: x-ent, hinge-AP, pos-AP. In per cent, as printed.
_ACTIONS = """
jumping           76.6 77.0 77.3 68.7 64.0 74.0 51.6 44.9 65.1 42.3 42.4 36.3 22.8 27.2 52.0
phoning           45.4 46.2 44.8 36.3 31.2 39.2 25.7 22.1 35.4 11.8 10.8 15.4  9.5 10.2 16.8
playinginstrument 72.6 74.0 74.0 67.9 67.6 71.4 60.6 57.3 69.9 38.3 40.0 62.8 25.1 15.9 60.6
reading           50.3 50.6 50.6 40.1 36.8 43.4 27.0 22.1 40.1 17.9 15.9 17.3 13.8 15.8  9.6
ridingbike        92.3 92.9 93.1 84.9 88.2 90.1 72.9 73.3 88.2 54.1 40.6 79.3 32.9 18.3 22.3
ridinghorse       89.1 92.0 92.4 78.4 82.8 84.9 70.2 77.8 79.4 45.7 48.0 69.7 25.1 28.4 53.2
running           82.3 84.0 84.8 77.9 76.9 76.2 64.6 57.3 75.8 40.5 44.0 71.3 17.7  9.3 29.8
takingphoto       41.2 45.8 43.2 33.0 40.7 33.0 19.0 21.7 22.4 15.9 12.1 19.5 11.0 11.3  8.4
usingcomputer     68.7 68.3 66.5 57.6 59.3 60.2 42.3 45.1 56.0 21.7 21.5 41.4 13.2 15.1 11.1
walking           61.3 68.0 68.2 51.9 53.3 52.2 39.0 35.1 46.1 29.1 24.6 46.3 11.2 16.2 32.6
mean              68.0 69.9 69.5 59.7 60.1 62.5 47.3 45.7 57.8 31.7 30.0 45.9 18.2 16.8 29.6
"""

# Table 2, a row for each class: x-ent, hinge-AP, pos-AP without noise; pos-AP with 20 %. There hinge-AP is 0.0 for all
# classes and cross-entropy is not given.
_OBJECTS = """
aeroplane   63.8 67.5 65.1 52.8
bicycle     61.0 60.6 59.8 54.0
bird        42.6 43.6 43.7 33.6
boat        30.7 30.8 31.4 20.9
bottle      23.5 25.3 27.7 20.0
bus         63.2 64.5 64.6 50.6
car         51.7 54.9 53.1 45.9
cat         58.5 64.4 63.7 55.7
chair       20.1 21.9 25.6 23.1
cow         37.0 34.5 40.2 26.4
diningtable 32.0 34.2 36.2 35.2
dog         52.8 57.0 58.1 47.2
horse       50.8 48.8 52.8 39.7
motorbike   62.5 63.9 63.6 54.2
person      50.1 56.3 56.2 53.3
pottedplant 23.5 25.1 28.1 22.5
sheep       48.3 49.6 50.0 42.6
sofa        33.1 37.4 38.9 32.5
train       48.5 54.3 50.0 40.5
tvmonitor   57.4 57.3 61.3 55.0
mean        45.6 47.6 48.5 40.3
"""

Numbers = dict[str, tuple[float | None, ...]]


def _rows(table: str) -> dict[str, list[float]]:
    words = [line.split() for line in table.split("\n") if line]
    return {row[0]: [round(float(word) / 100, 4) for word in row[1:]] for row in words}


def _action(row: list[float]) -> Numbers:
    return {method: tuple(row[place::3]) for place, method in enumerate(("x-ent", "hinge-ap", "pos-ap"))}


def _object(row: list[float]) -> Numbers:
    return {"x-ent": (row[0], None), "hinge-ap": (row[1], 0.0), "pos-ap": (row[2], row[3])}


ACTIONS = {name: _action(row) for name, row in _rows(_ACTIONS).items()}
OBJECTS = {name: _object(row) for name, row in _rows(_OBJECTS).items()}
ACTION_MEANS = ACTIONS.pop("mean")
OBJECT_MEANS = OBJECTS.pop("mean")


def action_gap(first: str, second: str, noisy: bool) -> float:
    """How far ``first`` is ahead in Table 1: the mean over the noisy levels, or without noise."""
    gaps = [(a or 0.0) - (b or 0.0) for a, b in zip(ACTION_MEANS[first], ACTION_MEANS[second], strict=True)]
    return sum(gaps[1:]) / 4 if noisy else gaps[0]


ACTION_CLAIMS = (
    Claim(
        "Under label noise, direct loss works much better than the hinge loss.",
        "Sec. 4.2, Table 1",
        (Comparison("pos-ap", "hinge-ap", action_gap("pos-ap", "hinge-ap", True)),),
        above=LARGE,
        fails_below=LARGE,
        place="noisy",
        reading='We read "much better" as at least 2 points.',
    ),
    Claim(
        "Under label noise, direct loss works better than cross-entropy.",
        "Table 1",
        (Comparison("pos-ap", "x-ent", action_gap("pos-ap", "x-ent", True)),),
        place="noisy",
    ),
    Claim(
        "Without noise, direct loss and hinge loss perform alike.",
        "Sec. 4.2",
        (Comparison("pos-ap", "hinge-ap", action_gap("pos-ap", "hinge-ap", False)),),
        above=-LARGE,
        fails_below=-LARGE,
        under=LARGE,
        place="clean",
        reading="We ask that they differ by less than 2 points of AP.",
    ),
)
"""What Sec. 4.2 says about Table 1; judged on VOC's actions and on digits alike."""

VOC_ACTION = Description(
    title="Actions in photographs under label noise",
    question=(
        "A network for each class ranks photographs, with a growing share of the training labels flipped. "
        "Which loss keeps its average precision on clean test data?"
    ),
    paper=(
        f"{MAIN}, Sec. 4.2, Table 1 and Fig. 4; {EARLY}, Table 1: mean AP without noise 66.7 (direct loss), "
        "64.8 (cross-entropy), 63.6 (hinge)"
    ),
    metrics=("test_ap", "test_accuracy"),
    figures=(Figure("noise", "test_ap", "ICML 2016, Fig. 4"), Figure("lead", "test_ap", first="pos-ap")),
    claims=ACTION_CLAIMS,
    reference=Reference(
        "Paper, Table 1: ten action classes of PASCAL VOC 2012", ACTION_NOISES, ACTION_MEANS, ACTIONS, "voc"
    ),
)

VOC_DETECTION = Description(
    title="Objects in photographs",
    question=(
        "Selective search proposes boxes, a network for each class scores them, and the loss is the average precision "
        "of a minibatch. Which loss gives the best detections, with true labels and with a fifth of them flipped?"
    ),
    paper=(
        f"{MAIN}, Sec. 4.3 and Table 2; {EARLY}, Table 2, with the same rows of direct loss and cross-entropy, and "
        "47.0 for one softmax network for all classes"
    ),
    metrics=("test_ap", "test_ap_11_point"),
    figures=(Figure("noise", "test_ap"), Figure("lead", "test_ap", first="pos-ap")),
    claims=(
        Claim(
            "Direct loss beats the hinge loss and cross-entropy.",
            "Sec. 4.3, Table 2",
            (Comparison("pos-ap", "hinge-ap", 0.009), Comparison("pos-ap", "x-ent", 0.029)),
            place="clean",
        ),
        Claim(
            "With 20 % label noise, hinge-AP barely learns anything, and pos-AP loses little.",
            "Sec. 4.3, Table 2",
            (Comparison("pos-ap", "hinge-ap", 0.403),),
            above=0.1,
            fails_below=0.1,
            place="noisy",
            reading="We ask for a lead of at least 10 points of AP.",
        ),
    ),
    reference=Reference(
        "Paper, Table 2: twenty classes of PASCAL VOC 2012; cross-entropy with noise is not printed",
        (0.0, 0.2),
        OBJECT_MEANS,
        OBJECTS,
        "voc",
    ),
)
