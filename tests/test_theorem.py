"""Theorem 1 itself: as epsilon -> 0, the direct gradient becomes the gradient of the expected loss.

Each `World` has an expected loss in closed form (through the normal distribution function). On a large fixed sample the
direct gradient must agree with the exact one up to four standard errors, estimated from the sample, plus a bias of
``slack * epsilon``: the theorem drops a term of that order. At a large epsilon the bias must be plainly visible. The
data have a density, so no noise is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.special import ndtr

import directloss as dl

Sample = tuple[Tensor, Tensor, Tensor]
"""Scores (problems, ...), target, and the Jacobian of the scores (problems, ..., parameters)."""


@dataclass(frozen=True)
class World:
    """A data distribution and a model for which everything is known."""

    task: str
    parameters: tuple[float, ...]
    expected_loss: Callable[[Tensor], Tensor]
    """The exact E[L] as a function of the parameters."""
    sample: Callable[[Tensor, torch.Generator, int], Sample]
    slack: float
    """The bias is at most ``slack * epsilon``: half the largest derivative of the gradient along the threshold."""
    size: int = 400_000

    def exact_gradient(self) -> Tensor:
        parameters = torch.tensor(self.parameters, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(self.expected_loss(parameters), parameters)[0]

    def estimate(self, epsilon: float, sign: int) -> tuple[Tensor, Tensor]:
        """The mean of the direct gradient over the sample, and its standard error."""
        generator = torch.Generator().manual_seed(20160619)
        parameters = torch.tensor(self.parameters, dtype=torch.float64)
        scores, target, jacobian = self.sample(parameters, generator, self.size)
        scores.requires_grad_()
        total = dl.direct_loss(scores, target, self.task, epsilon=epsilon, sign=sign, reduction="sum")
        (slope,) = torch.autograd.grad(total, scores)
        each = (slope.unsqueeze(-1) * jacobian).flatten(1, -2).sum(1) if slope.dim() > 1 else slope[:, None] * jacobian
        return each.mean(0), each.std(0) / self.size**0.5


# ---------------------------------------------------------------------------------------------- binary, linear


def linear_loss(w: Tensor) -> Tensor:
    """Labels 1 with probability 0.4; x ~ N(+-1/2, identity) in the plane; scores w1 x1 + w2 x2 + w3."""
    width = w[:2].norm()
    return 0.4 * ndtr(-(w[:2].sum() / 2 + w[2]) / width) + 0.6 * ndtr((w[2] - w[:2].sum() / 2) / width)


def linear_sample(w: Tensor, generator: torch.Generator, size: int) -> Sample:
    target = (torch.rand(size, generator=generator) < 0.4).long()
    x = torch.randn(size, 2, generator=generator, dtype=torch.float64) + (target[:, None] - 0.5)
    inputs = torch.cat([x, torch.ones(size, 1, dtype=torch.float64)], 1)
    return inputs @ w, target, inputs


# ---------------------------------------------------------------------------------------------- binary, nonlinear


def curved_score(w: Tensor, x: Tensor) -> Tensor:
    """Zero at x = w1^2 - sin w2 alone; w3 bends the scores and cannot change the loss."""
    return (x - w[0] ** 2 + torch.sin(w[1])) * (0.5 + torch.sigmoid(w[2] * x))


def curved_loss(w: Tensor) -> Tensor:
    """Labels are fair coins; x ~ N(+1, 1) for label 1 and N(-1, 4) for label 0."""
    zero = w[0] ** 2 - torch.sin(w[1])
    return (ndtr(zero - 1) + ndtr(-(zero + 1) / 2)) / 2


def curved_sample(w: Tensor, generator: torch.Generator, size: int) -> Sample:
    target = torch.randint(2, (size,), generator=generator)
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    x = torch.where(target == 1, 1 + noise, -1 + 2 * noise)
    own = w.repeat(size, 1).requires_grad_()  # a copy of the parameters for each sample gives one gradient for each
    scores = curved_score(own.T, x)
    return scores.detach(), target, torch.autograd.grad(scores.sum(), own)[0]


# ---------------------------------------------------------------------------------------------- three classes


def lines_loss(w: Tensor) -> Tensor:
    """Scores a_c x + b_c of three classes, x ~ N(1 - c, 1), classes equally likely.

    The highest of three lines with rising slopes: class 0 below the first crossing, class 2 above the second. The model
    has the classes the wrong way round, so the gradient is large.
    """
    slopes, heights = w[:3], w[3:]
    first = (heights[0] - heights[1]) / (slopes[1] - slopes[0])
    second = (heights[1] - heights[2]) / (slopes[2] - slopes[1])
    right = ndtr(first - 1) + (ndtr(second) - ndtr(first)) + ndtr(-1 - second)
    return 1 - right / 3


def lines_sample(w: Tensor, generator: torch.Generator, size: int) -> Sample:
    target = torch.randint(3, (size,), generator=generator)
    x = torch.randn(size, generator=generator, dtype=torch.float64) + 1 - target
    jacobian = torch.cat([torch.eye(3) * x[:, None, None], torch.eye(3).expand(size, 3, 3)], -1).double()
    return x[:, None] * w[:3] + w[3:], target, jacobian


# ---------------------------------------------------------------------------------------------- average precision


LOSS_BY_COUNT = {
    # 1 - AP by how many of the others stand above the single item.
    1: (0.0, 1 / 2, 2 / 3),  # the single item is the relevant one: AP = 1 / (1 + count)
    0: (5 / 12, 1 / 6, 0.0),  # the single item is the irrelevant one: AP = 7/12, 5/6, 1
}


def ap_loss(target: list[int]) -> Callable[[Tensor], Tensor]:
    """E[1 - AP] when one item has a fixed score and the others have noise: each is above it or not, independently."""
    one = 1 if sum(target) == 1 else 0
    single, others = target.index(one), [place for place, label in enumerate(target) if label != one]

    def loss(w: Tensor) -> Tensor:
        chance = [torch.ones((), dtype=torch.float64)]  # chance[m]: m of the others seen so far are above
        for above in ndtr(w[others] - w[single]):
            zero = torch.zeros((), dtype=torch.float64)
            chance = [p * (1 - above) + q * above for p, q in zip([*chance, zero], [zero, *chance], strict=True)]
        return torch.stack([p * level for p, level in zip(chance, LOSS_BY_COUNT[one], strict=False)]).sum()

    return loss


def ap_sample(target: list[int]) -> Callable[[Tensor, torch.Generator, int], Sample]:
    one = 1 if sum(target) == 1 else 0
    noisy = torch.tensor([label != one for label in target])

    def sample(w: Tensor, generator: torch.Generator, size: int) -> Sample:
        noise = torch.randn(size, len(target), generator=generator, dtype=torch.float64)
        jacobian = torch.eye(len(target), dtype=torch.float64).expand(size, -1, -1)
        return w + noise * noisy, torch.tensor(target).expand(size, -1).contiguous(), jacobian

    return sample


def ap_world(target: list[int], scores: tuple[float, ...]) -> World:
    return World("ap", scores, ap_loss(target), ap_sample(target), slack=0.05, size=200_000)


WORLDS = {
    "binary linear": World("error", (-0.2, 0.8, 0.5), linear_loss, linear_sample, slack=0.25),
    "binary nonlinear": World("error", (1.2, 0.4, 0.7), curved_loss, curved_sample, slack=0.25),
    "three classes": World("accuracy", (-0.6, 0.2, 0.9, 0.3, 0.4, 0.1), lines_loss, lines_sample, slack=0.25),
    "ap of 2": ap_world([1, 0], (0.2, 0.5)),
    "ap of 3, one relevant": ap_world([0, 1, 0], (0.3, 0.6, -0.2)),
    "ap of 3, two relevant": ap_world([1, 0, 1], (0.4, 0.1, -0.5)),
}


@pytest.mark.parametrize("sign", [+1, -1])
@pytest.mark.parametrize("name", WORLDS)
def test_direct_gradient_converges_to_the_gradient_of_the_expected_loss(name: str, sign: int) -> None:
    world = WORLDS[name]
    exact = world.exact_gradient()
    for epsilon in (0.3, 0.1, 0.03):
        mean, error = world.estimate(epsilon, sign)
        allowed = 4 * error + world.slack * epsilon
        assert bool(((mean - exact).abs() <= allowed).all()), f"epsilon {epsilon}: {mean} is not {exact} +- {allowed}"
    # What was allowed last is small against what was measured: the agreement means something.
    assert float(allowed.norm()) < 0.25 * float(exact.norm())


@pytest.mark.parametrize("sign", [+1, -1])
@pytest.mark.parametrize("name", WORLDS)
def test_a_large_epsilon_is_visibly_biased(name: str, sign: int) -> None:
    """Were it not, the test above would pass for a gradient that does not depend on epsilon."""
    mean, error = WORLDS[name].estimate(10.0, sign)
    assert bool(((mean - WORLDS[name].exact_gradient()).abs() > 8 * error).any())


@pytest.mark.parametrize("name", WORLDS)
def test_value_is_the_expected_loss(name: str) -> None:
    world = WORLDS[name]
    parameters = torch.tensor(world.parameters, dtype=torch.float64)
    scores, target, _ = world.sample(parameters, torch.Generator().manual_seed(1), world.size)
    losses = dl.direct_loss(scores, target, world.task, reduction="none").double()
    assert abs(losses.mean() - world.expected_loss(parameters)) <= 4 * losses.std() / world.size**0.5
