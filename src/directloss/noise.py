"""The theorem's density: random noise on the scores, shared by both inferences.

Theorem 1 differentiates an expectation over data with a density. A batch is a handful of points: its loss is a step
function, with a gradient that is zero almost everywhere. So the scores are perturbed, ``s + noise * z``, and the
gradient is averaged over draws of z, which gives the gradient of the expected loss of a randomised predictor.

    output            z           the predictor                its likelihood (the companion)
    ranking           Gumbel      Plackett-Luce                softmax over the list
    class             Gumbel      softmax                      cross-entropy
    yes or no         logistic    independent, sigmoid         binary cross-entropy
    structured        Gumbel      perturb and maximise         structured hinge
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, check_generator, check_not_negative, fail

DRAWN = 4096
"""``samples="auto"`` draws this many perturbed scores in total, or one per score if there are more: a long list
averages over its own items, and a call never costs much more than one without noise on twice as many scores."""
LEAST = 2.0**-24
"""Half the gap between 1 and the next lower float32: uniform numbers stay this far from 0 and 1."""
DENSITIES = ("gumbel", "logistic")


class Noise(NamedTuple):
    """The validated noise settings of a loss."""

    scale: float | Tensor
    """A number, or one per problem, shape ``b``."""
    samples: int | None
    """None for the automatic number."""
    generator: torch.Generator | None

    def count(self, scores: int) -> int:
        """The number of draws for this many scores."""
        return max(1, DRAWN // scores) if self.samples is None else self.samples

    @property
    def silent(self) -> bool:
        """Whether there is no noise."""
        return not isinstance(self.scale, Tensor) and self.scale == 0

    def perturb(self, scores: Tensor, density: str) -> Tensor:
        """Scores plus noise, shape ``(draws, *scores.shape)``, in float32 or wider; differentiable in the scores."""
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.silent:
            return wide.unsqueeze(0)
        drawn = draw((self.count(scores.numel()), *scores.shape), density, wide, self.generator)
        if isinstance(self.scale, Tensor):
            return wide + drawn * self.scale.to(wide).reshape(self.scale.shape + (1,) * (wide.dim() - self.scale.dim()))
        return torch.add(wide, drawn, alpha=self.scale)


def draw(shape: tuple[int, ...], density: str, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard noise in the type and on the device of ``like``, always finite.

    Examples:
        >>> draw((2, 3), "gumbel", torch.zeros(3)).shape
        torch.Size([2, 3])
    """
    check_choice("density", density, DENSITIES)
    if generator is not None and generator.device.type != like.device.type:
        fail("generator", f"must be on the device of the scores, {like.device}", f"on {generator.device}")
    u = torch.empty(shape, dtype=like.dtype, device=like.device)
    u.uniform_(generator=generator).clamp_(LEAST, 1 - LEAST)
    return u.log_().neg_().log_().neg_() if density == "gumbel" else u.logit_()


def check_noise(noise: object, samples: object, generator: object, advised: float = 0.0) -> Noise:
    """The noise settings; ``"auto"`` means the ``advised`` scale and None means 0."""
    if isinstance(noise, str) and noise != "auto":
        fail("noise", 'must be a number of at least 0 or "auto"', repr(noise))
    scale = advised if isinstance(noise, str) else 0.0 if noise is None else check_not_negative("noise", noise)
    count = None if isinstance(samples, str) and samples == "auto" else check_count("samples", samples)
    return Noise(scale, count, check_generator(generator))
