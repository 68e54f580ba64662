"""One run of an experiment, and the campaign of all its runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from directloss_repro.campaign import Campaign, Cell, Outcome
from directloss_repro.checkpoint import Checkpoint
from directloss_repro.config import Config, EpochConfig
from directloss_repro.data import Split, hold_out
from directloss_repro.data.split import check_both_labels, with_noise
from directloss_repro.evaluation import measure, scores_of
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Files, Source
from directloss_repro.methods import Method, parse_method
from directloss_repro.records import Params, RunSpec
from directloss_repro.seeding import generator, seeded, stage_of
from directloss_repro.training import Schedule, Trained, steps_per_epoch, train

HELD_OUT = 1 / 3
"""Share of the training data held out for ``select_on="val"`` if the data has no validation part."""


@dataclass(frozen=True)
class Training:
    """The ``train`` of an experiment's campaign; self-contained, so that it can be sent to any process."""

    experiment: str
    config: Config
    files: Files = field(default_factory=Files)
    checkpoints: str | None = None
    """The folder for checkpoints of long runs."""
    compiled: bool = False
    """Whether `torch.compile` compiles the network."""

    def __call__(self, cell: Cell, params: Params, seed: int) -> Outcome:
        """Train and evaluate. The result depends only on experiment, config and arguments."""
        return _Run(self, RunSpec(self.experiment, stage_of(seed), cell.method, seed, cell.noise, cell.group, params))()


def campaign_of(training: Training) -> Campaign:
    """The campaign of an experiment.

    Noise levels are outermost and methods innermost, so that compared methods train at about the same time.
    """
    config, metric = training.config, get_experiment(training.experiment).metric
    return Campaign(
        training.experiment,
        config.digest(),
        tuple(Cell(g, m, n) for n in config.noise for g in config.classes or (None,) for m in config.methods),
        lambda cell: config.grid(parse_method(cell.method)).points(),
        training,
        lambda cell: f"{config.select_on}_{metric}",
        config.seeds,
        config.search_seeds,
    )


class _Run:
    """A run with its data, its network and its loss."""

    def __init__(self, training: Training, spec: RunSpec) -> None:
        self.spec, self.config = spec, training.config
        self.experiment = experiment = get_experiment(spec.experiment)
        self.searching = spec.stage == "search"
        self.chosen_by = f"val_{experiment.metric}"
        self.source = Source(spec.seed, spec.group, training.files, spec.stage)
        self.split = split = split_of(spec.experiment, self.config, spec.noise, self.source)
        self.model = seeded(
            lambda: experiment.model(self.config, split.train.x.shape[1]), "weights", spec.experiment, spec.seed
        )
        if experiment.load_weights is not None:
            experiment.load_weights(training.files, self.model)
        if training.compiled:
            self.model.compile(dynamic=False)
        self.method = parse_method(spec.method)
        self.draw = generator("anchors", spec.experiment, spec.seed)
        self.loss = self.method.loss_fn(spec.params, **self.config.relaxation, generator=self.draw)
        key = spec.key(self.config.digest())
        self.checkpoint = None if training.checkpoints is None else Checkpoint(Path(training.checkpoints), key)

    def __call__(self) -> Outcome:
        trained = self._trained()
        numbers = trained.best(self.chosen_by) if self.config.keeps_best else trained.last
        if self.searching:
            return Outcome(numbers, trained.diverged_at, seconds_before=trained.seconds_before)
        experiment, shown = self.experiment, {}
        if experiment.judge is not None:
            scores = scores_of(self.model, self.split.test, self.config.at_once)
            numbers = {**numbers, **experiment.judge(self.config, self.source, scores)}
        if experiment.show is not None and self.spec.seed == 0:  # what the report draws
            shown = experiment.show(self.model, self.split)
        return Outcome(numbers, trained.diverged_at, trained.curve, shown, trained.seconds_before)

    def _trained(self) -> Trained:
        experiment, config = self.experiment, self.config
        schedule = make_schedule(self.spec, config, self.method, len(self.split.train))
        # A search run never sees test data, not even to report it.
        parts = ("train", "val") if self.searching or experiment.judge is not None else ("train", "val", "test")
        split = self.split
        if 0 < config.measured < len(split.train):  # a part of large training data is enough
            split = dataclasses.replace(split, train=split.train.first(config.measured))
        trained = train(
            self.model,
            self.loss,
            self.split.train,
            schedule,
            lambda network: measure(network, split, parts, metric=experiment.metric, batch=config.at_once),
            augment=experiment.augment,
            draws={"anchors": self.draw},
            checkpoint=self.checkpoint,
            keep_by=self.chosen_by if config.keeps_best and experiment.judge is not None else None,
        )
        if trained.kept is not None:
            self.model.load_state_dict(trained.kept)
        return trained


@lru_cache(maxsize=8)
def split_of(name: str, config: Config, noise: float, source: Source) -> Split:
    """The data of a run, with labels flipped, and with a part held out if the search needs one."""
    experiment = get_experiment(name)
    split = experiment.data(config, source)
    split = with_noise(split, noise, config.noisy_parts, name, source.seed, source.group)
    if config.select_on == "val" and source.stage == "search" and split.val is None:
        split = hold_out(split, HELD_OUT, name, source.seed, source.group)
    for part in split.parts() if experiment.metric == "ap" else ():
        if part != "test" or experiment.judge is None:
            check_both_labels(split.parts()[part], part)
    return split


def make_schedule(spec: RunSpec, config: Config, method: Method, items: int) -> Schedule:
    """The schedule of a run: iterations on the full batch, or epochs of minibatches."""
    schedule = Schedule(
        iterations=config.iterations,
        learning_rate=float(spec.params["learning_rate"]),
        weight_decay=float(spec.params["weight_decay"]),
        optimizer=config.optimizer,
        momentum=config.momentum,
        evaluate_every=0 if spec.stage == "search" and not config.keeps_best else config.evaluate_every,
        batch_size=config.batch_of(method),
        chunk=config.chunked,
        seed=spec.seed,
    )
    if not isinstance(config, EpochConfig):
        return schedule
    steps = steps_per_epoch(items, schedule.batch_size)
    stretched = steps * (config.stretch if method.family == "uniloss" else 1)
    return dataclasses.replace(
        schedule,
        iterations=stretched * config.epochs,
        evaluate_every=schedule.evaluate_every * steps,
        drops=tuple(stretched * drop for drop in config.drops),
        factor=config.factor,
        one_cycle=config.one_cycle,
    )
