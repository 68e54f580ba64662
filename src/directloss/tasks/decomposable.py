"""Structured outputs that decompose over parts: one solver for both inferences.

An output is a tensor ``y`` in the shape of the scores: how often it uses each part (an edge, a cell, an item). With

    F(y) = sum_p score_p * y_p          L(y) = constant + sum_p cost_p(target) * y_p

the augmented objective is ``F + sign * epsilon * L = constant + sum_p (score_p + sign * epsilon * cost_p) * y_p``, so
the solver for prediction also solves the loss-augmented problem, with other scores (Song et al., ICML 2016, Sec. 3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_choice, check_finite, check_labels, check_same_shape, fail
from directloss.task import Defaults, Task
from directloss.tasks._likelihood import wide

GivenCosts = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""A user-defined loss: maps the target to part costs and a constant, L = constant + sum_p cost_p * y_p."""

NO_PADDING = "Parts of a structured output cannot be padding; leave out whole problems with weight=0."
NOISE, EPSILON = 0.1, 0.5
"""The automatic noise and epsilon, in units of a problem's scores and costs (`Decomposable.unit`). If the scores are
minus the costs, augmented inference sees half and one and a half times the costs. A perfect prediction keeps its output
under both, so it has no gradient; beyond twice that epsilon it would have one."""
MARKED = 0.2
"""Factor of epsilon if the target marks an output: scores are not costs there, and a larger epsilon leads to
implausible outputs."""
TRIALS = 32
"""Random outputs that measure the unit of scores: it is then right to about an eighth."""
REMEMBERED, ENTRY = 1 << 26, 300
"""Bytes for the best outputs of a task's problems; those of an entry beside its output, about."""


NamedLoss = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""A share ``L = (constant + sum_p cost_p * y_p) / whole``: costs, constant and whole from the target ``(..., parts)``.
For 0/1 outputs these are sums of whole numbers, so they are exact.
"""


def hamming(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of parts in which output and target differ, ``mean_p |y_p - t_p|``: 0 only for the target itself."""
    return 1 - 2 * t, t.sum(-1), t.new_full((), t.shape[-1])


