"""Hamming distances among the default anchors of pairs, for interpolations that need them.

An anchor is a base with a few pairs flipped: good ones are one flip away from all pairs right, nearby ones a few flips
away from the current pairs, bad ones are the pairs of random scores, or their opposite. So only a few bases have to be
compared pair by pair; flips F of a base x then change its distance from y by what they gain and lose:

    |x with F - y| = |x - y| + (flips in which x and y agree) - (flips in which they do not)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from directloss._uniloss.compiled import Step


class Bits(NamedTuple):
    """The pairs of random scores and, last, of the current ones: a bit is one if the relevant score is higher."""

    a: Any
    """Integers ``(r + 1, p)`` in the order of the relevant scores."""
    b: Any
    """The same ``(r + 1, n)`` of the irrelevant ones."""

    @classmethod
    def of(cls, step: Step) -> Bits:
        """The bits of a step. In a tie the relevant score is lower."""
        order = np.concatenate((step.a, step.b)).argsort(kind="stable")
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order))
        return cls(np.vstack((step.tops, ranks[: len(step.a)])), np.vstack((step.rivals, ranks[len(step.a) :])))

    def at(self, up: Any, down: Any) -> Any:
        """Bits ``(r + 1, pairs)`` of some pairs."""
        return self.a.take(up, 1) > self.b.take(down, 1)


def between(step: Step) -> Any:
    """The distances ``(k, k)`` among the anchors of a step."""
    how, lists, bits = step.how, step.lists, Bits.of(step)
    random, few, count = len(bits.a) - 1, how.good + how.nearby, how.good + how.nearby + how.bad
    apart = np.zeros((count, count))
    good, nearby = slice(0, how.good), slice(how.good, few)
    bad, opposite, mirrored = slice(few, few + random), slice(few + random, count), how.bad - random

    bases = np.zeros((random + 1, random + 1), np.int64)
    step.loops.differ(bits.a, bits.b, *step.spans, bases)
    apart[bad, bad], apart[opposite, opposite] = bases[:-1, :-1], bases[:mirrored, :mirrored]
    apart[bad, opposite] = lists.size - bases[:-1, :mirrored]

    wrong = step.drawn.flips[: how.good]
    pairs, named, flipped = _flips(step, wrong)
    here = bits.at(*lists.place(pairs))
    sizes, agreeing = flipped.sum(1), here[:-1] == here[-1]
    apart[nearby, bad] = bases[-1, :-1] + flipped @ (2 * agreeing.T.astype(np.float32) - 1)
    apart[nearby, opposite] = lists.size - apart[nearby, bad][:, :mirrored]
    apart[nearby, nearby] = sizes[:, None] + sizes - 2 * flipped @ flipped.T

    apart[good, good] = 2 * (wrong[:, None] != wrong)
    there = here[:, named]
    right = np.vstack((there[-1] != flipped[:, named], there[:-1], ~there[:mirrored])).T  # (good, all others)
    apart[good, few - how.nearby :] = step.lost[how.good : -1].sum(1) + 2.0 * right - 1

    return np.maximum(apart, apart.T)  # blocks below the diagonal are still zero


def _flips(step: Step, wrong: Any) -> tuple[Any, Any, Any]:
    """The pairs that nearby anchors flip, and the wrong ones of good anchors; where the latter stand among these; and
    which of them each nearby anchor flips ``(nearby, pairs)``. Of equal pairs only the last one counts.
    """
    moves = (part[step.how.good :] for part in step.moves)
    most = step.how.nearby * (len(step.a) + len(step.b))
    who, pairs = np.empty(most, np.int64), np.empty(most, np.int64)
    count = step.loops.flips(step.a, step.b, *step.spans, *moves, who, pairs)
    pairs = np.concatenate((pairs[:count], wrong))
    name = np.empty(step.lists.size, np.int64)
    name[pairs] = np.arange(len(pairs))
    flipped = np.zeros((step.how.nearby, len(pairs)), np.float32)
    flipped[who[:count], name[pairs[:count]]] = 1
    return pairs, name[wrong], flipped
