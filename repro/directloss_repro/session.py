"""From a request ("reproduce this, there, with these changes") to a finished folder of records."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from directloss._checks import check_count, fail
from directloss_repro.campaign import Campaign
from directloss_repro.config import Config
from directloss_repro.data.seen import Seen
from directloss_repro.experiments import Experiment, Source, get_experiment
from directloss_repro.files import content_name
from directloss_repro.folder import Folder, now
from directloss_repro.pool import Pool
from directloss_repro.progress import Display, Standing
from directloss_repro.records import Record, RecordFile, check_unpacked, commit, versions
from directloss_repro.search import close_storage, open_storage
from directloss_repro.stages import Stages, first_few
from directloss_repro.tensorboard import FOLDER, Results, check_installed
from directloss_repro.torchrun import LAUNCH, CrewPool, began_before, crew, launch


@dataclass(frozen=True)
class Request:
    """What the user asked for. None means: as the preset, or the run that is resumed, has it."""

    name: str
    preset: str | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    noise: tuple[float, ...] | None = None
    select: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    workers: int | None = None
    resume: bool = False
    storage: str | None = None
    data_root: Path | None = None
    dataset: str | None = None
    weights: Path | None = None
    cache: Path | None = None
    tensorboard: bool = False

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.out or Path("runs") / f"{self.name}-{self.preset or 'quick'}"

    @property
    def changes(self) -> dict[str, Any]:
        """The config keys that were given."""
        experiment = get_experiment(self.name)
        named = {"methods": self.methods, "seeds": self.seeds, "noise": self.noise, "select_on": self.select}
        named["dataset"] = self.dataset
        given = {key: value for key, value in named.items() if value is not None}
        with_root = experiment.with_root if self.data_root is not None else {}
        with_dataset = experiment.with_dataset.get(self.dataset or "", {})
        if self.weights is not None:
            given["weights"] = _weights_of(experiment, str(self.weights))
        return {**with_root, **with_dataset, **given, **self.settings}

    def command(self, out: Path, preset: str) -> str:
        """The command that asks for exactly this."""
        words = ["directloss", "reproduce", self.name, "--preset", preset]
        options: dict[str, object] = {
            "--methods": None if self.methods is None else ",".join(self.methods),
            "--seeds": self.seeds,
            "--noise": None if self.noise is None else ",".join(f"{share:g}" for share in self.noise),
            "--select": self.select,
            "--out": out,
            "--storage": self.storage,
            "--dataset": self.dataset,
            "--data-root": self.data_root,
            "--weights": self.weights,
            "--cache": self.cache,
        }
        for option, value in options.items():
            if value is not None:
                words += [option, str(value)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join(words + (["--tensorboard"] if self.tensorboard else []))


@dataclass(frozen=True)
class Plan:
    """A checked request: nothing in it can fail any more except the work itself."""

    experiment: Experiment
    config: Config
    preset: str
    folder: Folder
    info: dict[str, Any]
    workers: int
    storage: str
    data_root: str | None
    weights: str | None = None
    cache: str | None = None
    tensorboard: bool = False

    @property
    def source(self) -> Source:
        """The files of all runs."""
        return Source(0, None, self.data_root, self.weights, self.cache)

    @property
    def resume_command(self) -> str:
        """How to go on after an interruption."""
        words = ["directloss", "reproduce", self.experiment.name, "--out", str(self.folder.path), "--resume"]
        return shlex.join(words + (["--data-root", self.data_root] if self.data_root else []))


def make_plan(request: Request) -> Plan:
    """Check everything that can be checked before the first run, and write nothing."""
    experiment = get_experiment(request.name)
    workers = workers_of(request.workers)
    if began_before(Folder(request.folder)):
        request = dataclasses.replace(request, resume=True)
    if request.storage is not None:
        close_storage(open_storage(request.storage))
    if request.resume:
        preset, out, config, info = _resumed(experiment, request)
    else:
        preset = request.preset or "quick"
        out = request.folder
        config = experiment.config(preset).changed(request.changes)
        Folder(out).check_new(request.name)
        info = {"experiment": request.name, "preset": preset, "command": request.command(out, preset), "started": now()}
    tensorboard = asked_for_board(request.tensorboard, info)
    storage = request.storage or info.get("storage") or f"sqlite:///{out}/search.db"
    root = str(request.data_root) if request.data_root is not None else info.get("data_root")
    weights = str(request.weights) if request.weights is not None else info.get("weights")
    cache = str(request.cache) if request.cache is not None else info.get("cache")
    if cache is not None and experiment.ready is None:
        fail("--cache", f"must be left out: {experiment.name!r} has nothing to keep there", cache)
    seen = _same_data(experiment.check(config, root), info)
    if weights is not None and experiment.weights is not None:
        experiment.weights(config, weights)
    info |= {"config": config.to_dict(), "finished": None, "versions": versions(), "commit": commit()}
    info |= {"data": None if seen is None else seen._asdict()}
    info |= {"storage": request.storage or info.get("storage"), "data_root": root, LAUNCH: launch()}
    if experiment.ready is not None:
        info |= {"weights": weights, "cache": cache}
        cache = cache or str(out / "cache")
    return Plan(experiment, config, preset, Folder(out), info, workers, storage, root, weights, cache, tensorboard)


def _same_data(seen: Seen | None, info: dict[str, Any]) -> Seen | None:
    """A run goes on with the data that it began with, wherever that lies now."""
    known = info.get("data")
    if seen is not None and known is not None and known["digest"] != seen.digest:
        hint = "Give the folder of that data, or choose another folder with --out."
        rule = f"must hold the data that the run began with ({known['digest']})"
        fail("--data-root", rule, f"a folder of other data ({seen.digest})", hint)
    return seen


def _weights_of(experiment: Experiment, path: str) -> str:
    if experiment.weights is None:
        fail("--weights", f"must be left out: {experiment.name!r} trains its network from the beginning", path)
    return content_name("--weights", Path(path))


def _resumed(experiment: Experiment, request: Request) -> tuple[str, Path, Config, dict[str, Any]]:
    """The stored run, perhaps with more methods, seeds, noise levels or classes than it had."""
    out = request.folder
    info = Folder(out).check_resumable(request.name)
    check_unpacked(out)
    stored = experiment.config_from(info["config"])
    preset = str(info["preset"])
    if request.preset is not None and request.preset != preset:
        fail("--preset", f"must be {preset!r}, the preset of the run in {out}", repr(request.preset))
    config = stored.changed(request.changes)
    config.check_grown_from(stored, str(out))
    if config != stored:
        info["command"] = request.command(out, preset)
    return preset, out, config, info


def cores() -> int:
    """How many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def workers_of(asked: int | None) -> int:
    """How many runs go on at the same time: as many as the user says, or one for each core or process of torchrun."""
    checked = check_count("--workers", asked if asked is not None else cores())
    together = crew()
    return checked if together is None else together.size


