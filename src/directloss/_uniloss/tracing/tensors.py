"""Tensors in the arguments and results of operations, and their storages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_in(part)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Nested lists, tuples and dicts with the function applied to every leaf."""
    if isinstance(tree, list | tuple):
        return type(tree)(map_leaves(function, part) for part in tree)
    if isinstance(tree, dict):
        return {key: map_leaves(function, part) for key, part in tree.items()}
    return function(tree)


def written_by(func: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """The arguments that an operation writes into."""
    return [
        value
        for value, argument in zip(args, func._schema.arguments, strict=False)
        if isinstance(value, Tensor) and argument.alias_info is not None and argument.alias_info.is_write
    ]


def storage_key(tensor: Tensor) -> int:
    """A key shared by all views of a storage, valid while it is alive: a freed one could be reused."""
    key: int = tensor.untyped_storage()._cdata
    return key


def whole_storage(tensor: Tensor) -> Tensor:
    """A flat view of all that is in a tensor's storage."""
    return tensor.detach().as_strided((storage_length(tensor),), (1,), 0)


def storage_length(tensor: Tensor) -> int:
    """How many entries a tensor's storage has."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()
