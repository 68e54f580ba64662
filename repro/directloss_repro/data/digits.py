"""Handwritten digits, one class against the rest."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from directloss_repro.data.idx import read_images


@lru_cache(maxsize=1)
def small_digits() -> tuple[Tensor, Tensor]:
    """The 1,797 digits of 8 x 8 pixels of scikit-learn: inputs ``(n, 64)`` from 0 to 1, classes ``(n,)``."""
    from sklearn.datasets import load_digits  # here, because worker processes of other experiments do without it

    data = load_digits()
    return torch.from_numpy(data.data).float() / 16.0, torch.from_numpy(data.target).long()


@lru_cache(maxsize=1)
def mnist(root: str) -> tuple[Tensor, Tensor]:
    """The 70,000 digits of MNIST from the original files: inputs ``(n, 784)`` from 0 to 1, classes ``(n,)``."""
    images, labels = read_images(Path(root))
    flat = torch.tensor(images.reshape(len(images), -1))
    return flat.float() / 255.0, torch.tensor(labels).long()
