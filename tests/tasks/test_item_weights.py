"""Weights of items under Theorem 1: the weighted AUC against every ranking of tiny lists; other tasks refuse them.

tests/test_moves.py has weights under moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss.tasks import AUC
from tests.oracle import draw_scores

TIGHT = 1e-12  # float64 sums of a few terms in another order


def problem(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Up to 6 items, at least one of each kind with a weight; some without, ties in about a third of the lists."""
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(2, 7, (), generator=generator))
    target = torch.randint(0, 2, (n,), generator=generator)
    target[0], target[1] = 1, 0
    weight = torch.rand(n, generator=generator, dtype=torch.float64) * 3
    if seed % 3 == 0:
        weight = weight.ceil()  # equal weights, and ties of sums
    weight[2:] *= torch.rand(n - 2, generator=generator) < 0.7
    order = torch.randperm(n, generator=generator)
    return draw_scores((n,), generator), target[order], weight[order]


def every_ranking(scores: Tensor, target: Tensor, weight: Tensor) -> Iterator[tuple[float, float]]:
    """(F, L) of every order, pair by pair."""
    s, w, n = scores.tolist(), weight.tolist(), len(scores)
    both = [(i, j) for i in range(n) for j in range(n) if target[i] == 1 and target[j] == 0]
    mass = sum(w[i] * w[j] for i, j in both)
    for order in permutations(range(n)):
        place = {item: rank for rank, item in enumerate(order)}
        right = [(w[i] * w[j] / mass, s[i] - s[j], place[i] < place[j]) for i, j in both]
        yield sum(v * (d if r else -d) for v, d, r in right), sum(v for v, _, r in right if not r)


def gradient(scores: Tensor, target: Tensor, task: object = "auc", **options: object) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    losses = dl.direct_loss(leaf, target, task, reduction="none", **options)
    losses.sum().backward()
    assert leaf.grad is not None
    return losses.detach(), leaf.grad


@pytest.mark.parametrize("seed", range(30))
def test_inference_is_exact(seed: int) -> None:
    scores, target, weight = problem(seed)
    task, pairs = AUC().weighted(weight), list(every_ranking(scores, target, weight))

    def known(output: object) -> tuple[float, float]:
        found = float(task.score(scores, output)), float(task.loss(output, target))
        assert any(found == pytest.approx(pair, abs=TIGHT) for pair in pairs), "no ranking has these F and L"
        return found

    assert known(task.infer(scores, target))[0] == pytest.approx(max(f for f, _ in pairs), abs=TIGHT)
    assert known(task.truth(target))[1] == 0
    for epsilon in (1e-300, 0.01, 0.3, 1.0, 4.0, 30.0):
        for sign in (+1, -1):
            f, l = known(task.augmented(scores, target, epsilon, sign))
            best = max(f + sign * epsilon * l for f, l in pairs)
            assert f + sign * epsilon * l == pytest.approx(best, abs=TIGHT * (1 + epsilon))


@pytest.mark.parametrize("seed", range(30))
def test_losses_follow(seed: int) -> None:
    """Value and gradient of the direct loss, hinge and perceptron, from the enumeration and the coefficients of F."""
    scores, target, weight = problem(seed)
    task, pairs = AUC().weighted(weight), list(every_ranking(scores, target, weight))
    predicted, truth = task.infer(scores, target), task.score(scores, task.truth(target))
    for epsilon in (0.3, 2.0):
        for sign in (+1, -1):
            losses, grads = gradient(scores, target, weight=weight, epsilon=epsilon, sign=sign)
            torch.testing.assert_close(losses, task.loss(predicted, target))
            change = task.augmented(scores, target, epsilon, sign).coefficients - predicted.coefficients
            torch.testing.assert_close(grads, sign / epsilon * change, rtol=TIGHT, atol=TIGHT)
            assert not grads[weight == 0].any()
        hinge = dl.hinge_loss(scores, target, "auc", weight=weight, epsilon=epsilon)
        torch.testing.assert_close(hinge, max(f + epsilon * l for f, l in pairs) - truth)
    shortfall = dl.perceptron_loss(scores, target, "auc", weight=weight)
    torch.testing.assert_close(shortfall, max(f for f, _ in pairs) - truth)


