from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import directloss as dl
from directloss.integrations.transformers import TrainerLoss, TrainerMetric


def test_one_score_or_two() -> None:
    scores, labels = torch.randn(20), (torch.arange(20) % 4 == 0).long()
    wanted = dl.direct_loss(scores, labels, "ap")
    pairs = torch.stack((torch.ones(20), scores + 1), 1)
    for logits in (scores[:, None], pairs, scores):
        assert TrainerLoss("ap")({"logits": logits}, labels) == pytest.approx(wanted.item())
    assert TrainerLoss("ap")((pairs, "hidden states"), labels) == pytest.approx(wanted.item())
    assert TrainerMetric("ap")((pairs.numpy(), labels.numpy()))["ap"] == pytest.approx(1 - wanted.item())


def test_tokens_and_left_out_labels() -> None:
    logits, labels = torch.randn(3, 4, 2), torch.tensor([[1, 0, 1, -100], [0, 0, 1, 0], [0, -100, -100, -100]])
    known = labels != -100
    margin = (logits[..., 1] - logits[..., 0])[known]
    wanted = dl.direct_loss(margin, labels[known], "f1")
    assert TrainerLoss("f1")({"logits": logits}, labels) == pytest.approx(wanted.item())
    assert TrainerMetric("f1")((logits.numpy(), labels.numpy()))["f1"] == pytest.approx(1 - wanted.item())
    classes = torch.randn(3, 4, 5)
    right = (classes.argmax(-1) == labels)[known].double().mean()
    assert TrainerLoss("accuracy")({"logits": classes}, labels) == pytest.approx(1 - right.item())


def test_several_labels_rank_the_items_of_each() -> None:
    logits = torch.randn(12, 3)
    labels = (torch.rand(12, 3) < 0.4).float()
    assert TrainerLoss("ap")({"logits": logits}, labels) == pytest.approx(
        dl.direct_loss(logits, labels, "ap", dim=0).item()
    )


def test_accumulated_batches_count_by_their_share() -> None:
    """Trainer passes the number of items of all accumulated batches, and adds up what the batches return."""
    logits, labels = torch.randn(6, 1, requires_grad=True), torch.tensor([1, 0, 0, 1, -100, 0])
    loss_fn = TrainerLoss(dl.DirectLoss("ap"))
    whole, share = loss_fn({"logits": logits}, labels), loss_fn({"logits": logits}, labels, num_items_in_batch=20)
    assert share.item() == pytest.approx(whole.item() * 5 / 20)


def test_trainer(tmp_path: Path) -> None:
    """With gradient accumulation and the best model by the metric; a linear model, so that it is quick."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'directloss[transformers]'"
    )

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(5, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.layer(x)}

    draw = torch.Generator().manual_seed(0)
    x = torch.randn(320, 5, generator=draw)
    y = (x[:, 0] - x[:, 1] > 1.5).long()
    rows = [{"x": row, "labels": label} for row, label in zip(x, y, strict=True)]
    trainer = transformers.Trainer(
        Linear(),
        transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=4, per_device_train_batch_size=40, per_device_eval_batch_size=320,
            gradient_accumulation_steps=2, learning_rate=0.3, report_to=[], save_strategy="no",
            logging_strategy="no", eval_strategy="epoch", disable_tqdm=True, use_cpu=True, label_names=["labels"],
        ),
        train_dataset=rows,
        eval_dataset=rows,
        compute_loss_func=TrainerLoss("ap"),
        compute_metrics=TrainerMetric("ap"),
    )  # fmt: skip
    before = trainer.evaluate()["eval_ap"]
    trainer.train()
    assert trainer.evaluate()["eval_ap"] > max(0.9, before)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: TrainerLoss("ap")({"logits": torch.zeros(3, 1)}, None), "labels must be a column of the data"),
        (lambda: TrainerLoss("ap")({"logits": torch.zeros(3, 5)}, torch.zeros(3)), "logits must have one score"),
        (lambda: TrainerLoss("ap")({"logits": np.zeros(3)}, torch.zeros(3)), "logits must be a torch.Tensor"),
        (lambda: TrainerMetric("app"), "metric must be a known name"),
    ],
)
def test_bad_input(call: Any, says: str) -> None:
    with pytest.raises(dl.DirectLossError, match=says):
        call()
