"""One run, from its description to its record. This is what worker processes do."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from directloss.direct import DirectLoss
from directloss_repro.checkpoint import Checkpoint
from directloss_repro.config import Config
from directloss_repro.data import Part, Split, hold_out
from directloss_repro.data.split import check_both_labels, with_noise
from directloss_repro.evaluation import best_threshold, measure, scores_of
from directloss_repro.experiments import Source, get_experiment
from directloss_repro.experiments.base import Judged
from directloss_repro.methods import Method, parse_method
from directloss_repro.records import Record, RunSpec, make_record
from directloss_repro.seeding import generator, seeded
from directloss_repro.tensorboard import board_of
from directloss_repro.training import Schedule, Trained, train

HELD_OUT = 1 / 3
"""Share of the training data that is held out for ``select_on="val"`` where the data brings no validation part."""


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
        return Source(spec.seed, spec.group, self.data_root, self.weights, self.cache, spec.stage)

    def checkpoint(self, number: int = 0) -> Checkpoint | None:
        """Where the state of the run is stored now and then, for each round of training; None for nowhere."""
        name = f"{self.key}-{number}" if number else self.key
        return None if self.checkpoints is None else Checkpoint(Path(self.checkpoints), name)

    def run(self) -> Record:
        """Train and measure."""
        return execute(self)


def execute(job: Job) -> Record:
    """Train and measure. The result depends on the job alone."""
    began = time.perf_counter()
    run = _Run(job)
    trained = run.trained()
    judged = Judged({}) if run.searching else run.judged()
    run.clean_up()
    numbers = trained.best(run.chosen_by) if job.config.keeps_best else trained.last
    curve = {name: [round(value, 6) for value in values] for name, values in trained.curve.items()}
    return make_record(
        job.spec,
        job.config.digest(),
        metrics=_rounded({**numbers, **judged.metrics}),
        curve={} if run.searching else curve,
        seconds=time.perf_counter() - began + trained.seconds_before,
        diverged_at=trained.diverged_at,
        shown=judged.shown,
    )


class _Run:
    """A job with its data, its network and its loss."""

    def __init__(self, job: Job) -> None:
        self.job, self.config, spec = job, job.config, job.spec
        self.experiment = experiment = get_experiment(spec.experiment)
        self.searching = spec.stage == "search"
        self.chosen_by = f"val_{experiment.metric}"
        self.split = split = prepare(spec.experiment, self.config, spec.noise, job.source)
        self.model = seeded(
            lambda: experiment.model(self.config, split.train.x.shape[1]), "weights", spec.experiment, spec.seed
        )
        if experiment.start is not None:
            experiment.start(self.config, job.source, self.model)
        self.method = parse_method(spec.method)
        self.draw = generator("anchors", spec.experiment, spec.seed)
        self.loss = self.method.loss_fn(spec.params, **self.config.relaxation, generator=self.draw)

    def trained(self) -> Trained:
        """Train, and go on with harder data where the experiment has such a thing; what the last round gave."""
        part = self.split.train
        trained = self._fit(part, 0)
        for number in self._rounds():
            assert self.experiment.harder is not None
            part = self.experiment.harder(self.config, self.job.source, part, self._scores)
            trained = self._fit(part, number)
        return trained

    def judged(self) -> Judged:
        """What the experiment itself makes of test data, and what it wants to show of the first seed."""
        experiment, split, judged = self.experiment, self.split, Judged({})
        if experiment.judge is not None:
            threshold = best_threshold(self._scores(split.train), split.train.y)
            judged = experiment.judge(self.config, self.job.source, self._scores(split.test), threshold)
        if experiment.show is not None and self.job.spec.seed == 0:
            judged = Judged(judged.metrics, experiment.show(self.model, split))
        return judged

    def clean_up(self) -> None:
        """The checkpoints of all rounds but the first, whose own training removes it."""
        for number in self._rounds():
            if (stored := self.job.checkpoint(number)) is not None:
                stored.remove()

    def _rounds(self) -> range:
        return range(1, self.config.rounds + 1 if self.experiment.harder is not None else 1)

    def _fit(self, part: Part, number: int) -> Trained:
        spec, experiment, config = self.job.spec, self.experiment, self.config
        schedule = make_schedule(spec, config, self.method, len(part))
        if isinstance(self.loss, DirectLoss):  # half of a training whose length is known
            self.loss.warm_up = schedule.iterations // 2
        # A search run never looks at test data, not even to report it.
        parts = ("train", "val") if self.searching or experiment.judge is not None else ("train", "val", "test")
        shown = _measured(self.split, config.measured)
        trained = train(
            self.model,
            self.loss,
            part,
            schedule,
            lambda network: measure(network, shown, parts, metric=experiment.metric, batch=config.at_once),
            augment=experiment.augment,
            draws={"anchors": self.draw},
            checkpoint=self.job.checkpoint(number),
            keep_by=self.chosen_by if config.keeps_best and experiment.judge is not None else None,
            board=board_of(self.job.board, spec, self.job.key, schedule.iterations, number),
        )
        if trained.kept is not None:
            self.model.load_state_dict(trained.kept)
        return trained

    def _scores(self, part: Part) -> Tensor:
        return scores_of(self.model, part, self.config.at_once)


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
        evaluate_every=0 if spec.stage == "search" and not config.keeps_best else config.evaluate_every,
        seed=spec.seed,
    )
    return config.paced(schedule, method, items)


def _measured(split: Split, count: int) -> Split:
    """Of large training data a part is enough to measure."""
    few = 0 < count < len(split.train)
    return dataclasses.replace(split, train=split.train.first(count)) if few else split


def set_up_process() -> None:
    """One thread per process: the networks are small, and results must not depend on how sums are split up."""
    torch.set_num_threads(1)


def _rounded(numbers: dict[str, float]) -> dict[str, float]:
    """Float32 has seven digits; more would only make the files longer."""
    return {name: round(value, 8) for name, value in numbers.items()}