def lists(b: int, n: int, seed: int, ties: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(b, n, generator=generator, dtype=torch.float64)
    target = torch.randint(2, (b, n), generator=generator)
    target[:, 0], target[:, 1] = 1, 0
    return scores.mul(2).round() if ties else scores, target, torch.rand(b, n, generator=generator)


@pytest.mark.parametrize("epsilon", ["auto", 0.1, 2.0])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("lead", [0.0, 2.0])
def test_equal_weights_are_no_weights(lead: float, ties: bool, sign: int, epsilon: float | str) -> None:
    """Also where each class has a weight of its own: only products of the two matter; in nearly right lists, too."""
    scores, target, _ = lists(5, 60, 0, ties)
    scores = scores + lead * target
    wanted = gradient(scores, target, epsilon=epsilon, sign=sign)
    for weight in (torch.ones(5, 60), torch.full((5, 60), 0.37), torch.where(target == 1, 7.0, 0.1)):
        found = gradient(scores, target, epsilon=epsilon, sign=sign, weight=weight)
        torch.testing.assert_close(found, wanted, rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_weight_of_three_is_three_items(sign: int) -> None:
    scores, target, _ = lists(1, 40, 1, ties=False)
    times = torch.randint(0, 4, (40,), generator=torch.Generator().manual_seed(2))
    many = scores[0].repeat_interleave(times), target[0].repeat_interleave(times)
    losses, grads = gradient(*many, epsilon=0.7, sign=sign)
    found, slopes = gradient(scores[0], target[0], epsilon=0.7, sign=sign, weight=times)
    torch.testing.assert_close(found, losses)
    owner = torch.arange(40).repeat_interleave(times)
    torch.testing.assert_close(slopes, torch.zeros(40, dtype=torch.float64).index_add(0, owner, grads))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_batch_mask_and_dim(sign: int, ties: bool) -> None:
    scores, target, weight = lists(6, 15, 3, ties)
    mask = torch.rand(6, 15, generator=torch.Generator().manual_seed(4)) < 0.7
    mask[:, :2] = True
    spoiled, empty = torch.where(mask, scores, torch.nan), torch.where(mask, weight, torch.nan)
    epsilon = torch.linspace(0.2, 2.0, 6, dtype=torch.float64)
    losses, grads = gradient(spoiled, target, weight=empty, mask=mask, epsilon=epsilon, sign=sign)
    for row, keep in enumerate(mask):
        options = {"weight": weight[row, keep], "epsilon": float(epsilon[row]), "sign": sign}
        alone = gradient(scores[row, keep], target[row, keep], **options)
        torch.testing.assert_close((losses[row], grads[row, keep]), alone, rtol=TIGHT, atol=TIGHT)
    assert not grads[~mask].any()
    turned = gradient(spoiled.T, target.T, weight=empty.T, mask=mask.T, epsilon=epsilon, sign=sign, dim=0)
    torch.testing.assert_close(turned, (losses, grads.T))
    deep = [part.reshape(2, 3, 15) for part in (spoiled, target, empty, mask)]
    found = gradient(*deep[:2], weight=deep[2], mask=deep[3], epsilon=epsilon.reshape(2, 3), sign=sign)
    torch.testing.assert_close(found, (losses.reshape(2, 3), grads.reshape(2, 3, 15)))


def test_ties_do_not_depend_on_the_order_of_the_input() -> None:
    scores, target, weight = lists(1, 40, 5, ties=True)
    first = dl.direct_loss(scores[0], target[0], "auc", weight=weight[0])
    for seed in range(5):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        again = dl.direct_loss(scores[0, order], target[0, order], "auc", weight=weight[0, order])
        torch.testing.assert_close(again, first)


def test_many_tied_items_are_half_right() -> None:
    """And few of them less than that: the rule is cautious, as without weights."""
    generator = torch.Generator().manual_seed(0)
    for n, tolerance in ((20, 0.2), (2000, 2e-3)):
        target, weight = torch.randint(2, (n,), generator=generator), torch.rand(n, generator=generator)
        loss = dl.direct_loss(torch.zeros(n), target, "auc", weight=weight).item()
        assert 0.5 <= loss <= 0.5 + tolerance


@pytest.mark.parametrize("labels", [[1, 1, 0], [0, 0, 1]])
def test_a_class_without_weight_cannot_be_ranked_wrong(labels: list[int]) -> None:
    scores = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
    with pytest.warns(dl.DirectLossWarning, match=r"1 of 1 problems have no loss under AUC"):
        loss = dl.direct_loss(scores, torch.tensor(labels), "auc", weight=torch.tensor([1.0, 2.0, 0.0]), epsilon=1.0)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(dtype: torch.dtype) -> None:
    scores, target, weight = lists(2, 20, 6, ties=False)
    low = scores.to(dtype)
    losses, grads = gradient(low, target, weight=weight.to(dtype), epsilon=1.0)
    exact = gradient(low.double(), target, weight=weight.to(dtype), epsilon=1.0)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), exact[0], rtol=0, atol=1e-6)
    assert grads.dtype == dtype
    assert grads.any()


