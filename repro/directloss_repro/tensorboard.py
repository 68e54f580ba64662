"""TensorBoard: the curves of each run while it goes on, and its settings and results once it has ended.

Every run has a folder of its own under ``OUT/tensorboard``. Curves are written by the process that trains, and before
each checkpoint they are on disk; a run that goes on from a checkpoint tells TensorBoard to forget what was written
after it, so that every step is there once. Results are written from the records, and made up for at the next start if
the process died in between; so are the curves of runs that were done before anyone asked for them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss._checks import fail
from directloss_repro.records import Record, RunSpec

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
POINTS = 500
"""How many values of the training loss a curve has at most."""
ENDED = ".ended"
"""How the name of the file ends that holds the results of a run."""


def check_installed() -> None:
    """TensorBoard is an extra."""
    if find_spec("tensorboard") is None:
        fail("--tensorboard", "needs the package tensorboard", "not installed", "Run: pip install tensorboard")


class Board:
    """The curves of one training, as they come.

    Args:
        folder: of this run.
        every: at which iterations the training loss is written: multiples of this.
    """

    def __init__(self, folder: Path, every: int = 1) -> None:
        self.folder, self.every = folder, every
        self._writer: SummaryWriter | None = None

    def begin(self, iteration: int) -> None:
        """Start, or go on: whatever is there of this iteration and later ones is forgotten."""
        self._writer = _writer(self.folder, purge_step=iteration)

    def numbers(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """What was measured."""
        if self._writer is not None:
            for name, value in numbers.items():
                self._writer.add_scalar(_tag(name), value, iteration)

    def loss(self, iteration: int, value: Any) -> None:
        """The loss of a step, if its turn has come."""
        if iteration % self.every == 0:
            self.numbers(iteration, {"loss": float(value)})

    def flush(self) -> None:
        """Everything on disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """No more is to come."""
        if self._writer is not None:
            self._writer.close()


def board_of(root: str | None, spec: RunSpec, key: str, iterations: int) -> Board | None:
    """The board of a run; None where nobody asked for it."""
    if root is None:
        return None
    name = run_name(spec.stage, spec.method, spec.noise, spec.group, spec.seed, key)
    return Board(Path(root) / name, max(1, iterations // POINTS))


def run_name(stage: str, method: str, noise: float, label: str | None, seed: int, key: str) -> str:
    """The folder of a run: what a reader wants to see in the list, and enough of the key to make it unique.

    Example:
        >>> run_name("final", "pos-ndcg@10", 0.2, None, 3, "0123456789abcdef")
        'final/pos-ndcg-10_noise-0.2_seed-3_01234567'
    """
    words = [method, *([] if label is None else [label]), *([f"noise-{noise:g}"] if noise else []), f"seed-{seed}"]
    return f"{stage}/" + "_".join(re.sub(r"[^\w.-]+", "-", word) for word in [*words, key[:8]])


class Results:
    """The ends of runs, under ``root``: each is written once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add_all(self, records: Iterable[Record]) -> None:
        """Whatever is missing of these."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Settings and results for TensorBoard's table, and the curve, if the run was done without a board."""
        folder = self.root / run_name(
            record.stage, record.method, record.noise or 0.0, record.group, record.seed, record.key
        )
        there = [path.name for path in folder.glob("*tfevents*")] if folder.is_dir() else []
        if any(name.endswith(ENDED) for name in there):
            return
        folder.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: written elsewhere, then moved.
        with tempfile.TemporaryDirectory(dir=self.root) as elsewhere:
            writer = _writer(Path(elsewhere))
            _write_results(writer, record)
            if not there:
                _write_curve(writer, record.curve)
            writer.close()
            (file,) = Path(elsewhere).iterdir()
            file.replace(folder / (file.name + ENDED))


def _write_results(writer: SummaryWriter, record: Record) -> None:
    from torch.utils.tensorboard.summary import hparams

    all_named = {"method": record.method, "seed": record.seed, "noise": record.noise, "class": record.group}
    named = {name: value for name, value in all_named.items() if value is not None}
    settings = {**named, **record.params}
    results = {f"result/{name}": float(value) for name, value in record.metrics.items()}
    # `SummaryWriter.add_hparams` would put them into one more folder.
    for summary in hparams(settings, results):  # type: ignore[no-untyped-call]
        writer._get_file_writer().add_summary(summary)  # type: ignore[no-untyped-call]
    for name, value in results.items():
        writer.add_scalar(name, value, 0)


def _write_curve(writer: SummaryWriter, curve: Mapping[str, Sequence[float]]) -> None:
    for name, values in curve.items():
        if name != "iteration":
            for iteration, value in zip(curve["iteration"], values, strict=True):
                writer.add_scalar(_tag(name), value, int(iteration))


def _tag(name: str) -> str:
    """``test_ap`` as ``test/ap``: TensorBoard groups by what stands before the slash."""
    part, _, rest = name.partition("_")
    return f"{part}/{rest}" if part in ("train", "val", "test") and rest else f"train/{name}"


def _writer(folder: Path, purge_step: int | None = None) -> SummaryWriter:
    from torch.utils.tensorboard import SummaryWriter  # slow to load

    return SummaryWriter(str(folder), purge_step=purge_step)
