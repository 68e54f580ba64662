"""What a step costs on an accelerator: operations, synchronisations and bytes copied, counted on a simulated device.

    python -m benchmarks.counting

Forward and backward of one default step with ``check_values=False``, after a first one that fills the caches. Views
launch nothing and are not counted. No accelerator is needed, and nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import directloss as dl
from benchmarks.accelerator import DEVICE, Accelerator, Record
from benchmarks.peers import available, cross_entropy
from benchmarks.study import table
from benchmarks.timing import Loss, imbalanced

SHAPES = [(512,), (4096,), (256, 200)]
PEERS = ("Smooth-AP (formula)", "RaMBO black box (formula)", "torchsort AP (package)")
"""The peers that rank; all of them take one list at a time."""


def direct(task: str, **options: object) -> Loss:
    """A default step without value checks, which would synchronise."""
    return lambda scores, target: dl.direct_loss(scores, target, task, check_values=False, **options)  # type: ignore[arg-type]


def rows() -> dict[str, Loss]:
    """Row -> loss."""
    ours = {
        "cross-entropy": cross_entropy,
        "direct loss, AP": direct("ap"),
        "direct loss, NDCG": direct("ndcg"),
        "direct loss, AUC": direct("auc"),
        "direct loss, F1": direct("f1"),
        "direct loss, error": direct("error"),
        "direct loss, AP, -1 (host)": direct("ap", sign=-1),
        "direct loss, precision@5 (host)": direct("precision@5"),
    }
    peers = available(max(n for *_, n in SHAPES))
    return ours | {name: peers[name][0] for name in PEERS if name in peers}


def count(loss: Loss, shape: tuple[int, ...]) -> Record:
    """What the second step asks of the device."""
    scores, target = (part.reshape(shape) for part in imbalanced(torch.Size(shape).numel()))
    with Accelerator() as device:
        leaf, labels = scores.to(DEVICE).requires_grad_(), target.to(DEVICE)
        for _ in range(2):
            leaf.grad = None
            device.forget()
            loss(leaf, labels).backward()
        return device.record


def cell(make: Callable[[], Record]) -> str:
    """Operations / synchronisations / bytes copied."""
    try:
        found = make()
    except Exception:  # compiled for real devices only, or made for one list
        return "-"
    copied = sum(found.fetched) + sum(found.sent)
    return f"{len(found.operations)} / {len(found.reads) + found.waits} / {copied:,}"


def show(losses: dict[str, Loss]) -> str:
    """The table in Markdown."""
    titles = [f"n = {shape[0]:,}" if len(shape) == 1 else "{} lists of {}".format(*shape) for shape in SHAPES]
    rows = []
    for name, loss in losses.items():
        cells = []
        for shape in SHAPES:
            one_list = len(shape) > 1 and name in PEERS
            cells.append("-" if one_list else cell(lambda loss=loss, shape=shape: count(loss, shape)))
        rows.append([name, *cells])
    return table(["operations / synchronisations / bytes copied", *titles], rows)


def main() -> None:
    print(show(rows()))


if __name__ == "__main__":
    main()
