"""Structured outputs that are sums over parts: one solver answers both inferences.

An output is a tensor ``y`` in the shape of the scores: how often each part (an edge, a cell, an item) is used. With

    F(y) = sum_p score_p * y_p          L(y) = constant + sum_p cost_p(target) * y_p

the augmented objective is ``F + sign * epsilon * L = constant + sum_p (score_p + sign * epsilon * cost_p) * y_p``, so
the solver that predicts also solves the loss-augmented problem, with other scores (Song et al., ICML 2016, Sec. 3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from directloss._checks import check_choice, check_count, check_finite, check_labels, check_same_shape, fail, warn_once
from directloss.task import Task

GivenCosts = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""A user's loss: from the target to the cost of each part and the constant, L = constant + sum_p cost_p * y_p."""
Solver = Callable[[Tensor], Any]

NO_PADDING = "Parts of a structured output cannot be padding; leave out whole problems with weight=0."
SLACK = 1e-4  # what a solver may lose by float32 rounding, relative to the scores, before it is called wrong


class PartLoss(Protocol):
    """A loss that is a sum over parts, by its costs and by its value; ``y`` and ``t`` have shape ``(..., parts)``."""

    def costs(self, t: Tensor) -> Tensor:
        """The cost of each part, shape ``(..., parts)``."""

    def value(self, y: Tensor, t: Tensor) -> Tensor:
        """L itself, shape ``(...)``, never outside its bounds."""


class Hamming:
    """Share of all parts on which output and target differ, ``mean_p |y_p - t_p|``: 0 only for the target itself."""

    def costs(self, t: Tensor) -> Tensor:
        return (1 - 2 * t) / t.shape[-1]

    def value(self, y: Tensor, t: Tensor) -> Tensor:
        return (y - t).abs().mean(-1)


class Missed:
    """Share of the target's parts that the output misses, ``1 - sum_p t_p y_p / sum_p t_p``; 0 for an empty target."""

    def costs(self, t: Tensor) -> Tensor:
        return -t / t.sum(-1, keepdim=True).clamp(min=1)

    def value(self, y: Tensor, t: Tensor) -> Tensor:
        return (t * (1 - y)).sum(-1) / t.sum(-1).clamp(min=1)


NAMED: dict[str, PartLoss] = {"hamming": Hamming(), "missed": Missed()}


