"""The automatic epsilon of rankings does not make the scores of a right list grow for ever."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import kernels
from directloss.kernels import LEAST_SPREAD, STEADY


def _list(n: int, shift: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    target = (torch.arange(n) % 3 == 0).long()
    return torch.randn(n, dtype=torch.float64, generator=draw) + shift * target, target


def _gradient(scores: Tensor, target: Tensor, **options: object) -> Tensor:
    free = scores.clone().requires_grad_()
    dl.direct_loss(free, target, "ap", **options).backward()  # type: ignore[arg-type]
    assert free.grad is not None
    return free.grad


def _growth(scores: Tensor, gradient: Tensor) -> float:
    return float((gradient * (scores - scores.mean())).sum())


def _room(scores: Tensor) -> float:
    """The part of the growth that a spread of the scores lets go."""
    return 1 - min(1.0, LEAST_SPREAD / float(scores.std())) ** 4


def _plain(scores: Tensor, target: Tensor) -> Tensor:
    """The theorem's gradient with the number that the automatic epsilon has."""
    return _gradient(scores, target, epsilon=float(dl.tasks.get("ap").auto_epsilon(scores, target)))


@pytest.mark.parametrize("backend", ["compiled", "tensor"])
def test_a_right_list_loses_all_but_one_part_in_n_of_its_growth(backend: str) -> None:
    scores, target = _list(30, 20.0)
    with kernels.use(backend):
        before, after = _growth(scores, _plain(scores, target)), _growth(scores, _gradient(scores, target))
    assert before < 0
    assert after == pytest.approx(before * (1 - _room(scores) * 28 / 29))
    assert after == pytest.approx(before / 29, rel=1e-3)


@pytest.mark.parametrize("backend", ["compiled", "tensor"])
def test_what_is_taken_out_fades_with_the_loss(backend: str) -> None:
    shares = []
    with kernels.use(backend):
        for shift in (0.5, 1.5, 2.0, 2.5, 3.0):
            scores, target = _list(30, shift)
            loss = float(dl.direct_loss(scores, target, "ap"))
            plain, steady = _plain(scores, target), _gradient(scores, target)
            expected = max(0.0, 1 - loss / STEADY) * _room(scores) * 28 / 29
            assert _growth(scores, steady) == pytest.approx(_growth(scores, plain) * (1 - expected))
            if expected == 0:
                assert torch.equal(steady, plain)
            shares.append(expected)
    assert shares[0] == 0 < shares[-1] < 1


@pytest.mark.parametrize("backend", ["compiled", "tensor"])
@pytest.mark.parametrize("spread", [1e-100, 0.01, 0.0999, 0.12, 0.2, 1.0, 1e100])
def test_scores_of_a_small_spread_may_grow(backend: str, spread: float) -> None:
    """Else weight decay would shrink them until every step of the optimizer turned the list over."""
    scores, target = _list(30, 20.0)
    scores = scores / scores.std() * spread
    with kernels.use(backend):
        before, after = _growth(scores, _plain(scores, target)), _growth(scores, _gradient(scores, target))
    assert after == pytest.approx(before * (1 - _room(scores) * 28 / 29))
    assert (after == before) == (spread < LEAST_SPREAD)


def test_weight_decay_does_not_wear_a_right_list_out() -> None:
    """Without room to grow, decay makes these scores as small as the steps of the optimizer, which turn them over."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 5, generator=draw)
    target = (inputs[:, 0] > 0.5).long()
    weight = torch.tensor([1.0, 0, 0, 0, 0], requires_grad=True)
    optimizer = torch.optim.Adam([weight], 0.03, weight_decay=1.0)
    spreads, losses = [], []
    for _ in range(1000):
        scores = inputs @ weight
        loss = dl.direct_loss(scores, target, "ap")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spreads.append(float(scores.detach().std()))
        losses.append(float(loss.detach()))
    assert min(spreads) > LEAST_SPREAD
    assert max(losses[-300:]) < 0.005


def test_only_growth_is_taken_out() -> None:
    scores, target = _list(30, 20.0)
    change = _gradient(scores, target) - _plain(scores, target)
    centred = scores - scores.mean()
    torch.testing.assert_close(change, centred * (change @ centred) / (centred @ centred))
    assert float(_gradient(scores, target).sum()) == pytest.approx(0, abs=1e-12)


def test_two_items_still_move_apart() -> None:
    gradient = _gradient(torch.tensor([1.0, 0.0]), torch.tensor([1, 0]))
    assert gradient[0] < 0 < gradient[1]


def test_a_number_and_the_negative_update_are_left_alone() -> None:
    scores, target = _list(30, 20.0)
    assert _growth(scores, _gradient(scores, target, epsilon=50.0)) < 0
    worse, labels = _list(30, 0.5)
    assert _growth(worse, _gradient(worse, labels, sign=-1)) > 0


def test_lists_of_a_batch_do_not_see_each_other() -> None:
    right, wrong = _list(30, 20.0), _list(30, 0.2, seed=1)
    both = _gradient(torch.stack([right[0], wrong[0]]), torch.stack([right[1], wrong[1]]), reduction="sum")
    torch.testing.assert_close(both, torch.stack([_gradient(*right), _gradient(*wrong)]))


def test_scores_of_a_network_stay_where_they_are_once_it_ranks_right() -> None:
    """Without it, the scores of this little network grow by a factor of hundreds."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 5, generator=draw)
    target = (inputs[:, 0] > 0.5).long()
    weight = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    spreads = []
    for _ in range(300):
        scores = inputs @ weight + 1e-3 * inputs[:, 1]
        optimizer.zero_grad()
        dl.direct_loss(scores, target, "ap").backward()
        optimizer.step()
        spreads.append(float(scores.detach().std()))
    assert float(dl.direct_loss(inputs @ weight.detach(), target, "ap")) < 0.02
    assert spreads[-1] < 5 * spreads[50]
