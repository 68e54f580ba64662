"""Rankings by Theorem 1: the fast ways agree with the paper's table, and the edges hold, there and by moves."""

from __future__ import annotations

from itertools import combinations
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import kernels, tasks

NAMES = ["ap", "ndcg", "ndcg@4", "dcg@3", "precision@5", "recall@5", "mrr", "auc", "pauc@0.3"]
NAMES += ["recall_at_fpr@0.2", "precision_at_recall@0.6"]
BACKENDS = ["auto", "tensor"]
WAYS = [{"epsilon": "auto"}, {"samples": 8}]
"""Theorem 1 and moves."""


def lists(b: int, n: int, seed: int, dtype: torch.dtype = torch.float64, ties: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(b, n, generator=generator, dtype=torch.float64)
    target = (torch.rand(b, n, generator=generator) < torch.rand(b, 1, generator=generator)).long()
    return (scores.mul(2).round() if ties else scores).to(dtype), target


def gradient(scores: Tensor, target: Tensor, task: object, **options: object) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    losses = dl.direct_loss(scores, target, task, reduction="none", **options)
    losses.sum().backward()
    assert scores.grad is not None
    return losses.detach(), scores.grad


@pytest.mark.filterwarnings("ignore:.*problems have no loss")
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_as_if_it_were_not_there(name: str) -> None:
    scores, target = lists(5, 12, seed=3)
    mask = torch.rand(5, 12, generator=torch.Generator().manual_seed(1)) < 0.7
    noisy = torch.where(mask, scores, torch.nan)
    losses, grads = gradient(noisy, target, name, epsilon=0.7, mask=mask)
    for row in range(5):
        keep = mask[row]
        alone = gradient(scores[row, keep], target[row, keep], name, epsilon=0.7)
        torch.testing.assert_close(losses[row], alone[0])
        torch.testing.assert_close(grads[row, keep], alone[1])
    assert not grads[~mask].any()


def paper_table(scores: np.ndarray, target: np.ndarray, epsilon: float, sign: int) -> float:
    """The Bellman recursion of 001, Fig. 2, for AP: the best value of F + sign * epsilon * L."""
    a, b = -np.sort(-scores[target == 1]), -np.sort(-scores[target == 0])
    P, N = len(a), len(b)
    h = np.full((P + 1, N + 1), -np.inf)
    h[0, 0] = 0.0
    for i in range(P + 1):
        for j in range(N + 1):
            if i:
                below = -(a[i - 1] - b[:j]).sum() / (P * N)
                h[i, j] = max(h[i, j], h[i - 1, j] - sign * epsilon * i / (i + j) / P + below)
            if j:
                above = (a[:i] - b[j - 1]).sum() / (P * N)
                h[i, j] = max(h[i, j], h[i, j - 1] + above)
    return h[P, N] + sign * epsilon


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.1), (60, 1.0), (100, 10.0)])
def test_ap_attains_the_papers_optimum(n: int, epsilon: float, sign: int) -> None:
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(n, generator=generator, dtype=torch.float64)
    target = (torch.rand(n, generator=generator) < 0.3).long()
    task = tasks.AveragePrecision()
    ranking = task.augmented(scores, target, epsilon, sign)
    value = task.score(scores, ranking) + sign * epsilon * task.loss(ranking, target)
    assert value.item() == pytest.approx(paper_table(scores.numpy(), target.numpy(), epsilon, sign), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", [1, -1])
def test_fused_equals_the_five_methods(name: str, sign: int) -> None:
    scores, target = lists(4, 25, seed=8)
    target[:, 0], target[:, 1] = 1, 0
    task = tasks.get(name)
    losses, grads = gradient(scores, target, task, epsilon=0.4, sign=sign)
    predicted = task.infer(scores, target)
    direct = task.augmented(scores, target, 0.4, sign)
    torch.testing.assert_close(losses, task.loss(predicted, target))
    torch.testing.assert_close(grads, sign / 0.4 * (direct.coefficients - predicted.coefficients))


@pytest.mark.parametrize("name", NAMES)
def test_unit_epsilon_bridges_one_unit_at_the_most_important_place(name: str) -> None:
    """An exchange of neighbours whose scores differ by 1 moves F by 2 / (P N), here 1/6, and the loss by this much."""
    task, ranks, drop = tasks.get(name), torch.arange(1.0, 8), 0.0
    for relevant in combinations(range(7), 3):  # every ranking of three relevant and four irrelevant items
        order = torch.zeros(7, dtype=torch.long)
        order[list(relevant)] = 1
        for place in range(6):
            moved = order.clone()
            moved[[place, place + 1]] = order[[place + 1, place]]
            losses = [float(task.loss(ranks, labels)) for labels in (order, moved)]
            drop = max(drop, abs(losses[0] - losses[1]))
    if name.startswith(("recall_at", "precision_at")):  # which name an upper bound, for all lists
        drop = 1 / 3 if name.startswith("recall_at") else 1 / 2
    target = torch.tensor([1, 1, 1, 0, 0, 0, 0])
    assert float(task.unit_epsilon(torch.zeros(7), target)) == pytest.approx(2 / 12 / drop)


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1.0, 1e30, 1e300])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_of_any_magnitude(factor: float, sign: int) -> None:
    scores, target = lists(1, 30, seed=4)
    plain, huge = (tasks.AveragePrecision().augmented(scores * f, target, 0.5 * f, sign) for f in (1.0, factor))
    assert torch.equal(plain.above, huge.above)


