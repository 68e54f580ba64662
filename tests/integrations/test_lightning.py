"""Lightning: the logged number is the metric of the whole set, and the right one is kept."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed
from lightning.pytorch.callbacks import EarlyStopping
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import directloss as dl
from directloss.integrations.lightning import WholeMetric, gathered

# What Lightning itself says about PyTorch's newest version, about workers and about logging.
pytestmark = pytest.mark.filterwarnings("ignore:::lightning", "ignore::FutureWarning", "ignore:.*many workers.*")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def data(count: int = 300) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] + x[:, 1] > 1.2).long()


def loader(batch: int = 32, count: int = 300) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data(count)), batch_size=batch)


class Module(pl.LightningModule):
    """As a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss_fn = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), dl.DirectLoss("ap")

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: Any) -> Tensor:
        loss = self.loss_fn(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return {"scores": self(batch[0]), "target": batch[1]}

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 0.05)


def trainer(*callbacks: Any, epochs: int = 2) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    return pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=list(callbacks), **quiet)


def test_logs_the_metric_of_the_whole_set_not_the_mean_of_batches() -> None:
    module = Module()
    x, y = data()
    callback = WholeMetric("ap")
    run = trainer(callback)
    for name, logged in (("val", run.validate), ("test", run.test)):
        found = logged(module, loader(), verbose=False)[0][f"{name}_ap"]
        with torch.no_grad():
            scores = module(x)
        assert found == pytest.approx(average_precision_score(y, scores), abs=1e-5)
        batches = [average_precision_score(b, a) for a, b in zip(scores.split(32), y.split(32), strict=True)]
        assert abs(found - sum(batches) / len(batches)) > 0.01  # which would be another number
    assert not callback._seen  # nothing is kept from epoch to epoch


def test_trains_and_can_be_monitored() -> None:
    torch.manual_seed(0)
    module = Module()
    run = trainer(WholeMetric("ap"), EarlyStopping("val_ap", mode="max", patience=20), epochs=8)
    before = run.validate(module, loader(), verbose=False)[0]["val_ap"]
    run.fit(module, loader(100), loader())
    assert run.callback_metrics["val_ap"] > before + 0.1
    assert 0 <= run.callback_metrics["train_loss"] <= 1


def test_several_loaders_are_kept_apart() -> None:
    module = Module()
    run = trainer(WholeMetric("ap"))
    run.validate(module, [loader(), loader(count=120)], verbose=False)
    for number, count in enumerate((300, 120)):
        with torch.no_grad():
            wanted = average_precision_score(data(count)[1], module(data(count)[0]))
        assert run.callback_metrics[f"val_ap/dataloader_idx_{number}"] == pytest.approx(wanted, abs=1e-5)
    assert "val_ap" not in run.callback_metrics


def test_the_sanity_check_logs_nothing() -> None:
    values: list[float] = []

    class Counting(WholeMetric):
        def value(self, scores: Tensor, target: Tensor) -> float:
            values.append(len(scores))
            return super().value(scores, target)

    trainer(Counting("ap"), epochs=1).fit(Module(), loader(100), loader())
    assert values == [300]


@pytest.mark.parametrize(
    ("callback", "name"),
    [
        (WholeMetric("ndcg@10"), "ndcg@10"),
        (WholeMetric(dl.tasks.FBeta(2.0)), "FBeta"),
        (WholeMetric(dl.metrics.f_beta), "f_beta"),
        (WholeMetric(lambda s, t: 0.25, name="mine"), "mine"),
    ],
    ids=["name", "task", "function", "named"],
)
def test_kinds_of_metrics(callback: WholeMetric, name: str) -> None:
    found = trainer(callback).validate(Module(), loader(), verbose=False)
    assert list(found[0]) == [f"val_{name}"]
    assert 0 <= found[0][f"val_{name}"] <= 1


def test_multi_label_ranks_the_samples_of_each_class() -> None:
    scores, labels = torch.randn(50, 3), torch.arange(150).reshape(50, 3) % 4 == 0
    found = WholeMetric("ap", dim=0).value(scores, labels)
    assert found == pytest.approx(average_precision_score(labels, scores), abs=1e-5)


def test_a_step_that_returns_something_else_is_refused() -> None:
    class Other(Module):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": torch.zeros(())}

    with pytest.raises(
        dl.DirectLossError, match=r"validation_step must be a dict with .* it is a dict with \['loss'\]"
    ):
        trainer(WholeMetric()).validate(Other(), loader(), verbose=False)


def test_bad_settings() -> None:
    with pytest.raises(dl.DirectLossError, match="metric must be a known name"):
        WholeMetric("acuracy")


def test_scores_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has two batches; sizes differ, so tensors could not be gathered directly."""
    own = [(torch.tensor([0.0]), torch.tensor([0]))]
    others = [(torch.tensor([1.0, 2.0]), torch.tensor([1, 0])), (torch.tensor([3.0]), torch.tensor([1]))]

    def exchange(everyone: list[Any], mine: Any) -> None:
        everyone[:] = [mine, others]

    assert gathered(own) == own
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", exchange)
    scores, target = (torch.cat(parts) for parts in zip(*gathered(own), strict=True))
    assert (scores.tolist(), target.tolist()) == ([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


def test_the_value_is_that_of_the_metric() -> None:
    scores, target = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1])
    assert WholeMetric("dcg").value(scores, target) == pytest.approx(float(dl.metrics.dcg(scores, target)))
    assert math.isnan(WholeMetric("ap").value(scores, torch.zeros(3, dtype=torch.long)))
