"""TensorBoard: the curve of each run while it trains, and its settings and results at the end.

Every run has a folder under ``OUT/tensorboard``. A run that continues from a checkpoint replaces what was written after
it, so that every step appears once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from directloss_repro.records import RunSpec

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"


class Board:
    """The folder of one run; call it with an iteration and what was measured there."""

    def __init__(self, root: Path, spec: RunSpec, key: str) -> None:
        self.spec, self.folder = spec, root / run_name(spec, key)
        self._writer: SummaryWriter | None = None

    def __call__(self, iteration: int, numbers: Mapping[str, float]) -> None:
        writer = self._open(iteration)
        for name, value in numbers.items():
            part, _, rest = name.partition("_")  # TensorBoard groups by the part before the slash
            writer.add_scalar(f"{part}/{rest}" if rest else f"train/{name}", value, iteration)
        writer.flush()

    def finish(self, metrics: Mapping[str, float]) -> None:
        """Add settings and results to TensorBoard's table."""
        from torch.utils.tensorboard.summary import hparams

        spec = self.spec
        named = {"method": spec.method, "seed": spec.seed, "noise": spec.noise, "class": spec.group, **spec.params}
        results = {f"result/{name}": float(value) for name, value in metrics.items()}
        writer = self._open(0)
        # `SummaryWriter.add_hparams` would write them to another folder.
        for summary in hparams({name: value for name, value in named.items() if value is not None}, results):  # type: ignore[no-untyped-call]
            writer._get_file_writer().add_summary(summary)  # type: ignore[no-untyped-call]
        for name, value in results.items():
            writer.add_scalar(name, value, 0)
        writer.close()

    def _open(self, iteration: int) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        if self._writer is None:
            self._writer = SummaryWriter(str(self.folder), purge_step=iteration)
        return self._writer


def run_name(spec: RunSpec, key: str) -> str:
    """The folder of a run: what a reader wants to see in the list, and enough of the key to make it unique.

    Example:
        >>> run_name(RunSpec("synthetic", "final", "pos-ndcg@10", 3, 0.2, None, {}), "0123456789abcdef")
        'final/pos-ndcg-10_noise-0.2_seed-3_01234567'
    """
    noise = f"noise-{spec.noise:g}" if spec.noise else ""
    words = [spec.method, spec.group or "", noise, f"seed-{spec.seed}", key[:8]]
    return f"{spec.stage}/" + "_".join(re.sub(r"[^\w.-]+", "-", word) for word in words if word)
