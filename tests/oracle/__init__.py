"""The brute-force oracle: for every registered task, tiny random problems and *every* output they can have.

Each file of this folder serves one family. It computes F and L of every output from the definitions, in plain Python,
without a line of the library, so that agreement means something. A new task needs one entry in a ``CASES`` table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

import torch
from torch import Tensor

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]
Enumerate = Callable[[Tensor, Tensor], Iterable[tuple[float, float]]]


@dataclass(frozen=True)
class Case:
    """How one task is tried out."""

    draw: Draw
    """One problem (no batch dimension): float64 scores and a target; half of the problems should contain ties."""
    outputs: Enumerate
    """The pair (F, L) of every output that the problem can have."""
    make: Callable[[], object] | None = None
    """Makes the task where its plain name is not enough; None means ``directloss.tasks.get(name)``."""


def all_cases() -> dict[str, Case]:
    """The cases of all families, by the name of the task (or, for variants, ``name: variant``)."""
    cases: dict[str, Case] = {}
    for module in iter_modules(__path__):
        found: dict[str, Case] = import_module(f"{__name__}.{module.name}").CASES
        assert not cases.keys() & found.keys(), "two files of the oracle claim the same case"
        cases |= found
    return cases


def draw_scores(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Scores from three kinds in turn: continuous, heavily tied, and all equal."""
    kind = int(torch.randint(4, (), generator=generator))
    if kind == 0:
        return torch.randint(-2, 3, shape, generator=generator).double() / 2
    if kind == 1 and int(torch.randint(4, (), generator=generator)) == 0:
        return torch.zeros(shape, dtype=torch.float64)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
