"""One batch from the shards of all processes, for losses that couple the items of a batch.

Average precision does not decompose over shards. So every process gathers the scores and labels of all, computes the
loss of the joined batch, and backpropagates through its own scores.

Shards are joined along their first dimension, in the order of the ranks. Values are checked only after all processes
have them, so invalid input on one process raises the same error on all, and no process waits for one that stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from directloss._checks import DirectLossError, check_tensor, fail
from directloss._dynamo import outside_graphs
from directloss._gradient import with_gradient_times

Gather: TypeAlias = "bool | dist.ProcessGroup"
"""True for all processes, a process group for its members, False for this process only."""
Forms = dict[str, tuple[str, torch.Size]]
"""Of each tensor of a process, what must be the same on all, in words; and the shape."""


@outside_graphs
def gather_items(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the batch of all processes, for your own loss; the losses of this library have ``gather=True``.

    Every process of the group must call it, with or without gradients. The shards may differ in their first
    dimension, which may be 0. In the backward pass a process receives the gradient of its own scores times the number
    of processes: DDP and FSDP divide by that number when they average over processes, so parameter gradients are those
    of one process with the whole batch.

    Args:
        scores: the scores of this process, with a first dimension.
        target: its labels, with the same first dimension as ``scores``; likewise ``mask`` and ``weight``.
        mask: as the losses take it.
        weight: as the losses take it.
        group: the processes; all of them by default. Outside a process group, returns the arguments.

    Examples:
        >>> scores, target, mask, weight = gather_items(torch.tensor([2.0, 1.0]), torch.tensor([1, 0]))
        >>> scores  # no process group here, so these are all
        tensor([2., 1.])
    """
    shards = exchange({"scores": scores, "target": target, "mask": mask, "weight": weight}, group or True)
    if shards is None:
        return scores, target, mask, weight
    return shards.join("scores"), shards.join("target"), shards.join("mask"), shards.join("weight")


@dataclass(frozen=True)
class Shards:
    """The tensors of all processes, by argument and rank."""

    parts: Mapping[str, list[Tensor]]
    first_draws: Tensor
    """The state of the first process's random generator."""

    def join(self, argument: str) -> Any:
        """The concatenated parts of an argument; None if it was not given."""
        return torch.cat(self.parts[argument]) if argument in self.parts else None

    def common(self, argument: str) -> Tensor:
        """An argument that is not divided, so all processes must pass the same."""
        parts = self.parts[argument]
        if not all(torch.equal(parts[0], other) for other in parts):
            fail(argument, "must be the same on all processes, because it is not divided among them", "different")
        return parts[0]


@outside_graphs
def exchange(
    tensors: Mapping[str, Tensor | None],
    gather: Gather,
    draws: torch.Generator = torch.default_generator,
    loss: str = "",
) -> Shards | None:
    """All-gather the tensors of all processes; None if there is only this one. ``"scores"`` carry gradients.

    ``loss`` describes what each process will compute, which must be the same everywhere.
    """
    if gather is False or not (dist.is_available() and dist.is_initialized()):
        return None
    if torch._C._are_functorch_transforms_active():
        fail("gather", "must be False inside the transforms of torch.func", gather)
    group = None if gather is True else gather
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    told: list[Any] = [None] * size
    dist.all_gather_object(told, (_forms(tensors), loss, draws.get_state() if rank == 0 else None), group=group)
    forms = _agreed([forms for forms, _, _ in told])
    for other, (_, name, _) in enumerate(told):
        if name != told[0][1]:
            losses = f"{told[0][1]} on process 0 and {name} on process {other}"
            fail("loss", "must be the same on all processes, which compute it on the joined batch", losses)
    scores: Any = tensors["scores"]
    given = {name: part.detach().to(scores.device) for name, part in tensors.items() if part is not None}
    parts = {name: _gathered(part, [one[name][1] for one in forms], group) for name, part in given.items()}
    parts["scores"][rank] = with_gradient_times(scores, size)
    return Shards(parts, told[0][2])


@contextmanager
def failing_together(gather: Gather) -> Iterator[None]:
    """If the block raises on one process, raise on all, so that no process waits for one that stopped."""
    group = None if isinstance(gather, bool) else gather
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    told: list[str | None] = [None] * dist.get_world_size(group)
    mine = None if error is None else f"{type(error).__name__}: {error}"
    dist.all_gather_object(told, mine, group=group)
    if error is not None:
        raise error
    for rank, other in enumerate(told):
        if other is not None:
            raise DirectLossError(f"The loss failed on process {rank}: {other}")


@contextmanager
def drawing_from(generator: torch.Generator, state: Tensor) -> Iterator[None]:
    """Draw the same numbers as the first process; the other generators are restored afterwards."""
    own = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        if not torch.equal(own, state):
            generator.set_state(own)


def check_gather(gather: object) -> Gather:
    """True, False, or a process group of this process."""
    types = (bool, dist.ProcessGroup) if dist.is_available() else (bool,)
    if not isinstance(gather, types):
        fail("gather", "must be True, False or a process group that this process belongs to", repr(gather))
    return gather


def _forms(tensors: Mapping[str, Tensor | None]) -> Forms | str:
    """The forms of this process, or an error message."""
    try:
        scores = check_tensor("scores", tensors["scores"])
        if scores.dim() == 0:
            fail("scores", "must have a first dimension, along which the processes are joined", "a single number")
        needed = {name: part for name, part in tensors.items() if part is not None or name == "target"}
        given = {name: check_tensor(name, part) for name, part in needed.items()}
        for argument in ("target", "mask"):
            shape = given.get(argument, scores).shape
            if shape[:1] != scores.shape[:1]:
                rule = f"must have as many entries in the first dimension as scores, {len(scores)}"
                fail(argument, f"{rule}, because the processes are joined along it", f"of shape {tuple(shape)}")
    except DirectLossError as error:
        return str(error)
    return {name: (_words(part), part.shape) for name, part in given.items()}


def _words(part: Tensor) -> str:
    """Dtype and shape, without the size of the first dimension."""
    return f"{part.dtype} of shape ({', '.join(['n', *map(str, part.shape[1:])]) if part.dim() else ''})"


def _agreed(told: list[Forms | str]) -> list[Forms]:
    """The forms of all processes, unless they do not fit together; then the same error is raised on each."""
    forms: list[Forms] = []
    for rank, one in enumerate(told):
        if isinstance(one, str):
            raise DirectLossError(f"On process {rank}: {one}")
        forms.append(one)
        for argument in {**forms[0], **one}:
            first, other = (given[argument][0] if argument in given else "missing" for given in (forms[0], one))
            if other != first:
                rule = "must have the same type and shape on all processes, except for the first dimension"
                fail(argument, rule, f"{first} on process 0 and {other} on process {rank}")
    return forms


def _gathered(part: Tensor, shapes: list[torch.Size], group: dist.ProcessGroup | None) -> list[Tensor]:
    """A tensor of each process, sent as bytes, which every backend supports, padded to the longest."""
    sent = part.new_zeros(max(shape.numel() for shape in shapes))
    sent[: part.numel()] = part.flatten()
    received = [torch.empty_like(sent) for _ in shapes]
    if len(sent):
        dist.all_gather([one.view(torch.uint8) for one in received], sent.view(torch.uint8), group=group)
    return [one[: shape.numel()].view(shape) for one, shape in zip(received, shapes, strict=True)]
