"""PyTorch Lightning: train on AP, log the AP of the whole validation set and keep the best epoch.

python examples/lightning_ap.py
"""

import logging
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import directloss as dl
from directloss.integrations.lightning import WholeMetric


class Ranker(pl.LightningModule):
    """Train on AP. Evaluation steps return scores and target, which `WholeMetric` collects."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        self.loss_fn = dl.DirectLoss("ap")

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The loss of a batch."""
        return self.loss_fn(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """What `WholeMetric` needs."""
        return {"scores": self.network(batch[0]), "target": batch[1]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), 0.01)


def main() -> None:
    """Train a small network on rare positives."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    pl.seed_everything(0)
    x = torch.randn(3000, 10)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(3000) > 2.2).long()
    train = DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=500, shuffle=True)
    val = DataLoader(TensorDataset(x[2000:], y[2000:]), batch_size=64)

    module = Ranker()
    keep = ModelCheckpoint(monitor="val_ap", mode="max")
    trainer = pl.Trainer(
        max_epochs=40, callbacks=[WholeMetric("ap"), keep], accelerator="cpu", logger=False, enable_progress_bar=False
    )
    before = trainer.validate(module, val, verbose=False)[0]["val_ap"]
    trainer.fit(module, train, val)
    print(f"validation AP: {before:.3f} before, {keep.best_model_score:.3f} after training")


if __name__ == "__main__":
    main()
