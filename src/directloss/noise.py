"""Random noise on the scores, which turns a step function, the metric, into one with a gradient: its expectation.

    output            z                        the randomised predictor             likelihood
    ranking           uniform on (-1, 1)       each score moves by up to ``noise``  binary cross-entropy
    class             Gumbel                   softmax of ``scores / noise``        cross-entropy
    yes or no         logistic                 sigmoid of ``scores / noise``        binary cross-entropy
    structured        Gumbel                   perturb and maximise                 structured hinge

The perturbed scores are ``s + noise * z``. `directloss.moves` and `directloss.theorem` average over draws of z.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, check_generator, check_not_negative, fail
from directloss._dynamo import outside_graphs

DRAWN = 512
"""``samples="auto"`` draws this many perturbed scores for each list, or one per score if it is longer: a long list
averages over its own items."""
DRAWN_IN_ALL = 8192
"""Of many lists together it draws no more than this, or one per score: a long batch averages over its lists."""
LEAST = 2.0**-24
"""Half the gap between 1 and the next lower float32: uniform numbers stay this far from 0 and 1."""
WIDEST = 1e20
"""The noise is at most this, and at least its inverse, so that scores over the noise are finite."""
DENSITIES = ("uniform", "gumbel", "logistic")


class Noise(NamedTuple):
    """The validated noise settings of a loss."""

    scale: float | Tensor
    """A number, or one per problem, shape ``b``."""
    samples: int | None
    """None for the automatic number."""
    generator: torch.Generator | None

    def count(self, scores: Tensor) -> int:
        """The number of draws for lists ``(..., n)``."""
        if self.samples is not None:
            return self.samples
        return max(1, min(DRAWN // scores.shape[-1], DRAWN_IN_ALL // scores.numel()))

    @property
    def silent(self) -> bool:
        """Whether there is no noise."""
        return not isinstance(self.scale, Tensor) and self.scale == 0

    def uniform(self, scores: Tensor) -> Tensor:
        """Random numbers from 0 to 1, shape ``(draws, *scores.shape)``, in float32 or wider."""
        if self.generator is not None and self.generator.device.type != scores.device.type:
            fail("generator", f"must be on the device of the scores, {scores.device}", f"on {self.generator.device}")
        shape = (self.count(scores), *scores.shape)
        dtype = torch.promote_types(scores.dtype, torch.float32)
        if self.generator is None:
            return torch.rand(shape, dtype=dtype, device=scores.device)
        return _drawn_from(self.generator, shape, dtype)

    def perturb(self, scores: Tensor, density: str) -> Tensor:
        """Scores plus noise, shape ``(draws, *scores.shape)``, in float32 or wider; differentiable in the scores."""
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.silent:
            return wide.unsqueeze(0)
        if density == "uniform" and not isinstance(self.scale, Tensor):  # one operation less, and the same numbers
            return torch.add(wide, self.uniform(scores) - 0.5, alpha=2 * self.scale)
        drawn = shaped(self.uniform(scores), density)
        if isinstance(self.scale, Tensor):
            return wide + drawn * self.scale.to(wide).reshape(self.scale.shape + (1,) * (wide.dim() - self.scale.dim()))
        return torch.add(wide, drawn, alpha=self.scale)


@outside_graphs
def _drawn_from(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Random numbers from 0 to 1; graphs cannot hold a generator."""
    return torch.rand(shape, dtype=dtype, device=generator.device, generator=generator)


def shaped(uniform: Tensor, density: str) -> Tensor:
    """Standard noise from uniform random numbers, always finite.

    Examples:
        >>> shaped(torch.tensor([0.25, 0.5]), "uniform")
        tensor([-0.5000,  0.0000])
    """
    check_choice("density", density, DENSITIES)
    if density == "uniform":
        return torch.add(uniform, uniform - 1)
    inside = uniform.clamp(LEAST, 1 - LEAST)
    return -(-inside.log()).log() if density == "gumbel" else inside.logit()


def check_noise(noise: object, samples: object, generator: object, advised: float = 0.0) -> Noise:
    """The noise settings; ``"auto"`` means the ``advised`` scale and None means 0."""
    if isinstance(noise, str) and noise != "auto":
        fail("noise", 'must be a number of at least 0 or "auto"', repr(noise))
    scale = advised if isinstance(noise, str) else 0.0 if noise is None else check_not_negative("noise", noise)
    if scale and not 1 / WIDEST <= scale <= WIDEST:
        fail("noise", f"must be 0, or from {1 / WIDEST:g} to {WIDEST:g}", noise, "Scale the scores instead.")
    count = None if isinstance(samples, str) and samples == "auto" else check_count("samples", samples)
    return Noise(scale, count, check_generator(generator))
