"""UniLoss is one of the losses: `dim`, `mask`, `weight`, `reduction` and the value mean what they mean elsewhere."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import DirectLossError, DirectLossWarning, UniLoss, uniloss


def _seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SCORES = torch.randn(3, 12, generator=_seeded(), dtype=torch.float64)
LABELS = (torch.rand(3, 12, generator=_seeded(1)) < 0.4).long()
MASK = torch.rand(3, 12, generator=_seeded(2)) < 0.8


def right(scores: Tensor, target: Tensor) -> Tensor:
    """A metric of the user's own, of one list."""
    return ((scores > 0) == (target == 1)).double().mean()


def found(scores: Tensor, *args: object, **options: object) -> tuple[Tensor, Tensor]:
    """Losses and gradients, drawn from the same seed each time."""
    free = scores.clone().requires_grad_()
    loss = uniloss(free, *args, generator=_seeded(7), **options)  # type: ignore[arg-type]
    return loss.detach(), torch.autograd.grad(loss.sum(), free)[0]


# ------------------------------------------------------------------ value


@pytest.mark.parametrize("name", ["ap", "ndcg@3", "f1"])
def test_value_is_that_of_the_other_losses(name: str) -> None:
    ours = UniLoss(name, reduction="none")(SCORES, LABELS, MASK)
    theirs = dl.direct_loss(SCORES, LABELS, name, mask=MASK, reduction="none")
    assert ours.tolist() == pytest.approx(theirs.tolist())


def test_value_with_less_is_better() -> None:
    loss = uniloss(SCORES[0], LABELS[0], lambda s, t: 1 - right(s, t), maximize=False)
    assert loss.item() == pytest.approx(1 - right(SCORES[0], LABELS[0]).item())


class Squashed(dl.relaxation.Interpolation):
    """The sigmoid of minus the mean squared distance."""

    def __call__(self, squared: Any, values: Any, between: object) -> tuple[float, Any]:
        value = 1 / (1 + np.exp(squared.mean()))
        return value, np.full_like(squared, -value * (1 - value) / len(squared))


def test_an_interpolation_of_ones_own() -> None:
    value, slope = found(SCORES[0], LABELS[0], right, interpolation=Squashed())
    surface, expected = found(SCORES[0], LABELS[0], right, interpolation=Squashed(), value="interpolated")
    assert value.item() == pytest.approx(1 - right(SCORES[0], LABELS[0]).item())
    assert 0.5 < surface.item() < 1
    assert bool(slope.any())
    assert torch.equal(slope, expected)


# ------------------------------------------------------------------ dim


@pytest.mark.parametrize("metric", ["ap", "f1", right, dl.metrics.average_precision])
def test_dim_says_where_the_items_are(metric: object) -> None:
    options = {"reduction": "none", "weight": torch.tensor([1.0, 2.0, 3.0])}
    rows = found(SCORES, LABELS, metric, mask=MASK, dim=1, **options)
    losses, slopes = found(SCORES.T, LABELS.T, metric, mask=MASK.T, dim=0, **options)
    torch.testing.assert_close((losses, slopes.T), rows)
    assert losses.shape == (3,)
    whole = found(SCORES, LABELS, metric, dim=(0, 1))
    torch.testing.assert_close(whole[0], found(SCORES.flatten(), LABELS.flatten(), metric)[0])
    if callable(metric):
        torch.testing.assert_close(rows, found(SCORES, LABELS, metric, mask=MASK, batch_dims=1, **options))


