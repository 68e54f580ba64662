"""One training run of a fit, from its description to its record; worker processes do this.

A search run trains on the training rows and is judged on the validation rows, several times on its way; its value is
the best of these, and the number of steps until then belongs to its setting. The final run of each loss takes the best
setting and, where a ranking is wanted, trains on both; where decisions are wanted, the validation rows still have to
choose the threshold and are not trained on. The rule is the same for all losses.

Why the number of steps is chosen: losses need very different ones. With 2 % positives, cross-entropy stays at the base
rate for hundreds of steps, overtakes, and then over-fits, while AP losses are near their best after a hundred; any
fixed number would decide the comparison.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from directloss._checks import DirectLossWarning, fail
from directloss_repro.data import Part
from directloss_repro.methods import parse_method
from directloss_repro.models.mlp import Scorer
from directloss_repro.records import Record, RunSpec, make_record, versions
from directloss_repro.seeding import generator, seeded
from directloss_repro.tabular.columns import check_numbers, choose, kinds_of
from directloss_repro.tabular.comparing import bootstrap, interval
from directloss_repro.tabular.config import OF_REST_VALIDATION, FitConfig
from directloss_repro.tabular.encoding import Encoder, learn_encoder
from directloss_repro.tabular.measures import Measure, get_measure
from directloss_repro.tabular.modelfile import Model, score
from directloss_repro.tabular.reading import Table, read_table
from directloss_repro.tabular.target import Target, read_target
from directloss_repro.tensorboard import board_of
from directloss_repro.training import Schedule, Trained, train

POINTS = 20
"""How often a run is measured on its way."""
STEPS = "iterations"


@dataclass(frozen=True)
class FitJob:
    """A run to do, complete in itself, so that it can be sent to any process."""

    spec: RunSpec
    config: FitConfig
    data: str
    models: str
    """The folder in which a final run leaves its model."""
    board: str | None = None
    """The folder for TensorBoard."""

    @property
    def key(self) -> str:
        """The key that its record will have."""
        return self.spec.key(self.config.digest())

    def run(self) -> Record:
        """Train and measure."""
        return execute(self)


@dataclass(frozen=True)
class Rows:
    """The checked content of a file: columns to learn from, labels, and the row numbers of each part."""

    frame: pd.DataFrame
    kinds: dict[str, str]
    with_missing: tuple[str, ...]
    target: Target
    parts: dict[str, Tensor]
    sparse: bool


@dataclass(frozen=True)
class Prepared:
    """The parts of one stage as tensors."""

    encoder: Encoder
    train: Part
    test: Part
    val: Part | None


def sha256(path: Path) -> str:
    """The name of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_rows(y: Tensor, test_share: float, seed: int) -> dict[str, Tensor]:
    """Row numbers of train, val and test, each with the same share of positives, as far as that is possible."""
    found: dict[str, list[Tensor]] = {"train": [], "val": [], "test": []}
    for label in (0, 1):
        rows = (y == label).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), generator=generator("split", seed, label))]
        test = max(1, round(test_share * len(rows)))
        val = max(1, round(OF_REST_VALIDATION * (len(rows) - test)))
        for name, part in zip(
            ("test", "val", "train"), torch.split(rows, [test, val, len(rows) - test - val]), strict=True
        ):
            found[name].append(part)
    return {name: torch.cat(parts).sort().values for name, parts in found.items()}


def check_rows(table: Table, config: FitConfig) -> Rows:
    """Everything about the content of the file that could stand in the way of training."""
    target = read_target(table, config.target, config.positive)
    names = choose(table.data, config.target, config.drop)
    kinds = kinds_of(table.data, names, config.categorical)
    with_missing = check_numbers(table.data, kinds, config.impute)
    parts = split_rows(target.y, config.test_share, config.seed)
    return Rows(table.data[names], kinds, tuple(with_missing), target, parts, table.sparse)


@lru_cache(maxsize=1)
def load_rows(config: FitConfig, data: str) -> Rows:
    """The file, read once by each process; it must not change while a fit is running."""
    if sha256(Path(data)) != config.sha256:
        fail("DATA", "must stay as it is during a fit", f"{data}, which has changed")
    return check_rows(read_table(Path(data)), config)


@lru_cache(maxsize=2)
def prepare(config: FitConfig, data: str, stage: str) -> Prepared:
    """Encoded parts. What the encoder learns, it learns from the rows that are trained on."""
    return encode_rows(load_rows(config, data), config, stage)


def encode_rows(rows: Rows, config: FitConfig, stage: str) -> Prepared:
    """The parts of a stage as tensors."""
    trained, held = rows.parts["train"], rows.parts["val"]
    joined = stage == "final" and not get_measure(config.metric).decides
    if joined:
        trained = torch.cat([trained, held]).sort().values
    encoder = learn_encoder(rows.frame.iloc[trained.numpy()], rows.kinds, rows.with_missing)

    def part(index: Tensor) -> Part:
        return Part(encoder.encode(rows.frame.iloc[index.numpy()]), rows.target.y[index])

    return Prepared(encoder, part(trained), part(rows.parts["test"]), None if joined else part(held))


