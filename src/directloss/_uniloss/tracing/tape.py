"""A tape of a metric's operations on the recorded scores, to be replayed on other scores.

Comparisons of general form are expressions that only the metric's code knows, and tracing that code for every set of
scores would take minutes. Once all decisions are fixed, it is a straight line of tensor operations. Those that lead to
the compared values are kept, and run without tracing.

Tensors are identified by their storage, as in `witness`, so views need no rule; in-place writes run in their order.
Whatever is discrete is a decision and stays fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from directloss._uniloss.tracing.tensors import map_leaves, storage_key, tensors_in, whole_storage, written_by


@dataclass(frozen=True)
class Place:
    """A tensor as a window on a storage."""

    storage: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def of(tensor: Tensor) -> Place:
        """The window of a tensor."""
        return Place(storage_key(tensor), tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def within(self, base: Tensor) -> Tensor:
        """The same window on another storage of the same layout."""
        if (self.shape, self.stride, self.offset) == (base.shape, base.stride(), base.storage_offset()):
            return base
        return base.as_strided(self.shape, self.stride, self.offset)


class Step(NamedTuple):
    """An operation; tensors that depend on scores, in the arguments and in the results, are `Place`s."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: frozenset[int]
    writes: frozenset[int]
    makes: tuple[Place | None, ...]
    """The new tensors among the results."""


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations on scores while it is active.

    Args:
        scores: the tensor that the metric is called with.
    """

    def __init__(self, scores: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.start = Place.of(scores)
        # Storages are kept alive: a freed one could be reused at the same address.
        self._kept: dict[int, Any] = {storage_key(scores): scores.untyped_storage()}
        self._before: dict[int, Tensor] = {}
        """Constants that scores are written into: their earlier contents."""
        self.steps: list[Step] = []

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Operations in here are not recorded, nor even seen; the tape must be the innermost mode."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and record it if it touches scores."""
        kwargs = kwargs or {}
        given = list(tensors_in((args, kwargs)))
        if not any(storage_key(tensor) in self._kept for tensor in given):
            return func(*args, **kwargs)
        written = {storage_key(value) for value in written_by(func, args) if value.is_floating_point()}
        for tensor in given:
            if storage_key(tensor) in written and storage_key(tensor) not in self._kept:
                self._before[storage_key(tensor)] = whole_storage(tensor).clone()
                self._kept[storage_key(tensor)] = tensor.untyped_storage()
        known = frozenset(storage_key(tensor) for tensor in given if storage_key(tensor) in self._kept)
        out = func(*args, **kwargs)
        new = [t if t.is_floating_point() and storage_key(t) not in known else None for t in tensors_in(out)]
        makes = tuple(None if tensor is None else Place.of(tensor) for tensor in new)
        if written or any(makes):  # a view is not a step: its storage has the values
            places = map_leaves(self._fixed, args), map_leaves(self._fixed, kwargs)
            self._kept |= {storage_key(tensor): tensor.untyped_storage() for tensor in new if tensor is not None}
            fresh = frozenset(place.storage for place in makes if place is not None)
            self.steps.append(Step(func, *places, known, frozenset(written) | fresh, makes))
        return out

    def towards(self, results: Iterable[Tensor]) -> Callable[[Tensor], list[Tensor]]:
        """The results as a differentiable function of scores, in the shape of the recorded ones."""
        wanted = [self._place(result.detach()) for result in results]
        needed = {place.storage for place in wanted if isinstance(place, Place)}
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.writes & needed:
                steps.append(step)
                needed |= step.reads
        steps.reverse()
        before = {key: value for key, value in self._before.items() if key in needed}
        start = self.start

        def run(scores: Tensor) -> list[Tensor]:
            now = {start.storage: scores.clone(memory_format=torch.contiguous_format)}
            now |= {key: value.clone() for key, value in before.items()}

            def filled(value: Any) -> Any:
                return value.within(now[value.storage]) if isinstance(value, Place) else value

            for step in steps:
                out = step.function(*map_leaves(filled, step.args), **map_leaves(filled, step.kwargs))
                for place, tensor in zip(step.makes, tensors_in(out), strict=True):
                    if place is not None:
                        now[place.storage] = tensor
            return [filled(place) for place in wanted]

        return run

    def _fixed(self, value: Any) -> Any:
        """As `_place`, with a copy of constants, which may be written into later."""
        place = self._place(value)
        return place.clone() if isinstance(place, Tensor) else place

    def _place(self, value: Any) -> Any:
        """The place of a tensor that depends on scores; anything else unchanged."""
        return Place.of(value) if isinstance(value, Tensor) and storage_key(value) in self._kept else value