def test_batch_dims_for_problems_of_several_dimensions() -> None:
    def macro(scores: Tensor, target: Tensor) -> Tensor:
        return (scores.argmax(-1) == target).double().mean()

    scores, target = SCORES.reshape(3, 4, 3), torch.arange(12).reshape(3, 4) % 3
    losses, _ = found(scores, target, macro, batch_dims=1, reduction="none")
    expected = [1 - macro(one, labels).item() for one, labels in zip(scores, target, strict=True)]
    assert losses.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        ("ap", {"dim": 2}, r"dim must name dimensions of scores, which has 2, but it is 2"),
        ("ap", {"dim": (0, 0)}, r"dim must name each dimension once"),
        ("ap", {"dim": "0"}, r"dim must be a dimension of scores or several of them"),
        (right, {"dim": 0, "batch_dims": 1}, r"batch_dims must be 0 if dim is given"),
        ("accuracy", {"dim": 0}, r"dim must be left out: one problem of AccuracyPairs\(\) has shape \(..., n, c\)"),
        ("pckh", {"dim": 0}, r"dim must be left out: one problem of KeypointPairs\(\) has shape \(..., h, w\)"),
        ("ap", {"weight": torch.ones(2)}, r"weight must hold one weight per problem, shape \(3,\), but it is of shape"),
        ("ap", {"weight": torch.ones(3, 12)}, r"weight must hold one weight per problem, shape \(3,\)"),
        ("ap", {"weight": -torch.ones(3)}, r"weight must be finite and not negative, but it is as low as -1.0"),
        (right, {"weight": torch.ones(3)}, r"weight must hold one weight per problem, shape \(\)"),
        ("ap", {"weight": 2}, r"weight must be a torch.Tensor"),
    ],
)
def test_wrong_arguments(metric: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        uniloss(SCORES, LABELS, metric, **options)  # type: ignore[arg-type]


def test_a_column_of_scores_is_not_many_problems() -> None:
    with pytest.raises(DirectLossError, match=r"more than one item in at least one problem of Average.*squeeze\(-1\)"):
        uniloss(SCORES.reshape(-1, 1), LABELS.reshape(-1, 1), "ap")


# ------------------------------------------------------------------ weight


def test_weights_are_those_of_the_problems() -> None:
    weight = torch.tensor([0.5, 2.0, 1.0])
    losses, slopes = found(SCORES, LABELS, "ap", reduction="none")
    for reduction, factor in (("none", weight), ("sum", weight), ("mean", weight / weight.sum())):
        loss, slope = found(SCORES, LABELS, "ap", reduction=reduction, weight=weight)
        expected = losses * factor
        torch.testing.assert_close(loss, expected if reduction == "none" else expected.sum())
        torch.testing.assert_close(slope, slopes * factor[:, None])


def test_weight_zero_leaves_a_problem_out() -> None:
    """Whatever its scores are, and without a call of the metric."""
    spoiled = SCORES.clone()
    spoiled[2] = float("nan")
    calls = []

    def counted(scores: Tensor, target: Tensor) -> Tensor:
        calls.append(scores)
        return right(scores, target)

    loss, slope = found(spoiled, LABELS, counted, dim=1, weight=torch.tensor([1.0, 1.0, 0.0]))
    assert loss.item() == pytest.approx(1 - right(SCORES[:2], LABELS[:2]).item())
    assert not bool(slope[2].any())
    assert bool(slope[:2].any())
    assert not any(bool(scores.isnan().any()) for scores in calls)
    nothing, slope = found(SCORES, LABELS, "ap", weight=torch.zeros(3))
    assert nothing.item() == 0
    assert not bool(slope.any())


# ------------------------------------------------------------------ NaN


def recall(scores: Tensor, target: Tensor) -> Tensor:
    return ((scores > 0) & (target == 1)).sum() / (target == 1).sum()


def early(scores: Tensor, target: Tensor) -> Tensor:
    """Compares nothing where it has no value."""
    return recall(scores, target) if bool((target == 1).any()) else torch.tensor(float("nan"))


@pytest.mark.parametrize("metric", [recall, early])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
@pytest.mark.parametrize("options", [{}, {"value": "interpolated"}, {"fraction": 0.5}])
def test_a_problem_whose_metric_is_nan_does_not_count(
    metric: object, order: list[int], options: dict[str, object]
) -> None:
    """First or last in the batch: nothing is learned from it about the others."""
    labels = LABELS.clone()
    labels[0] = 0
    loss_fn = UniLoss(metric, dim=1, reduction="none", generator=_seeded(), **options)  # type: ignore[arg-type]
    free = SCORES[order].clone().requires_grad_()
    with pytest.warns(DirectLossWarning, match="1 of 3 problems have no loss under Automatic.*it returns NaN"):
        losses = loss_fn(free, labels[order])
    losses.sum().backward()
    empty = order.index(0)
    assert losses[empty] == 0
    assert free.grad is not None
    assert not bool(free.grad[empty].any())
    assert bool(free.grad.any(-1)[order.index(1)])
    loss_fn.reduction, loss_fn.generator = "mean", _seeded()
    assert loss_fn(free, labels[order]).item() == pytest.approx(losses.sum().item() / 2)  # and no second warning


def test_a_metric_that_is_nan_at_the_present_scores_alone_does_not_count() -> None:
    def precision(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores > 0) & (target == 1)).sum() / (scores > 0).sum()

    for options in ({}, {"value": "interpolated"}):
        with pytest.warns(DirectLossWarning, match="1 of 1 problems have no loss.*give 0 / 0 a value"):
            loss, slope = found(-SCORES[0].abs(), LABELS[0], precision, **options)
        assert loss.item() == 0
        assert not bool(slope.any())


