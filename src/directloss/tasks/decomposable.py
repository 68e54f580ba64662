"""Structured outputs that decompose over parts: one solver for both inferences.

An output is a tensor ``y`` in the shape of the scores: how often it uses each part (an edge, a cell, an item). With

    F(y) = sum_p score_p * y_p          L(y) = constant + sum_p cost_p(target) * y_p

the augmented objective is ``F + sign * epsilon * L = constant + sum_p (score_p + sign * epsilon * cost_p) * y_p``, so
the solver for prediction also solves the loss-augmented problem, with other scores (Song et al., ICML 2016, Sec. 3).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from directloss._checks import check_choice, check_finite, check_labels, check_same_shape, fail
from directloss.task import Solve, Solved, Task
from directloss.tasks._likelihood import wide

GivenCosts = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""A user-defined loss: maps the target to part costs and a constant, L = constant + sum_p cost_p * y_p."""

NO_PADDING = "Parts of a structured output cannot be padding; leave out whole problems with weight=0."
NOISE = 0.1
"""The automatic noise, in standard deviations of a problem's scores. The automatic epsilon is then half of that unit:
if the scores are minus the costs, augmented inference sees half and one and a half times the costs. A perfect
prediction keeps its output under both, so it has no gradient; beyond twice that epsilon it would have one."""
MARKED = 0.2
"""Factor of epsilon if the target marks an output: scores are not costs there, and a larger epsilon leads to
implausible outputs."""
MARGIN = 1.0
"""Margin of the warm-up hinge if the target holds costs, in the same unit: costs count as much as scores."""
REMEMBERED = 20_000_000
"""Maximal size of all cached best outputs together, in numbers."""


INFERENCES = ("predict", "infer", "augmented", "score")
"""Methods that switch off `fused` when a subclass overrides them."""


NamedLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A share ``L = (constant + sum_p cost_p * y_p) / whole``: costs, constant and whole from the target and the part
weights, both ``(..., parts)``. For 0/1 outputs these are sums of whole numbers, so they are exact.
"""


def hamming(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of parts in which output and target differ, ``mean_p |y_p - t_p|``: 0 only for the target itself."""
    return w * (1 - 2 * t), (w * t).sum(-1), w.sum(-1)