def test_denormal_scores_have_a_finite_gradient() -> None:
    scores, target = lists(1, 30, seed=4, dtype=torch.float32)
    for way in WAYS:
        losses, grads = gradient(scores * 1e-42, target, "ap", **way)
        assert torch.isfinite(losses).all()
        assert torch.isfinite(grads).all()


TINY = [1e-290, 1e-308, 1e-320, 5e-324, torch.tensor(1e-44), torch.tensor(1e-320, dtype=torch.float64)]


@pytest.mark.filterwarnings("ignore:.*but no gradient")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_tiny_epsilon_has_a_finite_gradient(sign: int, dtype: torch.dtype) -> None:
    """Its inverse overflows: what changes places gets the largest number, all others exactly 0."""
    scores, target = lists(2, 30, seed=4, dtype=dtype, ties=True)
    scores[1], target[:, 0], target[:, 1] = torch.arange(1, 31), 1, 0
    for epsilon in TINY:
        for name in [*NAMES, "graded_ndcg", "f1"]:
            _, grads = gradient(scores, target, name, epsilon=epsilon, sign=sign)
            assert torch.isfinite(grads).all(), (name, epsilon)
            assert not grads[1].any(), "without ties nothing is within reach"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_values_are_not_looked_at_if_not_asked_for(name: str, backend: str) -> None:
    """Labels that are none count as padding, NaN as the largest score."""
    scores, target = lists(1, 12, seed=9)
    target[0, :4] = torch.tensor([1, 0, 7, -3])
    spoiled = scores.clone()
    spoiled[0, 5] = torch.nan
    scores[0, 5] = 1e300
    mask = (target == 0) | (target == 1)
    with kernels.use(backend):
        for options in ({}, {"epsilon": 1.0}):
            wanted = dl.direct_loss(scores, target, name, mask=mask, **options)
            found = dl.direct_loss(spoiled, target, name, check_values=False, **options)
            torch.testing.assert_close(found, wanted)
        for wrong in ((spoiled, target.clamp(0, 1)), (scores, target)):
            with pytest.raises(
                dl.DirectLossError, match=r"scores must be finite|target must hold only 0 or 1, but it is 7"
            ):
                dl.direct_loss(*wrong, name)