def missed(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of the target's parts that the output misses, ``1 - sum_p t_p y_p / sum_p t_p``; 0 for an empty target."""
    return -t, t.sum(-1), t.sum(-1)


class Decomposable(Task):
    """The base of tasks whose outputs are counts of parts, in the shape of the scores. Subclasses implement `solve`.

    ``loss`` is the name of a loss, ``"regret"``, or a function from the target to part costs and a constant. ``truth``
    computes the true output from the target if the target is not that output itself.
    """

    defaults = Defaults(
        density="logistic",  # centred, as the level of the scores may matter
        no_item_weights='put the weights into the part costs: for loss="regret", into the costs of the target; '
        "otherwise write your own loss, a function that returns the part costs",
    )
    maximize: bool = False
    """Whether the target of ``"regret"`` holds values to maximise instead of costs."""
    problem_shape: tuple[int, ...] | None = None
    """The shape of the scores of one problem, if fixed; `shape_words` has it in words."""

    def __init__(
        self,
        loss: str | GivenCosts,
        truth: Callable[[Tensor], Tensor] | None,
        named: Mapping[str, NamedLoss] = MappingProxyType({"hamming": hamming, "missed": missed}),
    ) -> None:
        if not callable(loss):
            check_choice("loss", loss, [*named, "regret"])
        self.criterion = loss
        self._named = named.get(loss) if isinstance(loss, str) else None
        self._make_truth = truth
        self._best = Answers()
        self._contrasts: dict[tuple[int, ...], Tensor] = {}

    @abstractmethod
    def solve(self, scores: Tensor) -> Tensor:
        """The best output for any scores, in their shape and dtype; float32 or wider, without gradient."""

    def predict(self, scores: Tensor) -> Tensor:
        return self.solve(wide(scores.detach()))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        scores = wide(scores.detach())
        if isinstance(epsilon, Tensor):
            epsilon = epsilon.to(scores).reshape(epsilon.shape + (1,) * self.event_dims)
        return self.solve(scores + sign * epsilon * self.costs(target, scores))

    def doubt_regret(self, regret: Tensor, costs: Tensor) -> None:
        """Warn if outputs cost less than the best ones, by more than rounding errors."""

    def truth(self, target: Tensor) -> Tensor:
        """The target itself if it marks the true output; the best output for ``loss="regret"``."""
        if self._make_truth is not None:
            return wide(self._make_truth(target))
        if self.criterion == "regret":
            return self._best_outputs(self.costs(target, wide(target)))
        if self._named is None:
            check_labels(target, (0, 1), "Pass truth, a function that computes the true output from the target.")
        return wide(target)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        output = wide(output)
        if self._named is not None:
            costs, constant, whole = self._share(target, output)
            return (((costs * self._flat(output)).sum(-1) + constant) / whole).clamp(0, 1)
        if self.criterion == "regret":
            costs = self.costs(target, output)
            regret = self._sum(costs * (output - self._best_outputs(costs)))
            self.doubt_regret(regret, costs)
            return regret.clamp(min=0)
        costs, constant = self._given(target, output)
        return self._sum(costs * output) + constant

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        """``F = sum_p score_p * y_p``."""
        scores = wide(scores)
        return self._sum(scores * output.to(scores.dtype))

    def costs(self, target: Tensor, like: Tensor) -> Tensor:
        """The cost of each part, in the shape and type of ``like`` (scores or an output)."""
        if self._named is not None:
            costs, _, whole = self._share(target, like)
            return (costs / whole[..., None]).expand(self._flat(like).shape).reshape(like.shape)
        if self.criterion == "regret":
            return -target.to(like) if self.maximize else target.to(like)
        return self._given(target, like)[0]

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        self._check_shape(scores)
        if isinstance(self.criterion, str):
            check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            if self._named is not None:
                check_labels(target, (0, 1), NO_PADDING)
                self.check_truth(target)
            elif self.criterion == "regret":
                check_finite(target, "target")

    def _check_shape(self, scores: Tensor) -> tuple[int, ...]:
        """The shape of one problem."""
        shape = tuple(scores.shape[scores.dim() - self.event_dims :])
        if self.problem_shape not in (None, shape):
            fail("scores", f"must have shape {self.shape_words}", f"of shape {tuple(scores.shape)}")
        return shape

    def check_truth(self, target: Tensor) -> None:
        """Raise `DirectLossError` if a target that marks an output marks an impossible one."""

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """Minus the loss, in the unit of the problem, unless the loss is a share."""
        return 1 - losses if self._named is not None else -losses

    # ------------------------------------------------------------------ scale and companion

    def unit(self, scores: Tensor) -> Tensor:
        """What a part contributes to the difference in score between two outputs, shape ``b``; differentiable.

            unit(s)^2  =  E (F(y) - F(y'))^2 / E |y - y'|^2

        over the outputs y and y' for random scores. Whatever all outputs share (the level of all scores if they all use
        equally many parts, the potential of a node that all paths pass) cancels. Where outputs may be empty, as in a
        knapsack, it is about the root mean square of the scores, otherwise rather their standard deviation.

        If no two outputs differ in score, it is the largest absolute score, or 1 if that is 0.
        """
        shape, flat = self._check_shape(scores), self._flat(wide(scores))
        largest = flat.detach().abs().amax(-1)
        floor = torch.where(largest > 0, largest, 1.0)
        contrasts = (flat / floor[..., None]) @ self._contrast(shape).to(flat).T
        size = torch.linalg.vector_norm(contrasts, dim=-1)
        return floor * torch.where(size > 1e-6, size, 1.0)

    def _contrast(self, shape: tuple[int, ...]) -> Tensor:
        """Some outputs for problems of this shape, minus their mean and divided by their distance from it, flat."""
        if shape not in self._contrasts:
            outputs = self._flat(self.trial_outputs(shape)).double().cpu()
            outputs = outputs - outputs.mean(0)
            self._contrasts[shape] = outputs / outputs.norm().clamp(min=1e-9)
        return self._contrasts[shape]

    def trial_outputs(self, shape: tuple[int, ...]) -> Tensor:
        """Outputs for random scores, always the same, shape ``(TRIALS, *shape)``."""
        return self.solve(torch.randn(TRIALS, *shape, generator=torch.Generator().manual_seed(0)))

    def noise_scale(self, scores: Tensor) -> Tensor | None:
        """A tenth of the unit of a problem's scores."""
        return NOISE * self.unit(scores)

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
        """One over the unit of a problem's costs: F and L are sums over the same parts. A fifth of that if the target
        marks an output.
        """
        return (MARKED if self._named is not None else 1.0) / self.unit(self.costs(target, wide(scores)))

    def likelihood(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The structured hinge ``(max_y F(y) + epsilon L(y) - F(truth)) / epsilon`` with the automatic epsilon, up to a
        constant. None if the target does not determine the true output.

        It is in the unit of the loss, which it bounds. Epsilon is a function of the scores and its derivative belongs
        to the gradient: otherwise the scores would grow to meet a margin that grows with them.
        """
        if not isinstance(self.criterion, str) and self._make_truth is None:
            return None
        scores = wide(scores)
        epsilon = EPSILON * self.unit(scores) * self.unit_epsilon(scores.detach(), target)
        epsilon = epsilon.clamp(max=torch.finfo(epsilon.dtype).max)
        with torch.no_grad():
            worst, truth = self.augmented(scores, target, epsilon.detach(), +1), self.truth(target)
        return (self.score(scores, worst) - self.score(scores, truth)) / epsilon

    # ------------------------------------------------------------------ parts

    def _best_outputs(self, costs: Tensor) -> Tensor:
        """The best output of each problem, cached: the same problems come back in every epoch and every draw of the
        noise.
        """
        problems = costs.detach().reshape(-1, *costs.shape[costs.dim() - self.event_dims :])
        return self._best.of(problems, lambda new: self.solve(-new)).reshape(costs.shape)

    def _share(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The terms of the named loss, with 1 for a whole of 0."""
        assert self._named is not None
        t = self._flat(target.to(like))
        costs, constant, whole = self._named(t)
        return costs, constant, torch.where(whole > 0, whole, 1.0)

    def _given(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """The result of the user's loss, expanded to full shape."""
        answer = self.criterion(target) if callable(self.criterion) else None
        if not isinstance(answer, tuple) or len(answer) != 2:
            fail("loss(target)", "must return the costs of the parts and a constant", f"a {type(answer).__name__}")
        batch = like.shape[: like.dim() - self.event_dims]
        costs, constant = (torch.as_tensor(part, dtype=like.dtype, device=like.device) for part in answer)
        try:
            return costs.expand(like.shape), constant.expand(batch)
        except RuntimeError:
            shapes = f"of shapes {tuple(costs.shape)} and {tuple(constant.shape)}"
            fail("loss(target)", f"must give costs {tuple(like.shape)} and a constant {tuple(batch)} here", shapes)

    def _flat(self, tensor: Tensor) -> Tensor:
        return tensor.flatten(-self.event_dims)

    def _sum(self, tensor: Tensor) -> Tensor:
        return self._flat(tensor).sum(-1)


def refuse_truth(rule: str, value: str, what: str, instead: str = "costs") -> NoReturn:
    """Raise the error for a target that marks an impossible output."""
    fail("target", rule, value, f'For true {instead} instead of a {what}, use loss="regret".')


class Answers:
    """The outputs of solved problems; the oldest are forgotten when all together take more than `REMEMBERED` bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._outputs: OrderedDict[bytes, Any] = OrderedDict()

    def of(self, problems: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        """``solve(problems)`` for problems ``(b, ...)``, without solving known ones again."""
        if not len(problems):
            return torch.zeros_like(problems)
        keys = [blake2b(problem.tobytes(), digest_size=16).digest() for problem in problems.cpu().numpy()]
        outputs = {key: self._outputs[key] for key in keys if key in self._outputs}
        new = {key: place for place, key in enumerate(keys) if key not in outputs}
        if new:
            solved = solve(problems[list(new.values())]).cpu().numpy()
            small = solved.astype(np.int8)  # most outputs are 0/1
            for key, output in zip(new, small if (small == solved).all() else solved, strict=True):
                outputs[key] = self._outputs[key] = output.copy()  # a view would keep the whole batch
                self.size += ENTRY + output.nbytes
        while self.size > REMEMBERED:
            self.size -= ENTRY + self._outputs.popitem(last=False)[1].nbytes
        return torch.from_numpy(np.stack([outputs[key] for key in keys])).to(problems)

    def __reduce__(self) -> tuple[Any, ...]:
        return Answers, ()  # a copy in another process starts empty


def by_kernel(kernel: Callable[..., Any], scores: Tensor, *problem: Any) -> Tensor:
    """The output of a kernel of `directloss.kernels.decisions` for scores ``(..., parts)``, in their dtype."""
    table = scores.detach().reshape(-1, scores.shape[-1]).cpu().double().contiguous().numpy()
    check_solvable(table)
    used = torch.zeros(table.shape, dtype=torch.float64)
    kernel(table, *problem, used.numpy())
    return used.to(scores).reshape(scores.shape)


def check_solvable(table: np.ndarray) -> None:
    """Raise on scores that cannot be compared, even with ``check_values=False``."""
    if not np.isfinite(table).all():
        fail("scores", "must be finite", f"not, in problem {int(np.argwhere(~np.isfinite(table))[0][0])}")