def execute(job: FitJob) -> Record:
    """Train and measure; a final run also stores its model. The result depends on the job alone."""
    spec, config = job.spec, job.config
    began = time.perf_counter()
    final = spec.stage == "final"
    measure, method = get_measure(config.metric), parse_method(spec.method)
    parts = prepare(config, job.data, spec.stage)
    scorer = seeded(lambda: Scorer(parts.encoder.width, config.hidden), "weights", "fit", spec.seed)
    if method.kind in ("x-ent", "direct"):
        start_at_base_rate(scorer, parts.train.y)
    iterations = int(spec.params[STEPS]) if final else config.iterations
    schedule = Schedule(
        iterations=iterations,
        learning_rate=float(spec.params["learning_rate"]),
        weight_decay=float(spec.params["weight_decay"]),
        optimizer="adamw",
        evaluate_every=math.ceil(iterations / POINTS),
        batch_size=config.batch or None,
        seed=spec.seed,
    )

    def watch(network: nn.Module) -> dict[str, float]:
        return _measured(scorer, parts, measure, ("train", "val", "test") if final else ("val",))

    with warnings.catch_warnings():
        # A batch without positives teaches a ranking nothing and is passed over; with rare positives that is normal.
        warnings.simplefilter("ignore", DirectLossWarning)
        board = board_of(job.board, spec, job.key, iterations)
        loss = method.loss_fn(spec.params, warm_up=config.iterations // 2)
        trained = train(scorer, loss, parts.train, schedule, watch, board=board)
    numbers = dict(trained.last) if final else best_on_the_way(trained, f"val_{measure.name}")
    if final:
        numbers |= _test_interval(scorer, parts, measure, config.seed)
        _store(job, parts, scorer, measure)
    return make_record(
        spec,
        config.digest(),
        metrics={name: round(value, 8) for name, value in numbers.items()},
        curve={name: [round(v, 6) for v in values] for name, values in trained.curve.items()} if final else {},
        seconds=time.perf_counter() - began,
        diverged_at=trained.diverged_at,
    )


def start_at_base_rate(scorer: Scorer, y: Tensor) -> None:
    """Cross-entropy begins with the share of positives as its answer, which it would otherwise spend its time to learn.

    A ranking does not depend on the last bias, and the other losses would start far from the decisions they are about,
    so this is for cross-entropy alone, and for what warms up with it.
    """
    last = scorer.layers[-1]
    share = float(y.double().mean())
    if isinstance(last, nn.Linear) and last.bias is not None:
        nn.init.constant_(last.bias, math.log(share / (1 - share)))


def best_on_the_way(trained: Trained, name: str) -> dict[str, float]:
    """The highest value after the start, the first of equals, and the number of steps until then."""
    points = list(zip(trained.curve["iteration"], trained.curve[name], strict=True))[1:]
    steps, value = max(points, key=lambda point: point[1])
    return {name: value, STEPS: steps}


def scores_of(scorer: Scorer, x: Tensor) -> Tensor:
    """Scores in float64; a network that has diverged gives every row the same score."""
    scores = score(scorer, x)
    return scores if bool(torch.isfinite(scores).all()) else torch.zeros_like(scores)


def cut_of(scorer: Scorer, parts: Prepared, measure: Measure) -> float:
    """The threshold that is best on validation data; zero for a ranking."""
    if parts.val is None:
        return 0.0
    return measure.threshold(scores_of(scorer, parts.val.x), parts.val.y)


def _measured(scorer: Scorer, parts: Prepared, measure: Measure, names: tuple[str, ...]) -> dict[str, float]:
    cut = cut_of(scorer, parts, measure)
    named = {"train": parts.train, "val": parts.val, "test": parts.test}
    return {
        f"{name}_{measure.name}": float(measure.value(scores_of(scorer, part.x) - cut, part.y))
        for name in names
        if (part := named[name]) is not None
    }


def _test_interval(scorer: Scorer, parts: Prepared, measure: Measure, seed: int) -> dict[str, float]:
    scores = scores_of(scorer, parts.test.x) - cut_of(scorer, parts, measure)
    low, high = interval(bootstrap(measure, scores, parts.test.y, seed))
    return {f"test_{measure.name}_low": low, f"test_{measure.name}_high": high}


def model_path(folder: str | Path, method: str) -> Path:
    """Where the model of a loss is stored."""
    return Path(folder) / f"{method.replace('@', '-')}.pt"


def _store(job: FitJob, parts: Prepared, scorer: Scorer, measure: Measure) -> None:
    from directloss_repro.files import write_all

    config, rows = job.config, load_rows(job.config, job.data)
    notes: dict[str, Any] = {"data": config.data, "params": job.spec.params, "seed": config.seed, **versions()}
    if not all(bool(torch.isfinite(weight).all()) for weight in scorer.state_dict().values()):
        # A diverged network has no use; the record says that it diverged. Zeros give every row the same score.
        for weight in scorer.parameters():
            nn.init.zeros_(weight)
    model = Model(
        scorer=scorer,
        encoder=parts.encoder,
        hidden=config.hidden,
        metric=config.metric,
        method=job.spec.method,
        target=config.target,
        labels=rows.target.labels,
        threshold=cut_of(scorer, parts, measure) if measure.decides else None,
        sparse=rows.sparse,
        notes=notes,
    )
    write_all({model_path(job.models, job.spec.method): model.to_bytes()})
