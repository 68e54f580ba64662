"""``directloss reproduce``: turns a request (experiment, output folder, changed settings) into a folder of records."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from joblib import cpu_count
from rich.console import Console

from directloss._checks import check_count, fail
from directloss_repro.campaign import Listener
from directloss_repro.config import Config
from directloss_repro.executors import Workers, cluster_workers, local_workers
from directloss_repro.experiments import get_experiment
from directloss_repro.experiments.base import Experiment, Files
from directloss_repro.files import file_digest
from directloss_repro.folder import Folder, now
from directloss_repro.progress import Display, Stages, first_few
from directloss_repro.records import Record, RecordFile, check_unpacked, commit, versions
from directloss_repro.runner import Training, campaign_of

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in the output folder."""


@dataclass(frozen=True)
class Request:
    """The options as the user gave them. None means the value of the preset or of the stored run."""

    name: str
    preset: str | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    noise: tuple[float, ...] | None = None
    select: str | None = None
    out: Path | None = None
    dataset: str | None = None
    data_root: Path | None = None
    weights: Path | None = None
    cache: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """From ``--set``."""
    workers: int | None = None
    cluster: str | None = None
    compile: bool = False
    resume: bool = False

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.out or Path("runs") / f"{self.name}-{self.preset or 'quick'}"

    def changes(self, experiment: Experiment) -> dict[str, Any]:
        """The config keys that the user set."""
        named = {"methods": self.methods, "seeds": self.seeds, "noise": self.noise, "select_on": self.select}
        named["dataset"] = self.dataset
        if self.dataset is None and self.data_root is not None and experiment.recognise is not None:
            named["dataset"] = experiment.recognise(str(self.data_root))
        given = {key: value for key, value in named.items() if value is not None}
        if self.weights is not None:
            if experiment.check_weights is None:
                rule = f"must be left out: {experiment.name!r} trains its network from scratch"
                fail("--weights", rule, self.weights)
            given["weights"] = file_digest("--weights", self.weights)
        return {**given, **self.settings}

    def command(self, preset: str) -> str:
        """The command that repeats this request on any machine."""
        words = ["directloss", "reproduce", self.name]
        given = {one.name: getattr(self, one.name) for one in fields(self)} | {"preset": preset, "out": self.folder}
        for name, value in given.items():
            if name in ("name", "settings", "workers", "cluster", "compile", "resume") or value is None:
                continue
            listed = value if isinstance(value, tuple) else (value,)
            shown = ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in listed)
            words += [f"--{name.replace('_', '-')}", shown]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join(words)


@dataclass(frozen=True)
class Session:
    """A checked request: only the work itself can still fail."""

    experiment: Experiment
    config: Config
    folder: Folder
    info: Mapping[str, Any]
    """The initial content of ``run.json``."""
    files: Files
    workers: int
    cluster: str | None = None
    compiled: bool = False

    @property
    def resume_command(self) -> str:
        """The command that continues after an interruption."""
        words = ["directloss", "reproduce", self.experiment.name, "--out", str(self.folder.path), "--resume"]
        return shlex.join(words + (["--data-root", self.files.root] if self.files.root else []))

    def open_workers(self) -> AbstractContextManager[Workers]:
        """The workers that train."""
        return local_workers(self.workers) if self.cluster is None else cluster_workers(self.cluster)

    def training(self, config: Config) -> Training:
        """The function that the workers call."""
        return Training(self.experiment.name, config, self.files, str(self.folder.path / CHECKPOINTS), self.compiled)


