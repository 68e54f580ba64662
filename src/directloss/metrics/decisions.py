"""The quality of decisions, by their cost."""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._checks import check_tensor, fail


def normalised_regret(chosen: Tensor, best: Tensor, costs: Tensor) -> Tensor:
    """The cost of the decisions of a data set beyond the optimum, relative to the optimum: a scalar.

    ``sum_i |c_i . y_i - c_i . y*_i| / sum_i |c_i . y*_i|``; 0 for the best decisions. For values instead of costs it is
    the share of the value that is lost. Not finite if the best decisions cost nothing.

    Args:
        chosen: the decisions, 0/1 or counts, shape ``(problems, ...)``.
        best: the best decisions for the true costs, in the same shape.
        costs: the true costs, or values, in the same shape.

    References:
        Tang, Khalil: PyEPO, Mathematical Programming Computation 2024, Sec. 5.1.

    Examples:
        >>> costs = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
        >>> chosen, best = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[1, 0], [0, 1]])
        >>> normalised_regret(chosen, best, costs)
        tensor(0.5000)
    """
    shape = check_tensor("costs", costs).shape
    for name, output in (("chosen", chosen), ("best", best)):
        if check_tensor(name, output).shape != shape:
            fail(name, f"must have the shape of costs, {tuple(shape)}", f"of shape {tuple(output.shape)}")
    if not shape:
        fail("costs", "must have a first dimension of problems", "of shape ()")
    exact = costs.double()
    spent, least = (
        (exact * output).flatten(1).sum(1) if len(shape) > 1 else exact * output for output in (chosen, best)
    )
    share: Tensor = (spent - least).abs().sum() / least.abs().sum()
    return share.to(torch.promote_types(costs.dtype, torch.float32))