def test_the_backend_is_chosen_for_one_thread_alone() -> None:
    scores, asked = torch.tensor([0.1, 0.2]), []

    def ask() -> None:
        asked.append(kernels.compiles(scores))

    with kernels.use("tensor"):
        ask()
        with kernels.use("auto"):
            ask()
        other = Thread(target=ask)
        other.start()
        other.join()
        ask()
    ask()
    assert asked == [False, True, True, False, True]
    with pytest.raises(dl.DirectLossError, match="backend must be one of 'auto', 'tensor'"), kernels.use("cuda"):
        pass


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_constant_scorer_gets_the_value_of_chance_and_a_gradient(dtype: torch.dtype, way: dict[str, Any]) -> None:
    target = torch.tensor([1] * 5 + [0] * 15)
    losses, grads = gradient(torch.zeros(20, dtype=dtype), target, "ap", **way)
    assert losses.item() == pytest.approx(1 - 5 / 20)
    assert grads.dtype == dtype
    assert (grads[:5] <= 0).all()
    assert (grads[5:] >= 0).all()
    assert grads.any()


def test_ties_do_not_depend_on_the_order_of_the_input() -> None:
    scores, target = lists(1, 40, seed=6, ties=True)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for name in NAMES:
        first = dl.direct_loss(scores[0], target[0], name)
        torch.testing.assert_close(dl.direct_loss(scores[0, order], target[0, order], name), first)


@pytest.mark.filterwarnings("ignore:All . items of a list are among the first k")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0, 0], [1], [0]])
def test_lists_that_cannot_be_ranked_wrong(labels: list[int], backend: str) -> None:
    """No value, no gradient of the metric; but the likelihood knows what to say."""
    target = torch.tensor(labels)
    scores = torch.arange(len(labels), dtype=torch.float32, requires_grad=True)
    for name, options in ((name, one) for name in NAMES for one in ({"likelihood": 0}, {"epsilon": 1.0}, {})):
        with kernels.use(backend), pytest.warns(dl.DirectLossWarning, match="1 of 1 problems have no loss"):
            loss = dl.direct_loss(scores, target, name, **options)
        (slope,) = torch.autograd.grad(loss, scores)
        assert loss.item() == 0
        assert slope.any() == (not options)
        assert (slope <= 0).all() if labels[0] else (slope >= 0).all()


