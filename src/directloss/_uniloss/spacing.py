"""How far the usual anchors of pairs lie from each other: Hamming distances, for interpolations that ask for them.

An anchor is a base with a few pairs flipped: good ones are one flip away from all pairs right, nearby ones some flips
away from the present pairs, bad ones are the pairs of random scores, or their opposite. So only a few bases have to be
compared pair by pair; flips F of a base x then change its distance from y by what they gain and lose:

    |x with F - y| = |x - y| + (flips in which x and y agree) - (flips in which they do not)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from directloss._uniloss.compiled import Step


class Bits(NamedTuple):
    """The pairs of random scores and, last, of the present ones: a bit is one if the relevant score is higher."""

    a: Any
    """Whole numbers ``(r + 1, p)`` in the order of the relevant scores."""
    b: Any
    """The same ``(r + 1, n)`` of the irrelevant ones."""

    @classmethod
    def of(cls, step: Step) -> Bits:
        """The bits of a step. Of equal scores the relevant one is lower."""
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

    who, pairs = _flips(step)
    ends = who.searchsorted(np.arange(how.nearby + 1))
    sizes = ends[1:] - ends[:-1]
    here = bits.at(*lists.place(pairs))
    agreeing = np.pad(here[:-1] == here[-1], ((0, 0), (1, 0))).cumsum(1)[:, ends]
    apart[nearby, bad] = bases[-1, :-1] + (2 * (agreeing[:, 1:] - agreeing[:, :-1]) - sizes).T
    apart[nearby, opposite] = lists.size - apart[nearby, bad][:, :mirrored]
    apart[nearby, nearby] = sizes[:, None] + sizes - 2 * _common(who, pairs, how.nearby, lists.size)

    wrong = step.drawn.flips[: how.good]
    apart[good, good] = 2 * (wrong[:, None] != wrong)
    there = bits.at(*lists.place(wrong))[:-1]
    right = np.vstack((_after_moves(step), there, ~there[:mirrored])).T  # (good, all others)
    apart[good, few - how.nearby :] = step.lost[how.good : -1].sum(1) + 2.0 * right - 1

    return np.maximum(apart, apart.T)  # blocks below the diagonal are still zero


def _flips(step: Step) -> tuple[Any, Any]:
    """Which nearby anchor has flipped which pair."""
    moves = (part[step.how.good :] for part in step.moves)
    most = step.how.nearby * (len(step.a) + len(step.b))
    who, pairs = np.empty(most, np.int64), np.empty(most, np.int64)
    count = step.loops.flips(step.a, step.b, *step.spans, *moves, who, pairs)
    return who[:count], pairs[:count]


def _common(who: Any, pairs: Any, anchors: int, size: int) -> Any:
    """How many flips each two anchors share."""
    name = np.empty(size, np.int64)
    name[pairs] = np.arange(len(pairs))  # one name for each flipped pair, whoever wrote last
    flipped = np.zeros((anchors, len(pairs)), np.float32)
    flipped[who, name[pairs]] = 1
    return flipped @ flipped.T


def _after_moves(step: Step) -> Any:
    """The bits ``(nearby, good)`` that nearby anchors have where good ones are wrong."""
    good = step.how.good
    ups, downs, to_a, to_b = step.moves
    up, down = ups[:good], downs[:good]
    a = np.where(ups[good:, None] == up, to_a[good:, None], step.a[up])
    b = np.where(downs[good:, None] == down, to_b[good:, None], step.b[down])
    return a > b
