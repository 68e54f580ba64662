"""Noise: the gradient is that of the expected loss of the perturbed predictor, the value that of the clean scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss.noise import LEAST, check_noise, shaped
from tests.toys import Hamming

SCORES = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.float64)
LABELS = torch.tensor([1, 0, 0, 1])


def gradient(scores: Tensor, target: Tensor, task: Any, seed: int = 0, **options: Any) -> Tensor:
    torch.manual_seed(seed)
    leaf = scores.clone().requires_grad_()
    dl.direct_loss(leaf, target, task, **options).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def independent_decisions(scores: Tensor, target: Tensor, task: Any) -> Tensor:
    """The expected loss, by enumeration of every set of decisions."""
    total, yes = scores.new_zeros(()), torch.sigmoid(scores)
    for bits in range(2 ** len(scores)):
        chosen = torch.tensor([float(bits >> k & 1) for k in range(len(scores))])
        chance = torch.where(chosen > 0, yes, 1 - yes).prod()
        total = total + chance * float(task.loss(chosen, target))
    return total


@pytest.mark.parametrize(("name", "sign"), [("ap", 1), ("ap", -1), ("ndcg", "both"), ("auc", "both"), ("mrr", -1)])
def test_theorem_1_of_a_ranking_with_noise_has_the_gradient_of_moves(name: str, sign: int | str) -> None:
    """Two routes to the expected metric; up to a bias of order epsilon, and a sampling error."""
    wanted = gradient(SCORES, LABELS, name, noise=1, samples=20_000, likelihood=0)
    found = gradient(SCORES, LABELS, name, sign=sign, noise=1, epsilon=0.05, samples=300_000)
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.006)


@pytest.mark.parametrize("name", ["f1", "mcc"])
def test_theorem_1_of_decisions_with_noise_is_that_of_independent_ones(name: str) -> None:
    leaf = SCORES.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(independent_decisions(leaf, LABELS, dl.tasks.get(name)), leaf)
    found = gradient(SCORES, LABELS, name, sign="both", noise=1, epsilon=0.05, samples=300_000)
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.006)


def test_theorem_1_of_classes_with_noise_is_that_of_the_softmax() -> None:
    scores, target = torch.tensor([[0.2, 1.0, -0.3]], dtype=torch.float64), torch.tensor([0])
    leaf = scores.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(1 - torch.softmax(leaf, -1)[0, 0], leaf)
    found = gradient(scores, target, "accuracy", noise=1, epsilon=0.05, samples=200_000)
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.003)


def test_the_scale_of_the_noise_is_the_unit_of_the_scores() -> None:
    """Scores, noise and epsilon times ten: the same draws, and a tenth of the gradient."""
    for name in ("ap", "f1", "error"):
        plain = gradient(SCORES, LABELS, name, noise=1, samples=50, likelihood=0)
        torch.testing.assert_close(
            gradient(10 * SCORES, LABELS, name, noise=10.0, samples=50, likelihood=0), plain / 10
        )
    plain = gradient(SCORES, LABELS, "ap", noise=1, epsilon=0.4, samples=50)
    wide = gradient(10 * SCORES, LABELS, "ap", epsilon=4.0, noise=10.0, samples=50)
    torch.testing.assert_close(wide, plain / 10)


@pytest.mark.parametrize("name", [*dl.tasks.names(), "ndcg@2", "precision@2"])
def test_the_value_has_no_noise(name: str) -> None:
    task = dl.tasks.get(name)
    if task.event_dims == 2:
        scores, target = torch.randn(5, 3, 4), torch.tensor([[0, 1, 2]] * 5)
    elif task.target_dims == 0 and task.event_dims == 1:
        scores, target = torch.randn(5, 6), torch.tensor([0, 1, 2, 3, 4])
    else:
        scores, target = torch.randn(5, 8), torch.randint(2, (5, 8))
    leaf = scores.clone().requires_grad_()
    noisy, clean = (dl.direct_loss(leaf, target, name, **options) for options in ({"noise": 5.0}, {"epsilon": "auto"}))
    torch.testing.assert_close(noisy.detach(), clean.detach())
    assert float(noisy.detach()) == pytest.approx(float(dl.direct_loss(scores, target, name)))


def test_draws_are_reproducible() -> None:
    first, again, other = (gradient(SCORES, LABELS, "ap", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    own = [gradient(SCORES, LABELS, "ap", seed=s, generator=torch.Generator().manual_seed(5)) for s in (1, 2)]
    assert torch.equal(*own)


def test_a_loss_without_gradient_draws_nothing() -> None:
    before = torch.get_rng_state()
    dl.direct_loss(SCORES, LABELS, "ap")
    with torch.no_grad():
        dl.DirectLoss("f1")(SCORES.clone().requires_grad_(), LABELS)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_are_a_leading_dimension_not_a_loop() -> None:
    shapes = []

    class Watched(Hamming):
        def augmented(self, scores: Tensor, target: Tensor, epsilon: Any, sign: int) -> Any:
            shapes.append(tuple(scores.shape))
            return super().augmented(scores, target, epsilon, sign)

    gradient(torch.randn(2, 3), torch.zeros(2, 3).long(), Watched(), samples=7)
    assert shapes == [(7, 2, 3)] * 2  # one call for each sign


@pytest.mark.parametrize(
    ("shape", "draws"),
    [((1,), 512), ((64,), 8), ((512,), 1), ((100_000,), 1), ((2, 64), 8), ((16, 64), 8), ((32, 64), 4), ((999, 64), 1)],
)
def test_draws_belong_to_each_list(shape: tuple[int, ...], draws: int) -> None:
    """As many for a list in a batch as for one alone; of a large batch fewer."""
    assert check_noise("auto", "auto", None).count(torch.zeros(shape)) == draws
    assert check_noise("auto", 3, None).count(torch.zeros(shape)) == 3


@pytest.mark.parametrize(
    ("density", "mean", "deviation"),
    [
        ("gumbel", 0.5772, math.pi / math.sqrt(6)),
        ("logistic", 0.0, math.pi / math.sqrt(3)),
        ("uniform", 0.0, 1 / math.sqrt(3)),
    ],
)
def test_noise_has_its_distribution(density: str, mean: float, deviation: float) -> None:
    z = shaped(torch.rand(400_000, generator=torch.Generator().manual_seed(0)), density)
    assert float(z.mean()) == pytest.approx(mean, abs=0.01)
    assert float(z.std()) == pytest.approx(deviation, abs=0.01)
    assert bool(torch.isfinite(z).all())
    ends = shaped(torch.tensor([0.0, 1.0]), density)
    assert bool(torch.isfinite(ends).all())
    assert ends.abs().max() <= -math.log(-math.log1p(-LEAST)) < 18  # the largest noise there can be


def test_half_precision_is_perturbed_in_single() -> None:
    for kind in (torch.float16, torch.bfloat16):
        found = gradient(SCORES.to(kind), LABELS, "ap", samples=64)
        assert found.dtype == kind
        exact = gradient(SCORES.to(kind).float(), LABELS, "ap", samples=64)
        torch.testing.assert_close(found.float(), exact, rtol=0.02, atol=1e-3)


def test_padding_is_not_perturbed_into_the_list() -> None:
    mask = torch.tensor([True, True, True, True, False])
    padded = torch.cat((SCORES, torch.tensor([1e9])))
    found = gradient(padded, torch.cat((LABELS, torch.tensor([1]))), "ap", mask=mask, samples=20_000)
    assert found[4] == 0
    wanted = gradient(SCORES, LABELS, "ap", samples=20_000)
    torch.testing.assert_close(found[:4], wanted, rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -1.0}, "noise must be a finite number of at least 0, but it is -1.0"),
        ({"noise": math.nan}, "noise must be a finite number of at least 0"),
        ({"noise": "much"}, "noise must be a number of at least 0 or \"auto\", but it is 'much'"),
        ({"noise": True}, "noise must be a finite number of at least 0, but it is True"),
        ({"samples": 0}, "samples must be a whole number of at least 1, but it is 0"),
        ({"samples": 2.5}, "samples must be a whole number of at least 1, but it is 2.5"),
        ({"samples": "many"}, "samples must be a whole number"),
        ({"likelihood": -0.1}, "likelihood must be a finite number of at least 0, but it is -0.1"),
        ({"likelihood": math.inf}, "likelihood must be a finite number of at least 0"),
        ({"likelihood": "much"}, "likelihood must be a number of at least 0 or \"auto\", but it is 'much'"),
        ({"likelihood": True}, "likelihood must be a finite number of at least 0, but it is True"),
        ({"generator": 5}, "generator must be a torch.Generator, but it is a int"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as raised:
        dl.direct_loss(SCORES, LABELS, "ap", **options)
    assert message in str(raised.value)
    with pytest.raises(dl.DirectLossError):
        dl.DirectLoss("ap", **options)


@pytest.mark.parametrize("noise", [0, None])
def test_without_noise_there_is_a_value_but_no_gradient_to_follow(noise: float | None) -> None:
    for name in ("ap", "f1", "error"):
        assert dl.direct_loss(SCORES, LABELS, name, noise=noise) == dl.direct_loss(SCORES, LABELS, name)
        with pytest.raises(dl.DirectLossError, match=r"noise must be positive: .*Or pass epsilon and sign"):
            gradient(SCORES, LABELS, name, noise=noise)
        assert gradient(SCORES, LABELS, name, noise=noise, sign="both").any()


def test_a_generator_of_another_device_is_refused() -> None:
    class Elsewhere:
        type = "cuda"

    class Fake(torch.Generator):
        device = Elsewhere()  # type: ignore[assignment]

    with pytest.raises(dl.DirectLossError, match="generator must be on the device of the scores, cpu"):
        gradient(SCORES, LABELS, "ap", generator=Fake())


def test_scores_that_are_not_floating_point_are_refused() -> None:
    with pytest.raises(dl.DirectLossError, match="scores must be floating point"):
        dl.direct_loss(torch.tensor([1, 2]), torch.tensor([0, 1]), "ap", noise=1.0)


@pytest.mark.parametrize("name", ["ap", "f1"])
@pytest.mark.parametrize("samples", ["auto", 10])
def test_the_expected_metric_without_noise_is_the_metric(name: str, samples: int | str) -> None:
    scores, target = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 1, 0])
    found = dl.expected_metric(scores, target, name, noise=0, samples=samples)
    assert float(found) == pytest.approx(1 - float(dl.direct_loss(scores, target, name)))


@pytest.mark.parametrize("noise", [1e-40, 1e300])
def test_noise_out_of_range_is_refused(noise: float) -> None:
    with pytest.raises(dl.DirectLossError, match="noise must be 0, or from 1e-20 to 1e\\+20"):
        dl.DirectLoss("ap", noise=noise)


def test_huge_scores_over_little_noise_have_a_finite_gradient() -> None:
    scores = torch.tensor([[3e38, -3e38, 1.0]], requires_grad=True)
    dl.direct_loss(scores, torch.tensor([1]), "accuracy", noise=0.1).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
