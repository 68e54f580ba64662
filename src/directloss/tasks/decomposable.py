"""Structured outputs that are sums over parts: one solver answers both inferences.

An output is a tensor ``y`` in the shape of the scores: how often each part (an edge, a cell, an item) is used. With

    F(y) = sum_p score_p * y_p          L(y) = constant + sum_p cost_p(target) * y_p

the augmented objective is ``F + sign * epsilon * L = constant + sum_p (score_p + sign * epsilon * cost_p) * y_p``, so
the solver that predicts also solves the loss-augmented problem, with other scores (Song et al., ICML 2016, Sec. 3).
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
"""A user's loss: from the target to the cost of each part and the constant, L = constant + sum_p cost_p * y_p."""

NO_PADDING = "Parts of a structured output cannot be padding; leave out whole problems with weight=0."
NOISE = 0.1
"""The automatic noise, in standard deviations of a problem's scores. The automatic epsilon is then half of that unit:
if the scores are minus the costs, augmented inference looks at half and at one and a half of the costs. A perfect
prediction keeps its output under both, and so has no gradient; beyond twice that epsilon it would not."""
MARKED = 0.2
"""How much smaller epsilon is where the target marks an output: scores are no costs there, and to look farther leads to
outputs that nobody would choose."""
MARGIN = 1.0
"""The margin of the warm-up's hinge where the target holds costs, in the same unit: costs count as much as scores."""
REMEMBERED = 20_000_000
"""How many numbers the remembered best outputs may have in all."""


INFERENCES = ("predict", "infer", "augmented", "score")
"""What a class of a user's own may replace, and is then asked for one by one."""


NamedLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A share ``L = (constant + sum_p cost_p * y_p) / whole``: costs, constant and whole from the target and the weights of
the parts, both ``(..., parts)``. For 0/1 outputs the sums are those of whole numbers, and exact.
"""


def hamming(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of all parts on which output and target differ, ``mean_p |y_p - t_p|``: 0 only for the target itself."""
    return w * (1 - 2 * t), (w * t).sum(-1), w.sum(-1)


