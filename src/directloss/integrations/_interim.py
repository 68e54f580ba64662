"""TEMPORARY: the contract of the third version's DirectLoss on the second version's engine."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from directloss._problem import prepare
from directloss.direct import DirectLoss as _Old


class DirectLoss(_Old):
    def __init__(
        self,
        task: Any,
        *,
        likelihood: Any = "auto",
        flips: Any = 0.0,
        epsilon: Any = None,
        sign: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(
            task,
            epsilon="auto" if epsilon is None else epsilon,
            sign="auto" if sign is None else sign,
            warm_up=0,
            **more,
        )
        self.likelihood = likelihood

    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        loss = super().forward(scores, target, mask, weight)
        share = 0.3 if self.likelihood == "auto" else self.likelihood
        if not share:
            return loss
        problem = prepare(
            scores, target, self.task, reduction="none", mask=mask, dim=self.dim, weight=weight, check_values=False
        )
        nll = problem.task.likelihood(problem.scores, problem.target)
        nll = nll.mean() if problem.weight is None else (nll * problem.weight).sum() / problem.weight.sum()
        return loss + share * (nll - nll.detach())