def test_lists_that_cannot_be_ranked_wrong_do_not_count_in_the_mean() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    target = torch.tensor([[0, 0, 1], [0, 0, 0]])
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems"):
        assert dl.direct_loss(scores, target, "ap").item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("options", [{"likelihood": 0}, {"epsilon": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["precision@6", "recall@50", "precision@100%", "recall@90%"])
def test_a_cutoff_beyond_the_list_is_announced_once(name: str, options: dict[str, Any]) -> None:
    scores, target = torch.randn(2, 6, requires_grad=True), torch.arange(12).reshape(2, 6) % 2
    loss_fn = dl.DirectLoss(name, **options)
    loss_fn(scores.detach(), target)  # the value alone is fine
    with pytest.warns(dl.DirectLossWarning, match="All 6 items of a list are among the first k of .* a smaller k"):
        loss_fn(scores, target).backward()
    loss_fn(scores, target).backward()
    assert scores.grad is not None
    assert not scores.grad.any()


def test_a_cutoff_beyond_all_of_the_padded_lists_is_announced() -> None:
    scores, target = torch.randn(2, 6, requires_grad=True), torch.arange(12).reshape(2, 6) % 2
    mask = torch.arange(6) < torch.tensor([[4], [3]])
    dl.direct_loss(scores, target, "precision@3", mask=mask)  # warnings are errors
    with pytest.warns(dl.DirectLossWarning, match="All 4 items of a list are among the first k"):
        dl.direct_loss(scores, target, "precision@4", mask=mask)


def test_a_cutoff_by_share_follows_the_length_of_each_list() -> None:
    scores, target = torch.randn(3, 50, dtype=torch.float64), torch.arange(150).reshape(3, 50) % 3 == 0
    sizes = (50, 31, 10)
    mask = torch.arange(50) < torch.tensor(sizes)[:, None]
    found = dl.direct_loss(scores, target, "precision@10%", mask=mask, reduction="none")
    for value, row, labels, n, k in zip(found, scores, target, sizes, (5, 4, 1), strict=True):
        assert value == dl.direct_loss(row[:n], labels[:n], f"precision@{k}")
    assert torch.equal(dl.metrics.recall_at_k(scores, target, 0.1), dl.metrics.recall_at_k(scores, target, 5))


def test_a_million_items() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(1_000_000, generator=generator) < 0.1
    scores = torch.randn(1_000_000, generator=generator) + 1.8 * target
    for options, imbalance in (({"epsilon": 2e-5}, 1e-6), ({"likelihood": 0}, 0.5)):
        losses, grads = gradient(scores, target, "ap", **options)
        assert 0.2 < losses.item() < 0.6
        assert (grads[target] <= 0).all()
        assert (grads[~target] >= 0).all()
        assert abs(grads.double().sum().item()) < imbalance * grads.abs().double().sum().item()


@pytest.mark.parametrize(
    ("weight", "message", "options"),
    [
        (lambda i, n: n + 1, "must not increase with n", {"epsilon": 1.0}),
        (lambda i, n: 1 / n, "must be finite", {}),
        (lambda i, n: 1 / n, "must be finite", {"epsilon": 1.0}),
        (lambda i, n: torch.ones(3, 77), r"must have shape \(1,\)", {}),
        (lambda i, n: torch.ones(3, 77), r"must have shape \(1, 2\)", {"epsilon": 1.0}),
        (lambda i, n: 0 * i - n, "positive sum over the perfect ranking", {}),
    ],
)
def test_wrong_position_weights_are_refused(weight: object, message: str, options: dict[str, Any]) -> None:
    scores = torch.tensor([1.0, 0.0], requires_grad=True)
    with pytest.raises(dl.DirectLossError, match=message):
        dl.direct_loss(scores, torch.tensor([1, 0]), tasks.PositionTask(weight), **options)


def test_moves_do_not_need_a_falling_position_weight() -> None:
    scores = torch.tensor([1.0, 0.0], requires_grad=True)
    loss = dl.direct_loss(scores, torch.tensor([1, 0]), tasks.PositionTask(lambda i, n: n + 1), likelihood=0)
    (slope,) = torch.autograd.grad(loss, scores)
    assert slope[0] > 0, "here it pays to be low"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tasks.PositionTask(3), "weight must be a function"),
        (lambda: tasks.NDCG(0), "k must be a whole number of at least 1"),
        (lambda: tasks.PrecisionAtK(2.5), "k must be a whole number"),
        (lambda: tasks.PartialAUC(0.0), "max_fpr must be positive"),
        (lambda: tasks.PartialAUC(1.5), "max_fpr must be at most 1"),
        (lambda: tasks.get("pauc@2"), "max_fpr must be at most 1"),
        (lambda: tasks.get("recall_at_fpr@1.5"), "max_fpr must be at most 1"),
        (lambda: tasks.get("precision_at_recall@0"), "recall must be positive"),
        (lambda: tasks.get("ndcg@ten"), "must have a number after '@'"),
        (lambda: tasks.get("ap@3"), "takes no number"),
    ],
)
def test_wrong_settings_are_refused_when_built(make: object, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        make()


def test_a_plain_ranking_has_no_score_before_its_items_are_known() -> None:
    task, scores = tasks.AveragePrecision(), torch.tensor([1.0, 2.0])
    with pytest.raises(dl.DirectLossError, match="which items are relevant"):
        task.score(scores, task.predict(scores))


def test_prediction_is_the_rank_with_ties_shared() -> None:
    assert tasks.AUC().predict(torch.tensor([3.0, 1.0, 3.0, 0.0])).tolist() == [1.5, 3.0, 1.5, 4.0]
