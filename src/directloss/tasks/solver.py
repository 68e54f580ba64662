"""A user-defined solver as a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from directloss._checks import DirectLossError, check_count, fail, name_of, warn_once
from directloss.tasks._likelihood import wide
from directloss.tasks.decomposable import Decomposable, GivenCosts

Solver = Callable[[Tensor], Any]
SLACK = 1e-4  # tolerated loss by float32 rounding, relative to the scores, before a solver is called wrong


class SolverTask(Decomposable):
    """Your own combinatorial solver as a task: schedules, routes, flows, anything with a linear objective.

    ``F = sum_p score_p * y_p`` over the parts p that the solver chooses. Losses by name:

    - ``"hamming"``: the share of parts in which output and target differ, in [0, 1], 0 only for the target.
    - ``"missed"``: the share of the target's parts that the output misses, in [0, 1]. For outputs of one size (trees,
      matchings) it is 0 only for the target, and unlike ``"hamming"`` it does not shrink with the number of parts.
    - ``"regret"``: the target holds the true cost of each part; the loss is the true cost of the output minus the
      minimum, which is solved for once and cached.

    Args:
        solver: ``solver(scores) -> y``, the 0/1 tensor (or array) in the shape of the scores that maximises
            ``(scores * y).sum()``, exactly, for scores of any sign. It gets ``(b, *problem)``, one batch dimension.
        loss: a name, or a function ``loss(target) -> (costs, constant)`` with ``L = constant + sum_p cost_p y_p``.
        maximize: True if the target of ``"regret"`` holds values to maximise instead of costs.
        event_dims: how many trailing dimensions of the scores make up one problem.
        batched: False for a solver of one problem at a time, which is called in a loop.
        indicator: False for outputs that are not 0/1, such as counts or flows.
        feasible: ``feasible(y) -> bool`` for one output; an output that fails the check raises `DirectLossError`.
        truth: ``truth(target) -> y`` for your own loss, if its target is not the true output; `hinge_loss` needs it.

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
        maximize: bool = False,
        event_dims: int = 1,
        batched: bool = True,
        indicator: bool = True,
        feasible: Callable[[Tensor], Any] | None = None,
        truth: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if not callable(solver):
            fail("solver", "must be a function from scores to the best output", f"a {type(solver).__name__}")
        if not indicator and isinstance(loss, str) and loss != "regret":
            fail("loss", 'must be a function or "regret" for outputs that are not 0/1', repr(loss))
        super().__init__(loss, truth)
        self.solver = solver
        self.maximize = maximize
        self.event_dims = self.target_dims = check_count("event_dims", event_dims)
        self.shape_words = "(..., " + ", ".join(f"d{place + 1}" for place in range(event_dims)) + ")"
        self.batched, self.indicator, self.feasible = batched, indicator, feasible
        self._tried = False

    def solve(self, scores: Tensor) -> Tensor:
        problems = scores.reshape(-1, *scores.shape[scores.dim() - self.event_dims :])
        return self._ask(problems).reshape(scores.shape)

    def trial_outputs(self, shape: tuple[int, ...]) -> Tensor:
        try:
            return super().trial_outputs(shape)
        except DirectLossError:  # such as an unbounded problem; the unit is then the root mean square
            one = torch.eye(torch.Size(shape).numel()).reshape(-1, *shape)
            return torch.cat([one, -one])

    # ------------------------------------------------------------------ plausibility

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        """Warn if the output loses to the target: the solver minimises, or the target is not a possible output."""
        output = super().augmented(scores, target, epsilon, sign)
        if self._named is None:
            return output
        truth = self.truth(target)
        size = wide(scores.detach()).abs().amax() * SLACK * output.shape[-1]
        lead = self.score(scores, output) - self.score(scores, truth)
        lead = lead + sign * epsilon * (self.loss(output, target) - self.loss(truth, target))
        if bool((lead.detach() < -size).any()):
            warn_once(
                f"solver {self!r}",
                f"The solver of {self!r} returned an output with a lower objective than the target. It must "
                "maximise (scores * y).sum(): pass -scores to a solver that minimises. If it does, the target is not a "
                "possible output.",
            )
        return output

    def doubt_regret(self, regret: Tensor, costs: Tensor) -> None:
        if bool((regret < -SLACK * self._sum(costs.abs())).any()):
            warn_once(
                f"solver {self!r}",
                f"The solver of {self!r} returned an output that is better than its own output for the true costs. It "
                "must maximise (scores * y).sum(), exactly, for scores of any sign, over the same outputs each time: "
                "pass -scores to a solver that minimises.",
            )

    # ------------------------------------------------------------------ asking

    def _ask(self, problems: Tensor) -> Tensor:
        """The solver's answers, after checks."""
        if self.batched:
            answer = self._answer(problems)
            if not self._tried and len(problems) > 1:
                self._try(problems, answer)
            return answer
        answers = [self._answer(problem, place) for place, problem in enumerate(problems)]
        self._tried = True
        return torch.stack(answers)

    def _answer(self, scores: Tensor, place: int | None = None) -> Tensor:
        """The answer to one problem, or to a batch if it has no place in one."""
        try:
            given = self.solver(scores)
        except DirectLossError:
            raise
        except Exception as error:  # of any kind: the user needs to know where
            self._refuse(error, scores, place)
        return self._check(scores, given, place)

    def _refuse(self, error: Exception, scores: Tensor, place: int | None) -> NoReturn:
        """Raise the error for a solver that raised one."""
        if place is None:  # find out which problem
            place = next((k for k in range(len(scores)) if self._shape_of_answer(scores[k : k + 1]) is None), 0)
        one, hint = tuple(scores.shape[1:] if self.batched else scores.shape), ""
        if place == 0 and not self._tried:  # it has never succeeded
            given = f"a batch of problems of shape {one}" if self.batched else f"one problem of shape {one}"
            hint = f"With event_dims={self.event_dims} and batched={self.batched} it is given {given}."
            if self.batched and self._shape_of_answer(scores[0]) == one:
                hint = "It takes one problem at a time: pass batched=False."
        words = f"{type(error).__name__}: {error} (it got scores of shape {tuple(scores.shape)})"
        fail("solver(scores)", "must return the best output", f"none for problem {place}: it raised {words}", hint)

    def _shape_of_answer(self, scores: Tensor) -> tuple[int, ...] | None:
        """The shape of the solver's answer, unchecked; None if it raises an error."""
        try:
            return tuple(getattr(self.solver(scores), "shape", ()))
        except Exception:
            return None

    def _try(self, problems: Tensor, answer: Tensor) -> None:
        """Raise if the solver gives other outputs for single problems than for the batch."""
        for place, problem in enumerate(problems[:2]):
            alone = self._answer(problem[None])[0]
            if float((problem * (alone - answer[place])).sum().abs()) > SLACK * float(problem.abs().sum()):
                fail(
                    "solver(scores)",
                    f"must solve the {len(problems)} problems of shape {tuple(problems.shape[1:])} independently",
                    f"different for problem {place} when solved alone",
                    f"Is one problem larger than that? event_dims={self.event_dims} may be too small. Does the solver "
                    "take one problem at a time? Pass batched=False.",
                )
        self._tried = True

    def _check(self, scores: Tensor, given: Any, place: int | None = None) -> Tensor:
        """An answer as a tensor, in the dtype of the scores, after checks."""
        what = "solver(scores)"
        where = "" if place is None else f" for problem {place}"
        try:
            answer = torch.as_tensor(given, device=scores.device)
        except (TypeError, ValueError, RuntimeError):
            fail(what, "must be a tensor or an array", f"a {type(given).__name__}{where}")
        if answer.shape != scores.shape:
            self._refuse_shape(scores, answer, where)
        wrong = (answer != 0) & (answer != 1) if self.indicator else ~torch.isfinite(answer)
        if bool(wrong.any()):
            if place is None:
                where = f" for problem {int(wrong.nonzero()[0][0])}"
            need, hint = ("hold only 0 and 1", "Pass indicator=False for counts or flows.") if self.indicator else (
                "be finite", "An infeasible or unbounded problem has no best output.")  # fmt: skip
            fail(what, f"must {need}", f"{answer[wrong][0].item()}{where}", hint)
        if self.feasible is not None:
            for number, output in enumerate(answer if self.batched else answer[None]):
                if not bool(self.feasible(output)):
                    fail(what, "must be feasible", f"not, for problem {number if place is None else place}")
        return answer.to(scores.dtype)

    def _refuse_shape(self, scores: Tensor, answer: Tensor, where: str) -> NoReturn:
        hint = ""
        if self.batched:
            hint = "Pass batched=False if it solves one problem at a time."
        elif answer.dim() != scores.dim():
            hint = f"Pass event_dims={answer.dim()} if one problem has {answer.dim()} dimensions."
        rule = f"must have the shape of scores, {tuple(scores.shape)}"
        fail("solver(scores)", rule, f"of shape {tuple(answer.shape)}{where}", hint)

    def __repr__(self) -> str:
        dims = "" if self.event_dims == 1 else f", event_dims={self.event_dims}"
        return f"SolverTask({name_of(self.solver)}, loss={name_of(self.criterion)}{dims})"