def missed(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share of the target's parts that the output misses, ``1 - sum_p t_p y_p / sum_p t_p``; 0 for an empty target."""
    return -w * t, (w * t).sum(-1), (w * t).sum(-1)


class Decomposable(Task):
    """What all tasks have in common whose outputs are used parts, in the shape of the scores. Subclasses write `solve`.

    ``loss`` is the name of a loss, ``"regret"``, or a function from the target to the cost of each part and a constant.
    ``truth`` makes the true output from the target where the target is not that output itself.
    """

    maximize: bool = False
    """Whether the target of ``"regret"`` holds values, of which the most is best, and not costs."""
    problem_shape: tuple[int, ...] | None = None
    """The shape of the scores of one problem, if there is only one; `shape_words` has it in words."""

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
        """The best output for any scores, in their shape and type; float32 or wider, without gradient."""

    def predict(self, scores: Tensor) -> Tensor:
        return self.solve(wide(scores.detach()))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        scores = wide(scores.detach())
        output = self.solve(scores + sign * self._per_part(epsilon, scores) * self.costs(target, scores))
        self.doubt(scores, output, target, epsilon, sign)
        return output

    def fused(self, scores: Tensor, target: Tensor, how: Solve) -> Solved | None:
        """The problems as they are and the augmented ones of all draws, in one call of the solver."""
        self.check(scores, target, how.check_values)
        fixed = wide(scores.detach())
        if not how.gradient:
            return Solved(self.loss(self.solve(fixed), target), None)
        rows = fixed[None] if how.noisy is None else how.noisy
        epsilon = how.epsilon * self.unit_epsilon(scores, target) if how.automatic else how.epsilon
        step = self._per_part(epsilon, fixed)
        shift = step * self.costs(target, fixed)
        asked = [fixed[None], *(rows + sign * shift for sign in how.signs)]
        if len(how.signs) == 1 and how.noisy is not None:  # both signs need no third inference
            asked.append(rows)
        clean, direct, *rest = torch.split(self.solve(torch.cat(asked)), [len(one) for one in asked])
        for output, sign in zip((direct, *rest), how.signs, strict=False):
            self.doubt(rows, output, target, epsilon, sign)
        gap = how.signs[0] / len(how.signs) * (direct - (rest[0] if rest else clean)).mean(0)
        # Where nothing changes there is no gradient, however small epsilon is, and elsewhere room for sums.
        most = torch.finfo(fixed.dtype).max / 1024
        return Solved(self.loss(clean[0], target), torch.where(gap == 0, 0.0, gap / step).clamp(-most, most))

    def doubt(self, scores: Tensor, output: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> None:
        """Warn where an output of augmented inference cannot be the best one."""

    def doubt_regret(self, regret: Tensor, costs: Tensor) -> None:
        """Warn where outputs cost less than the best ones, by more than rounding errors."""

    def _per_part(self, epsilon: float | Tensor, scores: Tensor) -> float | Tensor:
        """A number per problem in the type of its scores, to be multiplied by one per part."""
        if not isinstance(epsilon, Tensor):
            return epsilon
        return epsilon.to(scores).reshape(epsilon.shape + (1,) * self.event_dims)

    def truth(self, target: Tensor) -> Tensor:
        """The target itself where it marks the parts of the true output; the best output for ``loss="regret"``."""
        if self._make_truth is not None:
            return wide(self._make_truth(target))
        if self.kind == "regret":
            return self._best_outputs(self.costs(target, wide(target)))
        if self._named is None:
            check_labels(target, (0, 1), "Give the task a function truth(target) that makes the true output.")
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
        """Raise `DirectLossError` where a target that marks an output marks none that is possible."""

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """Minus the loss, in the unit of the problem, where the loss is not a share."""
        return 1 - losses if self._named is not None else -losses

    def weighted(self, weight: Tensor) -> Task | None:
        """This task for parts that count more or less in its loss; the scores stay as they are."""
        if not isinstance(self.kind, str):
            return None
        task = copy.copy(self)
        task._weight = weight
        task._best = OrderedDict()
        return task

    no_item_weights = "put the weights into your loss, the function that gives the cost of each part, which is as exact"

    # ------------------------------------------------------------------ scale and companion

    def noise_scale(self, scores: Tensor) -> Tensor | None:
        """A tenth of the standard deviation of a problem's scores, whatever their unit."""
        return NOISE * _deviation(self._flat(wide(scores)))

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
        """One over the standard deviation of the costs of a problem's parts: F and L are sums over the same parts. A
        fifth of that where the target marks an output.
        """
        return (MARKED if self._named is not None else 1.0) / self._deviation_of_costs(scores, target)

    def _deviation_of_costs(self, scores: Tensor, target: Tensor) -> Tensor:
        return _deviation(self._flat(self.costs(target, wide(scores))))

    def likelihood(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """What the warm-up follows: the structured hinge, with a margin in the unit of the scores. None where the
        target does not say what the true output is.
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
        """The best output of each problem. It is remembered: the same problems come back in every epoch, and in every
        draw of the noise.
        """
        problems = costs.detach().reshape(-1, *costs.shape[costs.dim() - self.event_dims :])
        most = REMEMBERED // max(1, problems[:1].numel())
        return remembered(self._best, problems, lambda new: self.solve(-new), most).reshape(costs.shape)

    def _share(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the named loss says, and 1 for a whole of 0."""
        assert self._named is not None
        t = self._flat(target.to(like))
        weight = t.new_ones(t.shape[-1]) if self._weight is None else self._flat(self._weight.to(t))
        costs, constant, whole = self._named(t, weight)
        return costs, constant, torch.where(whole > 0, whole, 1.0)

    def _given(self, target: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """What the user's loss says, brought into shape."""
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
    """The error for a target that marks no possible output."""
    fail("target", rule, found, f'For true {instead} instead of a {what}, use loss="regret".')


def remembered(
    answers: OrderedDict[bytes, Tensor], problems: Tensor, solve: Callable[[Tensor], Tensor], most: int
) -> Tensor:
    """What ``solve`` finds for problems ``(b, ...)``, of which ``answers`` has the ``most`` recent ones."""
    keys = [problem.tobytes() for problem in problems.cpu().numpy()]
    new = {key: place for place, key in enumerate(keys) if key not in answers}
    if new:
        answers.update(zip(new, solve(problems[list(new.values())]).cpu(), strict=True))
    found = torch.stack([answers[key] for key in keys]) if keys else torch.zeros_like(problems)
    while len(answers) > most:
        answers.popitem(last=False)
    return found.to(problems)


def by_kernel(kernel: str, scores: Tensor, *problem: Any) -> Tensor:
    """What a kernel of `directloss.kernels.decisions` finds for scores ``(..., parts)``, in their type and place."""
    from directloss.kernels import decisions  # numba takes long to import

    table = scores.detach().reshape(-1, scores.shape[-1]).cpu().double().contiguous().numpy()
    check_solvable(table)
    used = torch.zeros(table.shape, dtype=torch.float64)
    getattr(decisions, kernel)(table, *problem, used.numpy())
    return used.to(scores).reshape(scores.shape)


def check_solvable(table: np.ndarray) -> None:
    """Scores that can be compared, where nobody has looked at them (``check_values=False``)."""
    if not np.isfinite(table).all():
        fail("scores", "must be finite", f"not, in problem {int(np.argwhere(~np.isfinite(table))[0][0])}")


def name_of(value: object) -> str:
    """A word for a function or a setting that is the same in every run: no addresses."""
    if not callable(value):
        return repr(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _deviation(flat: Tensor) -> Tensor:
    """The standard deviation over the parts; the largest number where all are equal, and 1 where that is 0."""
    found = flat.std(-1, correction=0)
    largest = flat.abs().amax(-1)
    floor = torch.where(largest > 0, largest, 1.0)
    return torch.where(found > 1e-6 * floor, found, floor)
