"""One run, from its description to its record. This is what worker processes do."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from directloss.lab.checkpoint import Checkpoint
from directloss.lab.config import Config, EpochConfig
from directloss.lab.data import Part, Split, hold_out
from directloss.lab.data.split import check_both_labels, with_noise
from directloss.lab.evaluation import best_threshold, measure, scores_of
from directloss.lab.experiments import Source, get_experiment
from directloss.lab.experiments.base import Judged
from directloss.lab.experiments.photos import PhotoConfig
from directloss.lab.methods import Method, parse_method
from directloss.lab.records import Record, RunSpec, make_record
from directloss.lab.seeding import generator, seeded
from directloss.lab.tensorboard import board_of
from directloss.lab.training import Schedule, Trained, steps_per_epoch, train

HELD_OUT = 1 / 3
"""Share of the training data that is held out for ``select_on="val"`` where the data brings no validation part."""
AT_ONCE = 500
"""How many images a network measures at once."""


@dataclass(frozen=True)
class Job:
    """A run to do, complete in itself, so that it can be sent to any process."""

    spec: RunSpec
    config: Config
    data_root: str | None = None
    checkpoints: str | None = None
    """The folder for the state of a run that takes long."""
    weights: str | None = None
    """The file of weights to start from."""
    cache: str | None = None
    """The folder of what all runs share."""
    board: str | None = None
    """The folder for TensorBoard."""

    @property
    def key(self) -> str:
        """The key that its record will have."""
        return self.spec.key(self.config.digest())

    @property
    def source(self) -> Source:
        """Which data it asks for."""
        spec = self.spec
        return Source(spec.seed, spec.label, self.data_root, self.weights, self.cache, spec.stage)

    def checkpoint(self, number: int = 0) -> Checkpoint | None:
        """Where the state of the run is stored now and then, for each round of training; None for nowhere."""
        name = f"{self.key}-{number}" if number else self.key
        return None if self.checkpoints is None else Checkpoint(Path(self.checkpoints), name)

    def run(self) -> Record:
        """Train and measure."""
        return execute(self)


def execute(job: Job) -> Record:
    """Train and measure. The result depends on the job alone."""
    spec, config = job.spec, job.config
    began = time.perf_counter()
    split = prepare(spec.experiment, config, spec.noise, job.source)
    experiment = get_experiment(spec.experiment)
    model = seeded(lambda: experiment.model(config, split.train.x.shape[1]), "weights", spec.experiment, spec.seed)
    if experiment.start is not None:
        experiment.start(config, job.source, model)
    method = parse_method(spec.method)
    searching = spec.stage == "search"
    # A search run never looks at test data, not even to report it.
    parts = ("train", "val") if searching or experiment.judge is not None else ("train", "val", "test")
    draw = generator("anchors", spec.experiment, spec.seed)
    loss = method.loss_fn(spec.params, **_relaxation(config), generator=draw)
    shown, at_once = _shown(config, split)
    early, chosen_by = isinstance(config, PhotoConfig) and config.early, f"val_{experiment.metric}"

    def fit(part: Part, number: int = 0) -> Trained:
        schedule = make_schedule(spec, config, method, len(part))
        trained = train(
            model,
            loss,
            part,
            schedule,
            lambda network: measure(network, shown, parts, metric=experiment.metric, batch=at_once),
            augment=experiment.augment,
            draws={"anchors": draw},
            checkpoint=job.checkpoint(number),
            keep_by=chosen_by if early and experiment.judge is not None else None,
            board=board_of(job.board, spec, job.key, schedule.iterations, number),
        )
        if trained.kept is not None:
            model.load_state_dict(trained.kept)
        return trained

    trained = fit(split.train)
    if experiment.harder is not None and isinstance(config, PhotoConfig):
        part = split.train
        for number in range(1, config.hard_rounds + 1):
            part = experiment.harder(config, job.source, part, lambda some: scores_of(model, some, at_once))
            trained = fit(part, number)
    numbers = trained.best(chosen_by) if early else trained.last
    judged = Judged({})
    if experiment.judge is not None and not searching:
        threshold = best_threshold(scores_of(model, split.train, at_once), split.train.y)
        judged = experiment.judge(config, job.source, scores_of(model, split.test, at_once), threshold)
    if experiment.show is not None and not searching and spec.seed == 0:
        judged = Judged(judged.metrics, experiment.show(model, split))
    for number in range(1, getattr(config, "hard_rounds", 0) + 1):
        if (stored := job.checkpoint(number)) is not None:
            stored.remove()
    return make_record(
        spec,
        config.digest(),
        metrics=_rounded({**numbers, **judged.metrics}),
        curve={} if searching else {name: [round(v, 6) for v in values] for name, values in trained.curve.items()},
        seconds=time.perf_counter() - began + trained.seconds_before,
        diverged_at=trained.diverged_at,
        shown=judged.shown,
    )


@lru_cache(maxsize=8)
def prepare(name: str, config: Config, noise: float, source: Source) -> Split:
    """The data of a run: drawn or read, labels flipped, and a part held out where the search needs one."""
    experiment = get_experiment(name)
    split = experiment.data(config, source)
    split = with_noise(split, noise, config.noisy_parts, name, source.seed, source.label)
    if config.select_on == "val" and source.stage == "search" and split.val is None:
        split = hold_out(split, HELD_OUT, name, source.seed, source.label)
    for part in split.parts() if experiment.metric == "ap" else ():
        if part != "test" or experiment.judge is None:
            check_both_labels(split.parts()[part], part)
    return split


def make_schedule(spec: RunSpec, config: Config, method: Method, items: int) -> Schedule:
    """The schedule of a run: the full batch for so many iterations, or minibatches for so many epochs."""
    schedule = Schedule(
        iterations=config.iterations,
        learning_rate=float(spec.params["learning_rate"]),
        weight_decay=float(spec.params["weight_decay"]),
        optimizer=config.optimizer,
        momentum=config.momentum,
        evaluate_every=0 if spec.stage == "search" else config.evaluate_every,
    )
    if isinstance(config, PhotoConfig):
        return dataclasses.replace(
            schedule,
            evaluate_every=config.evaluate_every if config.early else schedule.evaluate_every,
            batch_size=config.batch_size or None,
            chunk=config.chunk or None,
            seed=spec.seed,
        )
    if not isinstance(config, EpochConfig):
        return schedule
    size = config.batch_of(method)
    steps = steps_per_epoch(items, size)
    epochs, drops = config.lengthened(method)
    return dataclasses.replace(
        schedule,
        iterations=epochs * steps,
        evaluate_every=schedule.evaluate_every * steps,
        batch_size=size,
        seed=spec.seed,
        drops=tuple(drop * steps for drop in drops),
        factor=config.factor,
    )


def _relaxation(config: Config) -> dict[str, Any]:
    """The settings of UniLoss."""
    if not isinstance(config, EpochConfig):
        return {}
    return {"anchors": config.anchors, "interpolation": config.interpolation, "fraction": config.fraction}


def _shown(config: Config, split: Split) -> tuple[Split, int | None]:
    """What is measured, and how many items at once: of large training data a part is enough."""
    if isinstance(config, PhotoConfig):
        return split, config.chunk or AT_ONCE
    if not isinstance(config, EpochConfig):
        return split, None
    count = config.train_measured
    if not 0 < count < len(split.train):
        return split, AT_ONCE
    return dataclasses.replace(split, train=split.train.first(count)), AT_ONCE


def set_up_process() -> None:
    """One thread per process: the networks are small, and results must not depend on how sums are split up."""
    torch.set_num_threads(1)


def _rounded(numbers: dict[str, float]) -> dict[str, float]:
    """Float32 has seven digits; more would only make the files longer."""
    return {name: round(value, 8) for name, value in numbers.items()}
