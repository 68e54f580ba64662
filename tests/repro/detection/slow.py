"""Detection measured the slow way: boxes are sets of pixels, precision and recall are fractions, nothing is clever."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

Square = tuple[int, int, int, int]


class Guess(NamedTuple):
    image: str
    box: Square
    score: float


class Real(NamedTuple):
    image: str
    box: Square
    difficult: bool


def pixels(box: Square) -> set[tuple[int, int]]:
    left, top, right, bottom = box
    return {(x, y) for x in range(left, right) for y in range(top, bottom)}


def iou(first: Square, second: Square) -> Fraction:
    union = pixels(first) | pixels(second)
    return Fraction(len(pixels(first) & pixels(second)), len(union)) if union else Fraction(0)


def verdicts(guesses: list[Guess], real: list[Real], overlap: Fraction = Fraction(1, 2)) -> list[bool]:
    """True or False for each guess that counts, best first."""
    found: set[int] = set()
    result = []
    for guess in sorted(guesses, key=lambda guess: -guess.score):
        best, best_index = Fraction(-1), None
        for index, thing in enumerate(real):
            if thing.image == guess.image and iou(guess.box, thing.box) > best:
                best, best_index = iou(guess.box, thing.box), index
        if best_index is None or best < overlap:
            result.append(False)
        elif real[best_index].difficult:
            continue
        else:
            result.append(best_index not in found)
            found.add(best_index)
    return result


def curve(guesses: list[Guess], real: list[Real]) -> list[tuple[Fraction, Fraction]]:
    """Recall and precision after each guess."""
    objects = sum(not thing.difficult for thing in real)
    answers = verdicts(guesses, real)
    return [(Fraction(sum(answers[:k]), objects), Fraction(sum(answers[:k]), k)) for k in range(1, len(answers) + 1)]


def best_precision(points: list[tuple[Fraction, Fraction]], recall: Fraction) -> Fraction:
    return max((precision for reached, precision in points if reached >= recall), default=Fraction(0))


def area_ap(guesses: list[Guess], real: list[Real]) -> float:
    """The integral of the best precision from recall 0 to 1, step by step."""
    points = curve(guesses, real)
    steps = sorted({Fraction(0), Fraction(1), *(recall for recall, _ in points)})
    return float(sum((b - a) * best_precision(points, b) for a, b in pairwise(steps)))


def eleven_point_ap(guesses: list[Guess], real: list[Real]) -> float:
    points = curve(guesses, real)
    return float(sum(best_precision(points, Fraction(k, 10)) for k in range(11)) / 11)


def suppress(boxes: list[Square], scores: list[float], threshold: Fraction) -> list[int]:
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda index: -scores[index]):
        if all(iou(boxes[index], boxes[other]) <= threshold for other in kept):
            kept.append(index)
    return kept