# ------------------------------------------------------------------ flat metrics


def exact(scores: Tensor, target: Tensor) -> Tensor:
    return ((scores > 0) == (target == 1)).all().double()


@pytest.mark.parametrize("options", [{}, {"interpolation": "distance-spline"}, {"interpolation": "inverse-distance"}])
def test_an_exact_match_is_learned(options: dict[str, object]) -> None:
    """All anchors near the best configuration have value 0; the best itself does not."""
    free = SCORES[0].clone().requires_grad_()
    loss_fn = UniLoss(exact, generator=_seeded(), **options)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam([free], 0.3)
    assert loss_fn(free, LABELS[0]).item() == 1
    for _ in range(40):
        optimizer.zero_grad()
        loss_fn(free, LABELS[0]).backward()
        optimizer.step()
    assert loss_fn(free, LABELS[0]).item() == 0


def test_a_single_item_is_learned() -> None:
    """Accuracy of one item: every flip around the right class is wrong."""
    scores = torch.tensor([[0.0, 3.0, 2.0, 1.0, 2.5, 1.5]]).requires_grad_()
    for seed in range(8):
        loss = uniloss(scores, torch.tensor([0]), "accuracy", likelihood=0, generator=_seeded(seed))
        (slope,) = torch.autograd.grad(loss, scores)
        assert slope[0, 0] < 0


def test_a_metric_that_is_the_same_everywhere_is_warned_of_once_per_loss() -> None:
    def never(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores > 0) == (target == 2)).all() & (scores > 1e30).any()

    for _ in range(2):
        loss_fn, free = UniLoss(never), SCORES[0].clone().requires_grad_()
        with pytest.warns(DirectLossWarning, match=r"is 0 at the current scores and 0 at all 48 anchors.*best_scores="):
            assert loss_fn(free, LABELS[0]).item() == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss_fn(free, LABELS[0])


def test_nothing_is_left_to_learn_and_nobody_is_warned() -> None:
    free = torch.tensor([3.0, -3.0]).requires_grad_()
    loss = uniloss(free, torch.tensor([1, 0]), lambda s, t: ((s > -9).any() | (s > t)[0]).double())
    loss.backward()
    assert loss.item() == 0


# ------------------------------------------------------------------ loops in a metric's code


def taking_the_top(scores: Tensor, target: Tensor) -> Tensor:
    """The share of relevant items among those above 0, taken off the top one by one."""
    left, hits = scores.clone(), torch.zeros(())
    while (left > 0).any():
        top = left.argmax()
        hits = hits + target[top]
        left[top] = -1
    return hits / len(target)


def run_at_the_top(scores: Tensor, target: Tensor) -> Tensor:
    """How many relevant items come before the first irrelevant one."""
    order, found = scores.argsort(descending=True), 0
    while found < len(scores) and bool(target[order[found]] == 1):
        found += 1
    return torch.tensor(found / int(target.sum()))


def shrinking(scores: Tensor, target: Tensor) -> Tensor:
    steps = 0
    while scores.max() > 0:
        scores, steps = scores - 1, steps + 1
    return ((scores > -steps) == (target == 1)).double().mean()


def creeping(scores: Tensor, target: Tensor) -> Tensor:
    """Compares other things in each iteration."""
    level = torch.tensor(-3.0)
    while (scores > level).sum() > 3:
        level = level + 0.5
    return ((scores > level) == (target == 1)).double().mean()


@pytest.mark.filterwarnings("ignore:.*neither on an order")
@pytest.mark.parametrize("metric", [taking_the_top, run_at_the_top, shrinking, creeping])
def test_while_loops_on_decisions(metric: object) -> None:
    loss, slope = found(SCORES[0], LABELS[0], metric)
    assert loss.item() == pytest.approx(1 - metric(SCORES[0], LABELS[0]).item())  # type: ignore[operator]
    assert bool(slope.isfinite().all())
    assert bool(slope.any())
