"""Overlap, suppression and VOC's AP against their slow twins, and against answers worked out by hand."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from directloss_repro.detection.average_precision import Detection, voc_ap
from directloss_repro.detection.boxes import Truth, as_boxes, draw_sample, label_boxes, nms, overlaps

from directloss import DirectLossError
from tests.repro.detection.slow import Guess, Real, Square, area_ap, eleven_point_ap, iou, suppress

RULES = {"area": area_ap, "11-point": eleven_point_ap}


def square(draw: random.Random, most: int = 12) -> Square:
    left, top = draw.randrange(most), draw.randrange(most)
    return left, top, left + draw.randrange(1, most), top + draw.randrange(1, most)


def near(draw: random.Random, box: Square) -> Square:
    left, top, right, bottom = (edge + draw.choice([-1, 0, 0, 1]) for edge in box)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def case(seed: int) -> tuple[list[Guess], list[Real]]:
    """Guesses near objects, duplicates, guesses in the void and in images without objects, and equal scores."""
    draw = random.Random(seed)
    images = "abcd"[: draw.randrange(1, 5)]
    real = [Real(draw.choice(images), square(draw), draw.random() < 0.3) for _ in range(draw.randrange(1, 8))]
    real.append(Real("a", square(draw), False))
    boxes = [(thing.image, near(draw, thing.box)) for thing in real for _ in range(draw.randrange(3))]
    boxes += [(draw.choice("abcdz"), square(draw)) for _ in range(draw.randrange(6))]
    draw.shuffle(boxes)
    return [Guess(image, box, draw.choice([0.1, 0.5, draw.random()])) for image, box in boxes], real


def detections(guesses: list[Guess]) -> list[Detection]:
    return [Detection(*guess) for guess in guesses]


def truths(real: list[Real]) -> dict[str, Truth]:
    images = {thing.image for thing in real} | {"empty"}
    mine = {image: [thing for thing in real if thing.image == image] for image in images}
    return {
        image: Truth(as_boxes([thing.box for thing in things]), np.array([thing.difficult for thing in things], bool))
        for image, things in mine.items()
    }


@pytest.mark.parametrize("rule", RULES)
def test_ap_equals_its_slow_twin(rule: str) -> None:
    values = set()
    for seed in range(400):
        guesses, real = case(seed)
        value = voc_ap(detections(guesses), truths(real), rule)
        assert value == pytest.approx(RULES[rule](guesses, real), abs=1e-12), seed
        values.add(round(value, 3))
    assert len(values) > 40


BOX, FAR = (0, 0, 10, 10), (50, 50, 60, 60)


@pytest.mark.parametrize(
    ("guesses", "real", "area", "eleven"),
    [
        ([], [Real("a", BOX, False)], 0, 0),
        ([Guess("a", BOX, 1)], [Real("a", BOX, False)], 1, 1),
        ([Guess("b", BOX, 1)], [Real("a", BOX, False)], 0, 0),
        # A second detection of the same object is wrong: precision at the end 2/3.
        ([Guess("a", BOX, 3), Guess("a", BOX, 2), Guess("a", FAR, 1)],
         [Real("a", BOX, False), Real("a", FAR, False)], 1 / 2 + 1 / 2 * 2 / 3, (6 + 5 * 2 / 3) / 11),
        # Detections of a difficult object do not count, and it need not be found.
        ([Guess("a", FAR, 3), Guess("a", FAR, 2), Guess("a", BOX, 1)],
         [Real("a", BOX, False), Real("a", FAR, True)], 1, 1),
        # Overlap of exactly one half is enough.
        ([Guess("a", (0, 0, 10, 5), 1)], [Real("a", BOX, False)], 1, 1),
        ([Guess("a", (0, 0, 10, 4), 1)], [Real("a", BOX, False)], 0, 0),
        # Three of ten found: recall 0.3 is reached, so four of the eleven points are.
        ([Guess(str(k), BOX, 1) for k in range(3)], [Real(str(k), BOX, False) for k in range(10)], 0.3, 4 / 11),
    ],
)  # fmt: skip
def test_ap_by_hand(guesses: list[Guess], real: list[Real], area: float, eleven: float) -> None:
    assert voc_ap(detections(guesses), truths(real)) == pytest.approx(area)
    assert voc_ap(detections(guesses), truths(real), "11-point") == pytest.approx(eleven)


def test_ap_that_is_not_defined() -> None:
    with pytest.raises(DirectLossError, match="at least one object that is not difficult"):
        voc_ap([], truths([Real("a", BOX, True)]))
    with pytest.raises(DirectLossError, match="rule must be one of 'area', '11-point'"):
        voc_ap([], truths([Real("a", BOX, False)]), "12-point")
    with pytest.raises(DirectLossError, match="scores must be finite"):
        voc_ap(detections([Guess("a", BOX, float("nan"))]), truths([Real("a", BOX, False)]))


def test_overlaps_count_pixels() -> None:
    draw = random.Random(0)
    first, second = [square(draw) for _ in range(30)], [square(draw) for _ in range(20)]
    slow = [[float(iou(a, b)) for b in second] for a in first]
    np.testing.assert_allclose(overlaps(as_boxes(first), as_boxes(second)), slow)
    assert overlaps(as_boxes([]), as_boxes(second)).shape == (0, 20)
    assert overlaps(as_boxes([[1, 1, 1, 1]]), as_boxes([[1, 1, 1, 1]])) == 0


def test_suppression_equals_its_slow_twin() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        boxes, scores = [square(draw) for _ in range(25)], [draw.choice([0.5, draw.random()]) for _ in range(25)]
        assert nms(as_boxes(boxes), np.array(scores), 0.3).tolist() == suppress(boxes, scores, Fraction(3, 10))
    assert nms(as_boxes([]), np.array([])).tolist() == []


def test_labels_by_overlap() -> None:
    boxes = as_boxes([BOX, (0, 0, 10, 5), (0, 0, 10, 4.9), (0, 0, 10, 3.5), (0, 0, 10, 2), FAR])
    plain = Truth(as_boxes([BOX]), np.array([False]))
    assert label_boxes(boxes, plain).tolist() == [1, 1, 0, 0, 0, 0]
    hard = Truth(as_boxes([BOX]), np.array([True]))
    assert label_boxes(boxes, hard).tolist() == [-1, -1, 0, 0, 0, 0]
    both = Truth(as_boxes([BOX, FAR]), np.array([True, False]))
    assert label_boxes(boxes, both).tolist() == [-1, -1, 0, 0, 0, 1]
    assert label_boxes(boxes, Truth(as_boxes([]), np.array([], bool))).tolist() == [0] * 6


def test_sample_has_all_positives_and_so_many_negatives() -> None:
    labels = torch.tensor([1, 0, 0, 0, -1] + [0] * 20 + [1, -1])
    places, target = draw_sample(labels, 3, 1000, "seed")
    assert (len(target), int(target.sum())) == (8, 2)
    assert torch.equal(labels[places], target)
    assert torch.equal(draw_sample(labels, 3, 1000, "seed")[0], places)
    assert len(draw_sample(labels, 3, 4, "seed")[0]) == 4
    with pytest.raises(DirectLossError, match="0 positives and 2 negatives"):
        draw_sample(torch.tensor([0, 0, -1]), 3, 100, "seed")
