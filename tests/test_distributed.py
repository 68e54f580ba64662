"""Several processes, one batch: value, gradients and errors are those of one process with all of it."""

from __future__ import annotations

import copy
import pickle
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing

import directloss as dl
from directloss.distributed import gather_items
from tests.distributed_checks import CHECKS, CUTS, run_all

SCORES, LABELS = torch.tensor([2.0, 1.0, 0.0, 0.5]), torch.tensor([0, 1, 0, 1])


@pytest.fixture(scope="module", params=sorted(CUTS), ids=lambda size: f"{size} processes")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What went wrong in each check, for each process. Processes take long to start, so they do all checks in turn."""
    folder: Path = tmp_path_factory.mktemp("processes")
    start = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    if start == "forkserver":  # one process imports torch, and the others are its copies
        get_context(start).set_forkserver_preload(["directloss.distributed"])  # type: ignore[attr-defined]
    torch.multiprocessing.start_processes(run_all, (request.param, str(folder)), request.param, start_method=start)
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


@pytest.mark.parametrize("name", CHECKS)
def test_on_every_process(outcomes: list[dict[str, str]], name: str) -> None:
    for rank, outcome in enumerate(outcomes):
        assert not outcome[name], f"process {rank}:\n{outcome[name]}"


# ---------------------------------------------------------------------- one process


@pytest.mark.parametrize("kind", [dl.DirectLoss, dl.HingeLoss, dl.PerceptronLoss, dl.UniLoss])
def test_without_a_process_group_nothing_is_gathered(kind: Any) -> None:
    loss_fn = kind("ap", gather=True)
    for copied in (loss_fn, copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn))):
        torch.manual_seed(0)
        scores = SCORES.clone().requires_grad_()
        found = copied(scores, LABELS)
        found.backward()
        torch.manual_seed(0)
        alone = SCORES.clone().requires_grad_()
        expected = kind("ap")(alone, LABELS)
        expected.backward()
        assert found.item() == expected.item()
        assert scores.grad is not None
        assert alone.grad is not None
        assert torch.equal(scores.grad, alone.grad)


def test_gather_items_without_a_process_group_returns_its_arguments() -> None:
    mask = LABELS > 0
    assert all(
        one is other for one, other in zip(gather_items(SCORES, LABELS, mask), (SCORES, LABELS, mask), strict=False)
    )


@pytest.mark.parametrize("kind", [dl.DirectLoss, dl.HingeLoss, dl.PerceptronLoss, dl.UniLoss])
@pytest.mark.parametrize("gather", [None, 1, "all", -100])
def test_gather_is_checked_when_the_loss_is_built(kind: Any, gather: Any) -> None:
    with pytest.raises(
        dl.DirectLossError, match=r"gather must be True, False or a process group that this process bel"
    ):
        kind("ap", gather=gather)
