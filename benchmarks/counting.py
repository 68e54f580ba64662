"""What a step costs on an accelerator: operations, synchronisations and bytes copied, counted on a simulated device.

    python -m benchmarks.counting [--names] [--compiled]

Forward and backward of one default step with ``check_values=False``, after a first one that fills the caches. Views
launch nothing and are not counted. No accelerator is needed, and nothing is timed. ``--names`` lists the operations;
``--compiled`` counts the fused kernels and the library calls that are left after ``torch.compile``, on the CPU.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable

import torch
from torch._inductor import metrics as generated
from torch._inductor.utils import run_and_get_code

import directloss as dl
from benchmarks.accelerator import DEVICE, Accelerator, Record
from benchmarks.peers import available, cross_entropy
from benchmarks.study import table
from benchmarks.timing import Loss, imbalanced

SHAPES = [(512,), (4096,), (256, 200)]
GOALS = {
    **dict.fromkeys(("ap", "ndcg", "ndcg@10", "precision@5", "mrr", "auc"), 70),
    **dict.fromkeys(("f1", "iou", "error"), 50),
}
"""The most operations of a default step of each task; none of them may synchronise."""
PEERS = ("Smooth-AP (formula)", "RaMBO black box (formula)", "torchsort AP (package)")
"""The peers that rank; all of them take one list at a time."""


def direct(task: str, **options: object) -> Loss:
    """A default step without value checks, which would synchronise."""
    return lambda scores, target: dl.direct_loss(scores, target, task, check_values=False, **options)  # type: ignore[arg-type]


def rows() -> dict[str, Loss]:
    """Row -> loss."""
    ours = {
        "cross-entropy": cross_entropy,
        **{f"direct loss, {task}": direct(task) for task in GOALS},
        "direct loss, ap, sign -1 (host)": direct("ap", sign=-1),
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


def verdicts(names: bool) -> list[str]:
    """Each goal, and whether it is met at every size."""
    lines = []
    for task, goal in GOALS.items():
        found = [count(direct(task), shape) for shape in SHAPES]
        most, waits = max(len(one.operations) for one in found), sum(len(one.reads) + one.waits for one in found)
        met = "met" if most <= goal and not waits else "NOT MET"
        lines.append(f"{task}: at most {most} operations, {waits} synchronisations, goal {goal} and 0: {met}")
        if names:
            lines[-1] += "".join(f", {number} {name}" for name, number in Counter(found[0].operations).most_common())
    return lines


def compiled(task: str, shape: tuple[int, ...]) -> int:
    """Kernels and library calls of a default step after ``torch.compile``."""
    scores, target = (part.reshape(shape) for part in imbalanced(torch.Size(shape).numel()))
    leaf, loss = scores.requires_grad_(), torch.compile(direct(task), fullgraph=True)
    torch._dynamo.reset()
    generated.reset()
    _, programs = run_and_get_code(lambda: loss(leaf, target).backward())
    return generated.generated_kernel_count + sum(len(re.findall(r"= torch\.ops\.", text)) for text in programs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="list the operations of each task")
    parser.add_argument("--compiled", action="store_true", help="count what is left after torch.compile")
    arguments = parser.parse_args()
    print(show(rows()), end="\n\n")
    for line in verdicts(arguments.names):
        print("-", line)
    if arguments.compiled:
        print("\nAfter torch.compile:", ", ".join(f"{task} {compiled(task, SHAPES[-1])}" for task in GOALS))


if __name__ == "__main__":
    main()
