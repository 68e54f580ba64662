"""The recipe of CONTRIBUTING: a task is its file, a line of the registry, its enumerator and a row of docs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import _registry
from directloss.tasks import CountTask
from tests.contract import CHECKS, make_task
from tests.oracle import Case
from tests.oracle.confusion import draw, outputs


class Specificity(CountTask):  # 1. its file
    """The share of the negatives that are left alone; 1 if there are none."""

    def metric(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        return torch.where(fp + tn > 0, tn / (fp + tn).clamp(min=1), 1.0)


CASE = Case(draw, outputs(lambda tp, fp, fn, tn: tn / (fp + tn) if fp + tn else 1.0))  # 3. its enumerator


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_entries", dict(_registry._entries))
    monkeypatch.setattr(_registry, "_meant", dict(_registry._meant))
    dl.tasks.register("specificity", Specificity, "the share of the negatives that are left alone")  # 2. its line


@pytest.mark.usefixtures("_registered")
@pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning")
@pytest.mark.parametrize("check", CHECKS)
def test_a_new_task_keeps_the_contract(check: str) -> None:
    CHECKS[check](make_task("specificity", CASE), CASE)


@pytest.mark.usefixtures("_registered")
def test_a_new_task_has_all_losses_by_its_name() -> None:
    scores, target = torch.randn(30, requires_grad=True), torch.arange(30) % 3 == 0
    for loss_fn in (
        dl.DirectLoss("specificity"),
        dl.HingeLoss("specificity"),
        dl.PerceptronLoss("specificity"),
    ):
        (gradient,) = torch.autograd.grad(loss_fn(scores, target), scores)
        assert gradient.any()
    assert "specificity" in dl.tasks.names()


@pytest.mark.usefixtures("_registered")
def test_a_factory_with_an_argument_asks_for_its_number() -> None:
    dl.tasks.register("grades", lambda classes: Specificity(), "grades up to a number")
    assert isinstance(dl.tasks.get("grades@5"), Specificity)
    with pytest.raises(dl.DirectLossError, match="task needs a number, such as 'grades@5', but it is 'grades'"):
        dl.tasks.get("grades")