def missed(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of the target's parts that the output misses, ``1 - sum_p t_p y_p / sum_p t_p``; 0 for an empty target."""
    return -w * t, (w * t).sum(-1), (w * t).sum(-1)


class Decomposable(Task):
    """The base of tasks whose outputs are counts of parts, in the shape of the scores. Subclasses implement `solve`.

    ``loss`` is the name of a loss, ``"regret"``, or a function from the target to part costs and a constant. ``truth``
    computes the true output from the target if the target is not that output itself.
    """

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
        self.kind = loss
        self._named = named.get(loss) if isinstance(loss, str) else None
        self._make_truth = truth
        self._weight: Tensor | None = None
        self._best: OrderedDict[bytes, Tensor] = OrderedDict()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if any(getattr(cls, name) is not getattr(Decomposable, name) for name in INFERENCES):
            cls.fused = Task.fused  # type: ignore[method-assign]

    @abstractmethod
    def solve(self, scores: Tensor) -> Tensor:
        """The best output for any scores, in their shape and dtype; float32 or wider, without gradient."""

    def predict(self, scores: Tensor) -> Tensor:
        return self.solve(wide(scores.detach()))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        scores = wide(scores.detach())
        output = self.solve(scores + sign * self._per_part(epsilon, scores) * self.costs(target, scores))
        self.doubt(scores, output, target, epsilon, sign)
        return output

    def fused(self, scores: Tensor, target: Tensor, how: Solve) -> Solved | None:
        """One call of the solver for the plain problems and the augmented problems of all draws."""
        self.check(scores, target, how.check_values)
        fixed = wide(scores.detach())
        if not how.gradient:
            return Solved(self.loss(self.solve(fixed), target), None)
        rows = fixed[None] if how.noisy is None else how.noisy
        epsilon = how.epsilon * self.unit_epsilon(scores, target) if how.automatic else how.epsilon
        step = self._per_part(epsilon, fixed)
        shift = step * self.costs(target, fixed)
        asked = [fixed[None], *(rows + sign * shift for sign in how.signs)]
        if len(how.signs) == 1 and how.noisy is not None:  # with both signs the plain inference cancels
            asked.append(rows)
        clean, direct, *rest = torch.split(self.solve(torch.cat(asked)), [len(one) for one in asked])
        for output, sign in zip((direct, *rest), how.signs, strict=False):
            self.doubt(rows, output, target, epsilon, sign)
        gap = how.signs[0] / len(how.signs) * (direct - (rest[0] if rest else clean)).mean(0)
        # No change means no gradient, however small epsilon is; the clamp leaves room for sums.
        most = torch.finfo(fixed.dtype).max / 1024
        return Solved(self.loss(clean[0], target), torch.where(gap == 0, 0.0, gap / step).clamp(-most, most))

    def doubt(self, scores: Tensor, output: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> None:
        """Warn if an output of augmented inference cannot be optimal."""

    def doubt_regret(self, regret: Tensor, costs: Tensor) -> None:
        """Warn if outputs cost less than the best ones, by more than rounding errors."""

    def _per_part(self, epsilon: float | Tensor, scores: Tensor) -> float | Tensor:
        """One number per problem, in the dtype of the scores and broadcastable to the parts."""
        if not isinstance(epsilon, Tensor):
            return epsilon
        return epsilon.to(scores).reshape(epsilon.shape + (1,) * self.event_dims)

    def truth(self, target: Tensor) -> Tensor:
        """The target itself if it marks the true output; the best output for ``loss="regret"``."""
        if self._make_truth is not None:
            return wide(self._make_truth(target))
        if self.kind == "regret":
            return self._best_outputs(self.costs(target, wide(target)))
        if self._named is None:
            check_labels(target, (0, 1), "Pass truth, a function that computes the true output from the target.")
        return wide(target)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        output = wide(output)
        if self._named is not None:
            costs, constant, whole = self._share(target, output)
            return (((costs * self._flat(output)).sum(-1) + constant) / whole).clamp(0, 1)
        if self.kind == "regret":
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
        if self.kind == "regret":
            costs = -target.to(like) if self.maximize else target.to(like)
            return costs if self._weight is None else costs * self._weight.to(like)
        return self._given(target, like)[0]

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        if self.problem_shape not in (None, tuple(scores.shape[scores.dim() - self.event_dims :])):
            fail("scores", f"must have shape {self.shape_words}", f"of shape {tuple(scores.shape)}")
        if isinstance(self.kind, str):
            check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            if self._named is not None:
                check_labels(target, (0, 1), NO_PADDING)
                self.check_truth(target)
            elif self.kind == "regret":
                check_finite(target, "target")

    def check_truth(self, target: Tensor) -> None:
        """Raise `DirectLossError` if a target that marks an output marks an impossible one."""

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """Minus the loss, in the unit of the problem, unless the loss is a share."""
        return 1 - losses if self._named is not None else -losses

    def weighted(self, weight: Tensor) -> Task | None:
        """This task with weighted parts in its loss; scores are not weighted."""
        if not isinstance(self.kind, str):
            return None
        task = copy.copy(self)
        task._weight = weight
        task._best = OrderedDict()
        return task

    no_item_weights = "put the weights into your loss, the function that returns the part costs, which is just as exact"

    # ------------------------------------------------------------------ scale and companion

    def noise_scale(self, scores: Tensor) -> Tensor | None:
        """A tenth of the standard deviation of a problem's scores, in any unit."""
        return NOISE * _deviation(self._flat(wide(scores)))

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
        """One over the standard deviation of a problem's part costs: F and L are sums over the same parts. A fifth of
        that if the target marks an output.
        """
        return (MARKED if self._named is not None else 1.0) / self._deviation_of_costs(scores, target)

    def _deviation_of_costs(self, scores: Tensor, target: Tensor) -> Tensor:
        return _deviation(self._flat(self.costs(target, wide(scores))))

    def likelihood(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The structured hinge, with a margin in the unit of the scores, for the warm-up. None if the target does not
        determine the true output.
        """
        if not isinstance(self.kind, str) and self._make_truth is None:
            return None
        scores = wide(scores)
        with torch.no_grad():
            margin = MARGIN if self.kind == "regret" else NOISE
            unit = _deviation(self._flat(scores)) / self._deviation_of_costs(scores, target)
            worst, truth = self.augmented(scores, target, margin * unit, +1), self.truth(target)
        return self.score(scores, worst) - self.score(scores, truth)

    # ------------------------------------------------------------------ parts

    def _best_outputs(self, costs: Tensor) -> Tensor:
        """The best output of each problem, cached: the same problems come back in every epoch and every draw of the
        noise.
        """
        problems = costs.detach().reshape(-1, *costs.shape[costs.dim() - self.event_dims :])
        most = REMEMBERED // max(1, problems[:1].numel())
        return remembered(self._best, problems, lambda new: self.solve(-new), most).reshape(costs.shape)

    def _share(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The terms of the named loss, with 1 for a whole of 0."""
        assert self._named is not None
        t = self._flat(target.to(like))
        weight = t.new_ones(t.shape[-1]) if self._weight is None else self._flat(self._weight.to(t))
        costs, constant, whole = self._named(t, weight)
        return costs, constant, torch.where(whole > 0, whole, 1.0)

    def _given(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """The result of the user's loss, expanded to full shape."""
        answer = self.kind(target) if callable(self.kind) else None
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


def refuse_truth(rule: str, found: str, what: str, instead: str = "costs") -> NoReturn:
    """Raise the error for a target that marks an impossible output."""
    fail("target", rule, found, f'For true {instead} instead of a {what}, use loss="regret".')


def remembered(
    answers: OrderedDict[bytes, Tensor], problems: Tensor, solve: Callable[[Tensor], Tensor], most: int
) -> Tensor:
    """``solve(problems)`` for problems ``(b, ...)``, with the ``most`` recent results cached in ``answers``."""
    keys = [problem.tobytes() for problem in problems.cpu().numpy()]
    new = {key: place for place, key in enumerate(keys) if key not in answers}
    if new:
        answers.update(zip(new, solve(problems[list(new.values())]).cpu(), strict=True))
    found = torch.stack([answers[key] for key in keys]) if keys else torch.zeros_like(problems)
    while len(answers) > most:
        answers.popitem(last=False)
    return found.to(problems)


def by_kernel(kernel: str, scores: Tensor, *problem: Any) -> Tensor:
    """The result of a kernel of `directloss.kernels.decisions` for scores ``(..., parts)``, in their dtype."""
    from directloss.kernels import decisions  # numba is slow to import

    table = scores.detach().reshape(-1, scores.shape[-1]).cpu().double().contiguous().numpy()
    check_solvable(table)
    used = torch.zeros(table.shape, dtype=torch.float64)
    getattr(decisions, kernel)(table, *problem, used.numpy())
    return used.to(scores).reshape(scores.shape)


def check_solvable(table: np.ndarray) -> None:
    """Raise on scores that cannot be compared, even with ``check_values=False``."""
    if not np.isfinite(table).all():
        fail("scores", "must be finite", f"not, in problem {int(np.argwhere(~np.isfinite(table))[0][0])}")


def name_of(value: object) -> str:
    """A stable name for a function or setting, without addresses."""
    if not callable(value):
        return repr(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _deviation(flat: Tensor) -> Tensor:
    """The standard deviation over the parts; if all are equal, their absolute value, or 1 if that is 0."""
    found = flat.std(-1, correction=0)
    largest = flat.abs().amax(-1)
    floor = torch.where(largest > 0, largest, 1.0)
    return torch.where(found > 1e-6 * floor, found, floor)
