"""What all tests share: one thread and fixed seeds."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

# The problems of the tests are tiny: a second thread costs more than it brings, and test processes share the cores.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start
os.environ.setdefault("MPLBACKEND", "agg")

# The same examples in every run and on every machine; no example is too slow for a shared one.
hypothesis.settings.register_profile("directloss", derandomize=True, deadline=None, database=None, max_examples=40)
hypothesis.settings.load_profile("directloss")


@pytest.fixture(autouse=True)
def _fresh_state() -> None:
    """Tests must not depend on their order: seeds start anew."""
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
