"""Random numbers that depend only on their purpose.

The seed for the data of run 3 is derived from ("data", 3), never from earlier draws. So all methods see the same data
and the same initial weights for a seed, whatever the order or the number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

SEARCH_SEED = 1000
"""Seeds of search runs start here, seeds of final runs at 0: they never overlap."""


def stage_of(seed: int) -> str:
    """The stage that a seed belongs to: ``search`` or ``final``."""
    return "search" if seed >= SEARCH_SEED else "final"


def derive(*parts: object) -> int:
    """A 63-bit seed from anything with a stable string form.

    Example:
        >>> derive("data", 3) == derive("data", 3), derive("data", 3) == derive("data", 4)
        (True, False)
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """A generator seeded with `derive`."""
    return torch.Generator().manual_seed(derive(*parts))


def seeded(build: Callable[[], T], *parts: object) -> T:
    """Call ``build`` with torch's global generator seeded, and restore the generator afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(*parts))
        return build()