def check_request(request: Request) -> Session:
    """Check everything that can be checked before the first run, and write nothing."""
    experiment = get_experiment(request.name)
    workers = check_count("--workers", request.workers if request.workers is not None else cpu_count())
    folder = Folder(request.folder)
    if request.resume:
        info, config = _resumed(experiment, request, folder)
    else:
        preset = request.preset or "quick"
        config = experiment.config(preset).changed(request.changes(experiment))
        folder.check_new(request.name)
        info = {"experiment": request.name, "preset": preset, "command": request.command(preset), "started": now()}

    def place(option: str) -> str | None:
        """A path that was given now or when the run began."""
        given = getattr(request, option)
        return str(given) if given is not None else info.get(option)

    root, weights, cache = place("data_root"), place("weights"), place("cache")
    identity, known = experiment.check(config, root), info.get("data")
    if identity is not None and known is not None and known["digest"] != identity.digest:
        rule = f"must hold the data that the run began with ({known['digest']})"
        hint = "Give the folder of that data, or choose another folder with --out."
        fail("--data-root", rule, f"a folder with different data ({identity.digest})", hint)
    if weights is not None and experiment.check_weights is not None:
        experiment.check_weights(config, weights)
    if cache is not None and experiment.prepare is None:
        fail("--cache", f"must be left out: {experiment.name!r} has nothing to cache", cache)
    if request.cluster is not None:
        with cluster_workers(request.cluster):
            pass
    info = {
        **info,
        "config": config.to_dict(),
        "finished": None,
        "versions": versions(),
        "commit": commit(),
        "data": None if identity is None else identity._asdict(),
        "data_root": root,
        **({} if experiment.prepare is None else {"weights": weights, "cache": cache}),
    }
    files = Files(root, weights, cache or (None if experiment.prepare is None else str(folder.path / "cache")))
    return Session(experiment, config, folder, info, files, workers, request.cluster, request.compile)


def _resumed(experiment: Experiment, request: Request, folder: Folder) -> tuple[dict[str, Any], Config]:
    """The stored run, possibly extended by methods, seeds, noise levels or classes."""
    info = folder.check_resumable(request.name)
    check_unpacked(folder.path)
    preset = str(info["preset"])
    if request.preset is not None and request.preset != preset:
        fail("--preset", f"must be {preset!r}, the preset of the run in {folder.path}", repr(request.preset))
    stored = experiment.config_from(info["config"])
    config = stored.changed(request.changes(experiment))
    config.check_grown_from(stored, str(folder.path))
    return (info if config == stored else {**info, "command": request.command(preset)}), config


def carry_out(session: Session, console: Console) -> None:
    """Do all runs. The folder must be locked; afterwards it holds a complete set of records."""
    with _described(session) as info:
        config = _prepared(session, console, info)
        records = RecordFile(session.folder.path)
        for line in records.notes:
            console.print(line, highlight=False, markup=False)
        campaign = campaign_of(session.training(config))
        title = f"{session.experiment.name} ({session.info['preset']})"
        checkpoints = session.folder.path / CHECKPOINTS
        with Display(console, title, campaign, campaign.found(records)) as display:

            def finished(record: Record) -> None:
                (checkpoints / f"{record.key}.pt").unlink(missing_ok=True)
                display.finished(record)

            campaign.run(session.open_workers, records, Listener(display.began, finished, display.note))
        with contextlib.suppress(OSError):  # most runs are too short for a checkpoint
            checkpoints.rmdir()
        if session.experiment.draw is not None:
            session.experiment.draw(config, session.files, list(records.by_key.values()), session.folder.path)


@contextlib.contextmanager
def _described(session: Session) -> Iterator[dict[str, Any]]:
    """Keep ``run.json`` up to date: request, start, duration, and whatever the block adds."""
    began, info = time.monotonic(), dict(session.info)
    before = float(info.get("seconds") or 0.0)

    def close() -> None:
        session.folder.write({**info, "seconds": round(before + time.monotonic() - began, 1)})

    session.folder.write(info)
    try:
        yield info
    except BaseException:
        # Let the original error through, not a second one because the disk is full.
        with contextlib.suppress(OSError):
            close()
        raise
    info["finished"] = now()
    close()


def _prepared(session: Session, console: Console, info: dict[str, Any]) -> Config:
    """Compute what all runs share, print what cannot be used, and return the config of the rest."""
    if session.experiment.prepare is None:
        return session.config
    with Stages(console) as stages:
        ready = session.experiment.prepare(session.config, session.files, session.workers, stages.progress)
    left_out = [name for name in session.config.classes if name not in ready.classes]
    info.update({"left_out": left_out, "skipped": list(ready.reasons), "notes": list(ready.notes)})
    session.folder.write(info)
    for line in (*ready.notes, *first_few(ready.reasons, "Left out or repaired")):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return session.config.but(classes=ready.classes)
