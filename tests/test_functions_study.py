"""The studies of metrics written as functions, and of known wrong labels, run and show their tables."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from directloss_repro.campaign import Campaign, Cell
from directloss_repro.data import Part
from directloss_repro.executors import InProcess
from directloss_repro.records import Record, RecordFile

import directloss as dl
from benchmarks import defaults, flips, functions
from benchmarks.stacked import Batches


def filled(campaign: Campaign, folder: Path) -> list[Record]:
    records = RecordFile(folder)
    campaign.run_on(InProcess(), records)
    return campaign.found(records)


@pytest.mark.parametrize("name", functions.PROBLEMS)
def test_every_loss_of_a_function_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = functions.PROBLEMS[name]
    x = torch.randn(60, 1, 24, 24) if problem.images else torch.randn(60, 5)
    y = functions.pasted_digits()[1][:60] if problem.images else (x[:, 0] > 0.5).long() * (problem.classes - 1 or 1)
    y = y if problem.labelled or problem.images else x[:, 0]
    monkeypatch.setattr(functions, "STEPS", 2)
    monkeypatch.setattr(functions, "LOOKS", 1)
    monkeypatch.setitem(functions.PROBLEMS, name, replace(problem, data=lambda: (x, y)))
    for method in functions.METHODS:
        if problem.labelled or method not in functions.OF_LABELS:
            found = functions.train_cell(Cell(name, method), {"learning_rate": 0.01}, 0)
            assert found.diverged_at is None
            assert (found.shown["evaluations"] > 60) == (method in (functions.OURS, functions.MORE, functions.RELAXED))


def test_functions_are_the_metrics_they_say() -> None:
    scores, labels = torch.tensor([3.0, -0.5, -1.0, 2.0]), torch.tensor([1, 1, 0, 0])
    assert functions.profit(scores, labels).item() == pytest.approx((10 + 10 - 4) / 20)  # sigmoid(-0.5) is 0.38
    assert functions.recall_at_precision(scores, labels).item() == 0.5
    assert functions.spearman(scores, 10 * scores.exp()).item() == pytest.approx(1)
    classes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    f1 = [dl.metrics.f_beta(classes[:, c] - classes[:, 1 - c], torch.tensor([0, 1, 1]) == c) for c in range(2)]
    assert functions.macro_f1(classes, torch.tensor([0, 1, 1])).item() == pytest.approx(float(sum(f1)) / 2)


def test_a_timed_loss_has_the_gradient_of_the_loss() -> None:
    weight = torch.randn(3, requires_grad=True)
    functions.Timed(functions.squared_error)(2 * weight, torch.zeros(3)).backward()
    torch.testing.assert_close(weight.grad, 8 * weight.detach() / 3)


def test_functions_shows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    name = "profit, yeast1, linear"
    small = replace(functions.PROBLEMS[name], data=lambda: (x, (x[:, 0] > 0).long()))
    monkeypatch.setattr(functions, "PROBLEMS", {name: small})
    monkeypatch.setattr(functions, "STEPS", 10)
    arguments = argparse.Namespace(metrics=["profit"], methods=list(functions.METHODS), seeds=2)
    shown = functions.show(filled(functions.study(arguments), tmp_path))
    assert f"| {name}, 20% wrong |" in shown
    assert "| profit | " in shown


def test_flips_shows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(defaults, "load", lambda root, name: (x, (x[:, 0] > 0.5).long()))
    monkeypatch.setattr(flips, "STEPS", 20)
    defaults.parts_of.cache_clear()
    given = {"sets": ["pima", "yeast3"], "models": ["linear"], "noises": [0.2], "methods": list(flips.KNOWN)}
    arguments = argparse.Namespace(**given, seeds=2, data_root=tmp_path)
    campaign = flips.study(arguments)
    assert {cell.method for cell in campaign.cells} == set(flips.METHODS)
    arguments.methods = [flips.OURS, *flips.VARIANTS]
    shown = flips.show(filled(flips.study(arguments), tmp_path)) + flips.show(filled(campaign, tmp_path))
    defaults.parts_of.cache_clear()
    assert "| both, 20% | " in shown
    assert "| pima, linear, 20% | " in shown


def test_the_threshold_of_corrected_counts(generator: torch.Generator) -> None:
    labels = (torch.rand(3, 4000, generator=generator) < 0.2).long()
    scores = torch.randn(3, 4000, generator=generator) + 2 * labels
    wrong = torch.where(torch.rand(3, 4000, generator=generator) < 0.3, 1 - labels, labels)
    clean, found = defaults.best_cut(scores, labels), flips.best_cut(scores, wrong, (0.3, 0.3))
    assert torch.equal(flips.best_cut(scores, labels, flips.NONE), clean)
    best, reached = (flips.f1(scores - cut, labels, flips.NONE) for cut in (clean, found))
    assert bool((reached > best - 0.03).all())
    tried = torch.stack([flips.f1(scores - cut, wrong, (0.3, 0.3)) for cut in torch.linspace(-3, 4, 500)])
    assert bool((flips.f1(scores - found, wrong, (0.3, 0.3)) >= tried.amax(0) - 1e-6).all())


def test_forward_correction_is_that_of_the_library(generator: torch.Generator) -> None:
    scores = torch.randn(2, 6, generator=generator).requires_grad_()
    labels = torch.randint(2, (2, 6), generator=generator)
    batches = Batches([Part(scores.detach(), labels[0])], [0], 2)
    flips.forward((0.1, 0.3), batches, generator)(scores, labels).backward()
    slope = dl.tasks._likelihood.of_each_decision(scores.detach(), labels.float(), (0.1, 0.3))
    torch.testing.assert_close(scores.grad, slope / 6)