class Decomposable(Task):
    """What all tasks have in common whose outputs are used parts, in the shape of the scores. Subclasses write `solve`.

    ``loss`` is the name of a loss, ``"regret"``, or a function from the target to the cost of each part and a constant.
    ``truth`` makes the true output from the target where the target is not that output itself.
    """

    no_item_weights = "put the weights into its loss, a function that gives the cost of each part, which is as exact"

    def __init__(
        self,
        loss: str | GivenCosts,
        named: dict[str, PartLoss],
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if not callable(loss):
            check_choice("loss", loss, [*named, "regret"])
        self.kind = loss
        self._named = named.get(loss) if isinstance(loss, str) else None
        self._make_truth = truth

    @abstractmethod
    def solve(self, scores: Tensor) -> Tensor:
        """The best output for any scores, in their shape and type; float32 or wider, without gradient."""

    def predict(self, scores: Tensor) -> Tensor:
        return self.solve(_wide(scores.detach()))

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        scores = _wide(scores.detach())
        if isinstance(epsilon, Tensor):
            epsilon = epsilon.to(scores).reshape(epsilon.shape + (1,) * self.event_dims)
        return self.solve(scores + sign * epsilon * self.costs(target, scores))

    def truth(self, target: Tensor) -> Tensor:
        """The target itself where it marks the parts of the true output; the cheapest output for ``loss="regret"``."""
        if self._make_truth is not None:
            return _wide(self._make_truth(target))
        if self.kind == "regret":
            return self.solve(-_wide(target))
        if self._named is None:
            check_labels(target, (0, 1), "Give the task a function truth(target) that makes the true output.")
        return _wide(target)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        output = _wide(output)
        if self._named is not None:
            return self._named.value(self._flat(output), self._flat(target.to(output)))
        if self.kind == "regret":
            costs = target.to(output)
            return self._sum(costs * output).sub(self._sum(costs * self.solve(-costs))).clamp(min=0)
        costs, constant = self._given(target, output)
        return self._sum(costs * output) + constant

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        """``F = sum_p score_p * y_p``."""
        scores = _wide(scores)
        return self._sum(scores * output.to(scores.dtype))

    def costs(self, target: Tensor, like: Tensor) -> Tensor:
        """The cost of each part, in the shape and type of ``like`` (scores or an output)."""
        if self._named is not None:
            return self._named.costs(self._flat(target.to(like))).reshape(like.shape)
        return target.to(like) if self.kind == "regret" else self._given(target, like)[0]

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        if isinstance(self.kind, str):
            check_same_shape(target, scores)
        if check_values:
            check_finite(scores)
            if self._named is not None:
                check_labels(target, (0, 1), NO_PADDING)
            elif self.kind == "regret":
                check_finite(target, "target")

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
        """One over the largest cost of a part, for each problem: F and L are sums over the same parts."""
        largest = self._flat(self.costs(target, _wide(scores))).abs().amax(-1)
        return 1 / torch.where(largest > 0, largest, torch.ones_like(largest))

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


class SolverTask(Decomposable):
    """Your own combinatorial solver as a task: spanning trees, knapsacks, matchings, tours.

    ``F = sum_p score_p * y_p`` over the parts p that the solver chooses. Losses by name:

    - ``"hamming"``: the share of all parts on which output and target differ, in [0, 1], 0 only for the target.
    - ``"missed"``: the share of the target's parts that the output misses, in [0, 1]. For outputs of one size (trees,
      matchings) it is 0 only for the target, and does not shrink with the number of parts as ``"hamming"`` does.
    - ``"regret"``: the target holds the true cost of each part; the loss is the true cost of the output minus the least
      possible. Costs another call of the solver.

    Args:
        solver: ``solver(scores) -> y``, the 0/1 tensor (or array) in the shape of the scores that maximises
            ``(scores * y).sum()``, exactly, for scores of any sign. It gets ``(b, *problem)``, one batch dimension.
        loss: a name, or a function ``loss(target) -> (costs, constant)`` with ``L = constant + sum_p cost_p y_p``.
        event_dims: how many trailing dimensions of the scores make up one problem.
        batched: False for a solver that takes one problem at a time; it is then called in a loop.
        indicator: False for outputs that are not 0/1, such as counts or flows.
        truth: ``truth(target) -> y`` for a loss of your own whose target is not the true output; `hinge_loss` needs it.

    Shapes:
        scores ``(..., *problem)``; target the same, 1 for the parts of the true output, or the target of your loss.

    References:
        Song et al., ICML 2016, Sec. 3; Hazan, Keshet, McAllester, NIPS 2010 for structured outputs.

    Examples:
        >>> def best_two(scores):
        ...     chosen = scores.topk(2, dim=-1).indices
        ...     return torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        >>> task = SolverTask(best_two, loss="missed")
        >>> scores, target = torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([0, 1, 1, 0])
        >>> task.predict(scores)
        tensor([1., 1., 0., 0.])
        >>> task.loss(task.predict(scores), target)
        tensor(0.5000)
        >>> task.augmented(scores, target, epsilon=8.0, sign=-1)
        tensor([0., 1., 1., 0.])
    """

    def __init__(
        self,
        solver: Solver,
        *,
        loss: str | GivenCosts = "hamming",
        event_dims: int = 1,
        batched: bool = True,
        indicator: bool = True,
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if not callable(solver):
            fail("solver", "must be a function from scores to the best output", f"a {type(solver).__name__}")
        if not indicator and isinstance(loss, str) and loss != "regret":
            fail("loss", 'must be a function or "regret" for outputs that are not 0/1', repr(loss))
        super().__init__(loss, NAMED, truth)
        self.solver = solver
        self.event_dims = self.target_dims = check_count("event_dims", event_dims)
        self.shape_words = "(..., " + ", ".join(f"d{place + 1}" for place in range(event_dims)) + ")"
        self.batched = batched
        self.indicator = indicator

    def solve(self, scores: Tensor) -> Tensor:
        problems = scores.reshape(-1, *scores.shape[scores.dim() - self.event_dims :])
        answers = self._ask(problems) if self.batched else torch.stack([self._ask(problem) for problem in problems])
        return answers.reshape(scores.shape)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        output = super().augmented(scores, target, epsilon, sign)
        if self._named is not None:
            self._compare_with_truth(scores, output, target, epsilon, sign)
        return output

    def _compare_with_truth(
        self, scores: Tensor, output: Tensor, target: Tensor, epsilon: float | Tensor, sign: int
    ) -> None:
        """A maximiser cannot lose to the target. One that does minimises, or the target is no possible output."""
        truth = self.truth(target)
        size = _wide(scores.detach()).abs().amax() * SLACK * output.shape[-1]
        lead = self.score(scores, output) - self.score(scores, truth)
        lead = lead + sign * epsilon * (self.loss(output, target) - self.loss(truth, target))
        if bool((lead.detach() < -size).any()):
            warn_once(
                f"solver {self!r}",
                f"The solver of {self!r} returned an output with a lower objective than the target has. It must "
                "maximise (scores * y).sum(): give -scores to a solver that minimises. If it does, the target is no "
                "possible output.",
            )

    def _ask(self, scores: Tensor) -> Tensor:
        """The solver's answer, if it is one."""
        given = self.solver(scores)
        try:
            answer = torch.as_tensor(given, device=scores.device)
        except (TypeError, ValueError, RuntimeError):
            fail("solver(scores)", "must be a tensor or an array", f"a {type(given).__name__}")
        if answer.shape != scores.shape:
            hint = "Pass batched=False if it solves one problem at a time." if self.batched else ""
            fail(
                "solver(scores)",
                f"must have the shape of scores, {tuple(scores.shape)}",
                f"of shape {tuple(answer.shape)}",
                hint,
            )
        if self.indicator and not bool(((answer == 0) | (answer == 1)).all()):
            wrong = answer[(answer != 0) & (answer != 1)][0].item()
            fail(
                "solver(scores)",
                "must hold only 0 and 1",
                f"{wrong} somewhere",
                "Pass indicator=False for counts or flows.",
            )
        return answer.to(scores.dtype)

    def __repr__(self) -> str:
        dims = "" if self.event_dims == 1 else f", event_dims={self.event_dims}"
        return f"SolverTask({name_of(self.solver)}, loss={name_of(self.kind)}{dims})"


def name_of(value: object) -> str:
    """A word for a function or a setting that is the same in every run: no addresses."""
    if not callable(value):
        return repr(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _wide(tensor: Tensor) -> Tensor:
    """In float32 or wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
