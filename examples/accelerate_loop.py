"""Hugging Face Accelerate: the usual loop; F1 is computed over all processes, not averaged over batches.

python examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import directloss as dl


def main() -> None:
    """Train on F1 and compute it on the gathered scores of all validation batches."""
    torch.manual_seed(0)
    x = torch.randn(3000, 10)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(3000) > 1.5).long()
    accelerator = Accelerator(cpu=True)
    network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    network, optimizer, train, val = accelerator.prepare(
        network,
        torch.optim.Adam(network.parameters(), lr=0.01),
        DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=500, shuffle=True),
        DataLoader(TensorDataset(x[2000:], y[2000:]), batch_size=64),
    )
    loss_fn = dl.DirectLoss("f1")
    for _ in range(20):
        for inputs, target in train:
            optimizer.zero_grad()
            accelerator.backward(loss_fn(network(inputs), target))
            optimizer.step()

    with torch.no_grad():  # gather_for_metrics drops samples repeated to fill the last batch
        seen = [accelerator.gather_for_metrics((network(inputs), target)) for inputs, target in val]
    scores, target = (torch.cat(parts) for parts in zip(*seen, strict=True))
    accelerator.print(f"validation F1 {dl.metrics.f_beta(scores, target):.3f}")


if __name__ == "__main__":
    main()
