"""How many labels are wrong, from several people's answers to the same items.

The model of Dawid and Skene (1979), with the same people everywhere: an item is positive with probability ``share``; an
answer is wrong with probability ``r1`` if it is, and with ``r0`` if it is not; and errors are independent. So k times
yes among m answers has the probability

    share * (1 - r1)^k r1^(m - k)  +  (1 - share) * r0^k (1 - r0)^(m - k)

and expectation maximisation finds the three numbers that make the answers most likely.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_labels, check_tensor, fail

STEPS, TOLERANCE = 5_000, 1e-8
LEAST = 1e-9
"""Of a rate: no answer is impossible, not even one that a bootstrap sample lacks."""
DRAWS = 200
"""Bootstrap samples behind an interval."""


class EstimatedFlips(NamedTuple):
    """Estimated shares of wrong answers, each for negative and for positive items."""

    flips: tuple[float, float]
    """What `DirectLoss` takes."""
    low: tuple[float, float]
    """Lower ends of 95 % intervals, from a bootstrap over items with a fixed seed."""
    high: tuple[float, float]
    """Upper ends."""
    positives: float
    """The share of items that are positive."""


class _Crowd(NamedTuple):
    """Probabilities, of one shape."""

    share: Tensor
    negatives: Tensor
    positives: Tensor


def estimate_flips(answers: Tensor, *, alike: bool = False) -> EstimatedFlips:
    """The share of wrong labels, if every label is the answer of one person, for ``flips`` of `DirectLoss`.

    All it uses is how often people contradict each other. Errors that they share, because an item is misleading, remain
    unseen: they make the estimate too low, and the intervals do not cover them.

    Args:
        answers: yes (1) or no (0) of several people, shape ``(items, people)``; -1 or NaN where there is no answer, and
            in any order. Some items need three answers.
        alike: whether positive and negative items are mistaken equally often; two answers are enough then.

    Examples:
        >>> import directloss as dl
        >>> draw = torch.Generator().manual_seed(0)
        >>> truth = torch.arange(5000) % 5 == 0
        >>> wrong = torch.rand(5000, 3, generator=draw) < 0.1
        >>> found = dl.estimate_flips(truth[:, None] ^ wrong)
        >>> [round(share, 2) for share in found.flips]
        [0.1, 0.1]
        >>> loss_fn = dl.DirectLoss("f1", flips=found.flips)
    """
    yes, asked, items = _patterns(answers, least=2 if alike else 3)
    found = _most_likely(yes, asked, items, alike)
    if float(found.negatives + found.positives) > 1 - 1e-3:
        fail(
            "answers",
            "must agree more often than by chance",
            "answers that do not",
            "Nothing can be learned from them.",
        )
    resampled = torch.poisson(items.expand(DRAWS, -1), generator=torch.Generator().manual_seed(0))
    rates = torch.stack(_most_likely(yes, asked, resampled, alike)[1:])
    low, high = rates.quantile(torch.tensor([0.025, 0.975], dtype=rates.dtype), dim=1).tolist()
    flips = float(found.negatives), float(found.positives)
    return EstimatedFlips(flips, tuple(low), tuple(high), float(found.share))


def _patterns(answers: Tensor, least: int) -> tuple[Tensor, Tensor, Tensor]:
    """How many answered yes, how many answered at all, and of how many items that is true."""
    if check_tensor("answers", answers).dim() != 2:
        fail("answers", "must have shape (items, people)", f"of shape {tuple(answers.shape)}")
    told = answers.cpu().double().nan_to_num(nan=-1.0)
    check_labels(told, (0, 1, -1), argument="answers")
    found = torch.stack(((told == 1).sum(1), (told >= 0).sum(1)))
    (yes, asked), items = found.unique(dim=1, return_counts=True)  # type: ignore[no-untyped-call]
    if not (asked >= least).any():
        hint = "With two, alike=True takes both kinds of items to be mistaken equally often." if least == 3 else ""
        fail("answers", f"must have {least} answers to some items", f"at most {max(asked.tolist(), default=0)}", hint)
    if not 0 < int((yes * items).sum()) < int((asked * items).sum()):
        fail("answers", "must hold both yes (1) and no (0)", "only one of them")
    return yes.double(), asked.double(), items.double()


def _most_likely(yes: Tensor, asked: Tensor, items: Tensor, alike: bool) -> _Crowd:
    """The crowd that makes the answers most likely, for every sample of items ``(..., patterns)``.

    It begins at the majority, and so ends with errors that are rarer than right answers.
    """
    positive = torch.where(2 * yes == asked, 0.5, (2 * yes > asked).double()).expand_as(items)
    crowd = _counted(yes, asked, items, positive * 0.9 + 0.05, alike)
    for _ in range(STEPS):
        before = crowd
        crowd = _counted(yes, asked, items, _positive(yes, asked, crowd), alike)
        if max(float((new - old).abs().max()) for new, old in zip(crowd, before, strict=True)) < TOLERANCE:
            break
    return crowd


def _positive(yes: Tensor, asked: Tensor, crowd: _Crowd) -> Tensor:
    """The probability that an item with such answers is positive."""
    share, r0, r1 = (one.unsqueeze(-1).clamp(LEAST, 1 - LEAST) for one in crowd)
    no = asked - yes
    with_positive = share * (1 - r1) ** yes * r1**no
    return with_positive / (with_positive + (1 - share) * r0**yes * (1 - r0) ** no)


def _counted(yes: Tensor, asked: Tensor, items: Tensor, positive: Tensor, alike: bool) -> _Crowd:
    """The crowd whose shares are those counted, if items are positive with these probabilities."""
    on_positive, on_negative = items * positive, items * (1 - positive)
    wrong = torch.stack(((on_negative * yes).sum(-1), (on_positive * (asked - yes)).sum(-1)))
    told = torch.stack(((on_negative * asked).sum(-1), (on_positive * asked).sum(-1)))
    if alike:
        wrong, told = (part.sum(0).expand_as(part) for part in (wrong, told))
    # A small bootstrap sample may lack one kind of items, or all.
    negatives, positives = wrong / told.clamp(min=LEAST)
    return _Crowd(on_positive.sum(-1) / items.sum(-1).clamp(min=LEAST), negatives, positives)