def open_pool(workers: int) -> Pool:
    """Processes of our own, or those that torchrun has started."""
    together = crew()
    return Pool(workers) if together is None or together.size == 1 else CrewPool(together)


def carry_out(plan: Plan, console: Console) -> None:
    """Do the runs. The folder holds a complete set of records afterwards."""
    with_description(plan.folder, plan.info, lambda: _run_all(plan, console))


def with_description(folder: Folder, info: Mapping[str, Any], work: Callable[[], Mapping[str, Any] | None]) -> None:
    """Do the work in a folder of its own; ``run.json`` tells when it began, how long it took, and what it returned."""
    folder.claim()
    began = time.monotonic()
    before = float(info.get("seconds") or 0.0)

    def close(ending: Mapping[str, Any]) -> None:
        folder.write({**info, **ending, "seconds": round(before + time.monotonic() - began, 1)})

    try:
        folder.write(info)
        try:
            ending = work() or {}
        except BaseException:
            # What stopped the work is what the user must hear of, not that a full disk takes no last word either.
            with contextlib.suppress(OSError):
                close({"finished": None})
            raise
        close({**ending, "finished": now()})
    finally:
        folder.release()


def asked_for_board(asked: bool, info: dict[str, Any]) -> bool:
    """Whether TensorBoard is to see the run; a run that goes on remembers it."""
    wanted = asked or bool(info.get("tensorboard"))
    if wanted:
        check_installed()
        info["tensorboard"] = True
    return wanted


def on_board(root: str, records: RecordFile, then: Callable[[Record], None]) -> Callable[[Record], None]:
    """Whatever TensorBoard lacks of these records, now; and what to do with each new one."""
    results = Results(Path(root))
    results.add_all(records.by_key.values())

    def observe(record: Record) -> None:
        results.add(record)
        then(record)

    return observe


def _prepare(plan: Plan, console: Console) -> Config:
    """Compute what all runs share, once; tell what cannot be used; the config of what is left."""
    if plan.experiment.ready is None:
        return plan.config
    with Stages(console) as stages:
        ready = plan.experiment.ready(plan.config, plan.source, plan.workers, stages.say)
    left_out = [name for name in plan.config.classes if name not in ready.classes]
    plan.info.update({"left_out": left_out, "skipped": list(ready.reasons), "notes": list(ready.notes)})
    plan.folder.write(plan.info)
    for line in (*ready.notes, *first_few(ready.reasons, "Left out or repaired")):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return plan.config.but(classes=ready.classes)


def _run_all(plan: Plan, console: Console) -> None:
    config = _prepare(plan, console)
    records = RecordFile(plan.folder.path)
    storage = open_storage(plan.storage)
    pool = open_pool(plan.workers)
    try:
        metric = plan.experiment.metric
        campaign = Campaign(plan.experiment.name, config, storage, records, plan.data_root, metric=metric)
        campaign.weights, campaign.cache = plan.weights, plan.cache
        standing = Standing(config, metric)
        title = f"{plan.experiment.name} ({plan.preset})"
        with Display(console, title, campaign.total, standing, list(records.by_key.values())) as display:
            campaign.observe = display.add
            if plan.tensorboard:
                campaign.board = str(plan.folder.path / FOLDER)
                campaign.observe = on_board(campaign.board, records, display.add)
            campaign.run(pool)
    finally:
        pool.stop()
        close_storage(storage)
    if plan.experiment.draw is not None:
        plan.experiment.draw(config, plan.source, list(records.by_key.values()), plan.folder.path)
