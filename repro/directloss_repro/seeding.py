"""Random numbers that depend on what they are for, and on nothing else.

A seed for the data of run 3 is derived from the words ("data", 3), never from what was drawn before it. So all methods
see the same data and the same initial weights for a seed, whatever the order or the number of processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

SEARCH_SEED = 1000
"""Seeds of search runs start here, seeds of final runs at 0: they never meet."""


def stage_of(seed: int) -> str:
    """``search`` or ``final``: a seed belongs to one of them."""
    return "search" if seed >= SEARCH_SEED else "final"


def derive(*parts: object) -> int:
    """A seed of 63 bits from anything that has a stable text.

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
    """Call ``build`` with torch's global generator seeded, and leave that generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(*parts))
        return build()