@pytest.mark.parametrize("factor", [1e-30, 1e29])
def test_weights_of_great_or_small_magnitude(factor: float) -> None:
    scores, target, weight = lists(1, 30, 7, ties=False)
    found = gradient(scores, target, weight=weight.ceil().double() * factor, epsilon=0.5)
    torch.testing.assert_close(found, gradient(scores, target, epsilon=0.5))


def test_weights_of_problems_stay_what_they_were() -> None:
    """Square batches included: (n,) is one weight per problem, (n, n) one per item."""
    scores, target, weight = lists(8, 8, 8, ties=False)
    each = dl.direct_loss(scores, target, "auc", reduction="none")
    torch.testing.assert_close(
        dl.direct_loss(scores, target, "auc", weight=weight[0], reduction="none"), each * weight[0]
    )
    per_item = dl.direct_loss(scores, target, "auc", weight=weight, reduction="none")
    assert per_item.shape == (8,)
    assert not torch.equal(per_item, each)


OTHERS = ["ap", "ndcg", "mrr", "pauc@0.5", "precision@2", "f1", "iou", "mcc", "balanced_accuracy", "graded_ndcg"]


@pytest.mark.parametrize("loss", [dl.direct_loss, dl.hinge_loss, dl.perceptron_loss])
@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks_say_why_not(name: str, loss: Callable[..., Tensor]) -> None:
    scores, target, weight = lists(2, 4, 9, ties=False)
    options = {"epsilon": 1.0} if loss is dl.direct_loss else {}
    with pytest.raises(dl.DirectLossError) as caught:
        loss(scores, target, name, weight=weight, **options)
    text = str(caught.value)
    assert text.startswith("weight must hold one weight per problem of ")
    assert "shape (2,), but it is one per item, of shape (2, 4). Items cannot have weights here: " in text
    assert dl.Task.defaults.no_item_weights not in text, "the reason of the task itself"


def test_structured_tasks_say_why_not() -> None:
    labels = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(dl.DirectLossError, match="put the weights into cost"):
        dl.direct_loss(torch.randn(2, 3, 4), labels, "chain", weight=torch.ones(2, 3))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.tensor([1.0, -1.0, 1.0]), "weight must be finite and not negative, but it is as low as -1.0"),
        (torch.tensor([1.0, torch.inf, 1.0]), "weight must be finite and not negative"),
        (torch.ones(2), r"weight must hold one weight per problem, shape \(\), or per item.*but it is of shape \(2,\)"),
    ],
)
def test_wrong_weights(weight: Tensor, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        dl.direct_loss(torch.zeros(3), torch.tensor([1, 0, 0]), "auc", weight=weight)
