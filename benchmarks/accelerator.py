"""A simulated accelerator: tensors that claim to be on it, and a record of everything that is asked of it.

Its operations run on the CPU. It behaves like a real device without float64: mixing its tensors with those of the CPU
raises, reading a value is a synchronisation, and float64 raises.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import directloss._gradient as gradient_room
from directloss import _checks

DEVICE = torch.device("meta")  # the only device besides the CPU in every build of PyTorch
READS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2", "repeat_interleave"}
"""Operations whose result depends on data, so that the host has to wait."""


class Remote(Tensor):
    """A tensor on the simulated device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Remote:
        made: Remote = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=DEVICE
        )  # type: ignore[attr-defined]
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{function} was called outside the simulated device")

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Remote({self.held})"


@dataclass
class Record:
    """What was asked of the device."""

    operations: list[str] = field(default_factory=list)
    """All operations except views, which launch nothing."""
    fetched: list[int] = field(default_factory=list)
    """Bytes of each copy from the device to the host."""
    sent: list[int] = field(default_factory=list)
    """Bytes of each copy from the host to the device."""
    waits: int = 0
    """How often the host explicitly waited for the device."""

    @property
    def reads(self) -> list[str]:
        """The operations for which the host had to wait."""
        return [name for name in self.operations if name in READS]


class Accelerator(TorchDispatchMode):
    """The simulated device: inside the context, tensors can be moved to ``DEVICE``."""

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()

    def forget(self) -> None:
        self.record = Record()

    def __enter__(self) -> Accelerator:
        self._wait_for, gradient_room.wait_for = gradient_room.wait_for, self._wait
        _checks.NO_FLOAT64.add(DEVICE.type)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gradient_room.wait_for = self._wait_for
        _checks.NO_FLOAT64.discard(DEVICE.type)
        super().__exit__(kind, error, trace)

    def _wait(self, device: torch.device) -> None:
        self.record.waits += 1

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = function._schema.name.split("::")[-1]
        tensors: list[Tensor] = []
        tree_map(lambda one: tensors.append(one) if isinstance(one, Tensor) else None, (args, kwargs))
        here = any(isinstance(one, Remote) for one in tensors)
        goal = kwargs.get("device")
        if name in ("_to_copy", "copy_") and goal is not None and here != (torch.device(goal).type == DEVICE.type):
            return self._copied(function, args, kwargs, here)
        if goal is not None and torch.device(goal).type == DEVICE.type:
            kwargs["device"], here = torch.device("cpu"), True
        if not here:
            return function(*args, **kwargs)
        for one in tensors:
            assert isinstance(one, Remote) or one.dim() == 0, f"{name} mixes the device with the CPU"
        result = function(*tree_map(_held, args), **tree_map(_held, kwargs))
        self._note(function, name, tensors)
        if name == "_local_scalar_dense":
            return result
        written = [value for value in function._schema.returns if value.alias_info and value.alias_info.is_write]
        return args[0] if written else tree_map(_remote, result)

    def _copied(self, function: Any, args: Any, kwargs: Any, here: bool) -> Tensor:
        result: Tensor = function(*tree_map(_held, args), **{**kwargs, "device": torch.device("cpu")})
        (self.record.fetched if here else self.record.sent).append(result.numel() * result.element_size())
        return result if here else _remote(result)

    def _note(self, function: Any, name: str, tensors: list[Tensor]) -> None:
        returns = function._schema.returns
        if name.startswith("index") and any(one.dtype == torch.bool for one in tensors[1:]):
            self.record.operations.append("nonzero")  # the size of a masked selection is not known in advance
        view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
        if name in READS or (not view and any("Tensor" in str(value.type) for value in returns)):
            self.record.operations.append(name)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Remote) else value


def _remote(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    assert value.dtype != torch.float64, "the device has no float64"
    return Remote(value)
