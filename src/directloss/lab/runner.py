"""One run, from its description to its record. This is what worker processes do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import torch

from directloss.lab.config import Config
from directloss.lab.data import Split, hold_out
from directloss.lab.data.split import check_both_labels, with_noise
from directloss.lab.evaluation import measure
from directloss.lab.experiments import Source, get_experiment
from directloss.lab.methods import parse_method
from directloss.lab.records import Record, RunSpec, make_record
from directloss.lab.seeding import seeded
from directloss.lab.training import Schedule, train

HELD_OUT = 1 / 3
"""Share of the training data that is held out for ``select_on="val"`` where the data brings no validation part."""


@dataclass(frozen=True)
class Job:
    """A run to do, complete in itself, so that it can be sent to any process."""

    spec: RunSpec
    config: Config
    data_root: str | None = None

    @property
    def key(self) -> str:
        """The key that its record will have."""
        return self.spec.key(self.config.digest())

    def run(self) -> Record:
        """Train and measure."""
        return execute(self)


def execute(job: Job) -> Record:
    """Train and measure. The result depends on the job alone."""
    spec, config = job.spec, job.config
    began = time.perf_counter()
    split = prepare(spec.experiment, config, spec.stage, spec.seed, spec.noise, spec.label, job.data_root)
    experiment = get_experiment(spec.experiment)
    model = seeded(lambda: experiment.model(config, split.train.x.shape[1]), "weights", spec.experiment, spec.seed)
    method = parse_method(spec.method)
    searching = spec.stage == "search"
    # A search run never looks at test data, not even to report it.
    parts = ("train", "val") if searching else ("train", "val", "test")
    schedule = Schedule(
        iterations=config.iterations,
        learning_rate=float(spec.params["learning_rate"]),
        weight_decay=float(spec.params["weight_decay"]),
        optimizer=config.optimizer,
        momentum=config.momentum,
        evaluate_every=0 if searching else config.evaluate_every,
    )
    trained = train(
        model,
        lambda scores, target: method.loss(scores, target, spec.params),
        split.train,
        schedule,
        lambda network: measure(network, split, parts),
    )
    return make_record(
        spec,
        config.digest(),
        metrics=_rounded(trained.last),
        curve={} if searching else {name: [round(v, 6) for v in values] for name, values in trained.curve.items()},
        seconds=time.perf_counter() - began,
        diverged_at=trained.diverged_at,
    )


@lru_cache(maxsize=8)
def prepare(
    experiment: str, config: Config, stage: str, seed: int, noise: float, label: str | None, root: str | None
) -> Split:
    """The data of a run: drawn or read, labels flipped, and a part held out where the search needs one."""
    split = get_experiment(experiment).data(config, Source(seed, label, root))
    split = with_noise(split, noise, config.noisy_parts, experiment, seed, label)
    if config.select_on == "val" and stage == "search" and split.val is None:
        split = hold_out(split, HELD_OUT, experiment, seed, label)
    for name, part in split.parts().items():
        check_both_labels(part, name)
    return split


def set_up_process() -> None:
    """One thread per process: the networks are small, and results must not depend on how sums are split up."""
    torch.set_num_threads(1)


def _rounded(numbers: dict[str, float]) -> dict[str, float]:
    """Float32 has seven digits; more would only make the files longer."""
    return {name: round(value, 8) for name, value in numbers.items()}
