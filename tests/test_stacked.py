"""The study of the defaults: networks trained at once are those trained alone, and losses are what their names say."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from directloss_repro.campaign import SILENT
from directloss_repro.data import Part
from directloss_repro.executors import InProcess
from directloss_repro.records import RecordFile
from torch import Tensor, nn

import directloss as dl
from benchmarks import defaults, peers
from benchmarks.stacked import Batches, Networks

RATES, SEEDS = (0.01, 0.1), (0, 3, 5)


def alone(networks: Networks, seed: int, rate: int) -> nn.Sequential:
    """One of the networks as a module of PyTorch."""
    layers: list[nn.Module] = []
    for weight, shift in zip(networks.weights[::2], networks.weights[1::2], strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[3])
        layer.weight.data = weight[seed, :, rate].detach().T.clone()
        layer.bias.data = shift[seed, 0, rate].detach().clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(("hidden", "outputs"), [(0, 1), (0, 3), (4, 1), (4, 3)])
def test_each_network_trains_as_if_it_were_alone(hidden: int, outputs: int, generator: torch.Generator) -> None:
    x, y = (
        torch.randn(3, 9, 5, generator=generator),
        torch.randint(outputs + (outputs == 1), (3, 9), generator=generator),
    )
    networks = Networks(5, hidden, outputs, SEEDS, RATES)
    single = {(s, r): alone(networks, s, r) for s in range(3) for r in range(2)}
    loss = defaults.by_item("x-ent", "", 9, generator)
    for _ in range(4):
        networks.step(loss(networks(x), y.repeat_interleave(2, 0)))
    for (s, r), module in single.items():
        optimizer = torch.optim.Adam(module.parameters(), RATES[r])
        for _ in range(4):
            optimizer.zero_grad()
            scores = module(x[s]) if outputs > 1 else module(x[s])[:, 0]
            peers.cross_entropy(scores, y[s]).backward()
            optimizer.step()
        for mine, theirs in zip(alone(networks, s, r).parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_seeds_do_not_depend_on_each_other(generator: torch.Generator) -> None:
    parts = [Part(torch.randn(7, 2, generator=generator), torch.arange(7) % 2) for _ in SEEDS]
    many, one = Batches(parts, SEEDS, 3), Batches(parts[1:2], SEEDS[1:2], 3)
    for _ in range(5):
        assert torch.equal(many()[0][1], one()[0][0])
    assert torch.equal(
        Networks(2, 4, 1, SEEDS, RATES).weights[0][1], Networks(2, 4, 1, SEEDS[1:2], RATES).weights[0][0]
    )
    whole = Batches(parts, SEEDS, 100)()[1]
    assert whole.sum(1).tolist() == [3, 3, 3]  # every row once


def lists(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 40, generator=generator), (torch.rand(4, 40, generator=generator) < 0.4).long()


def test_smooth_ap_by_its_definition(generator: torch.Generator) -> None:
    scores, target = lists(generator)
    for s, y, found in zip(scores, target, peers.smooth_ap(scores, target, 0.5), strict=True):
        total = 0.0
        for i in y.nonzero()[:, 0].tolist():
            above = torch.sigmoid((s - s[i]) / 0.5)
            above[i] = 0
            total += float((1 + (above * y).sum()) / (1 + above.sum()))
        assert float(found) == pytest.approx(1 - total / float(y.sum()), abs=1e-5)


def test_best_threshold(generator: torch.Generator) -> None:
    scores, target = lists(generator)
    cut = defaults.best_cut(scores, target)
    found = defaults.measured(scores - cut, target, "f1")
    every = torch.stack([defaults.measured(scores - c, target, "f1") for c in torch.linspace(-4, 4, 2000)])
    torch.testing.assert_close(found, every.amax(0))


@pytest.mark.parametrize("metric", ["ap", "f1", "accuracy"])
def test_the_second_version_is_theorem_1_under_noise(metric: str, generator: torch.Generator) -> None:
    """First cross-entropy, then the same as a loop over networks and draws."""
    scores, target = lists(generator)
    scores = torch.randn(4, 40, 3, generator=generator) if metric == "accuracy" else scores
    draw = torch.Generator().manual_seed(1)
    loss = defaults.SecondVersion(metric, 2048, draw)
    assert float(loss(scores, target)) == pytest.approx(
        sum(float(peers.cross_entropy(*one)) for one in zip(scores, target, strict=True)), abs=1e-5
    )
    loss.steps = 300
    leaf = scores.clone().requires_grad_()
    loss(leaf, target).backward()
    noisy = loss.noise._replace(generator=draw.manual_seed(1)).perturb(scores, loss.density)
    assert len(noisy) == 2
    expected = torch.zeros_like(scores)
    for one in noisy:
        for place in range(4):
            row = one[place].clone().requires_grad_()
            step = 5.0 * loss.noise.scale * loss.task.unit_epsilon(scores[place], target[place])
            dl.direct_loss(row, target[place], metric, epsilon=float(step), sign=loss.task.defaults.sign).backward()
            expected[place] += row.grad / 2
    assert leaf.grad is not None
    assert bool(leaf.grad.any())
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("metric", defaults.COMPARED)
def test_every_loss_of_the_study_learns_from_every_network(metric: str, generator: torch.Generator) -> None:
    scores, target = lists(generator)
    scores = torch.randn(4, 40, 3, generator=generator) if metric == "accuracy" else scores
    for method in defaults.COMPARED[metric]:
        leaf = (0.1 * scores).requires_grad_()
        defaults.METHODS[method](metric, 40, generator)(leaf, target).backward()
        assert leaf.grad is not None
        assert bool(leaf.grad.flatten(1).any(1).all()), method


def test_a_study_resumes_and_shows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(defaults, "load", lambda root, name: (x, (x[:, 0] > 0.5).long()))
    defaults.parts_of.cache_clear()
    given = {"metrics": ["ap"], "sets": ["pima"], "models": ["linear"], "noises": [0.0], "lengths": [20]}
    arguments = argparse.Namespace(**given, methods=["direct", "x-ent"], seeds=2, data_root=tmp_path)
    campaign, records = defaults.study(arguments), RecordFile(tmp_path)
    campaign.run_on(InProcess(), records, listener=SILENT)
    assert len(records) == 2
    stored = (tmp_path / "records.jsonl").read_bytes()
    campaign.run_on(InProcess(), RecordFile(tmp_path))
    assert (tmp_path / "records.jsonl").read_bytes() == stored
    found = campaign.found(RecordFile(tmp_path, read_only=True))
    shown = defaults.show(found)
    assert "**ap, 20 steps**" in shown
    assert "| x-ent | +0.0 / +0.0" in shown
    assert all(0.5 < value <= 1 for record in found for value in record.metrics.values())
    assert len(found[0].shown["rates"]) == len(found[0].metrics) - 1 == 2
    defaults.parts_of.cache_clear()
