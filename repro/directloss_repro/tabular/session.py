"""From a request ("fit this, for that metric") to a finished folder: records, models, predictions, comparison."""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from directloss._checks import fail
from directloss_repro.folder import Folder, now
from directloss_repro.methods import parse_method, parse_methods
from directloss_repro.progress import Display, Standing
from directloss_repro.records import RecordFile, commit, versions
from directloss_repro.session import asked_for_board, on_board, open_pool, with_description, workers_of
from directloss_repro.tabular.campaign import Campaign
from directloss_repro.tabular.columns import CATEGORY, suspicions
from directloss_repro.tabular.comparing import bootstrap, interval
from directloss_repro.tabular.config import BATCH, EPOCHS, EXPERIMENT, ITERATIONS, LARGE, FitConfig
from directloss_repro.tabular.measures import Measure, get_measure
from directloss_repro.tabular.modelfile import Model, load_model
from directloss_repro.tabular.reading import Table, read_table
from directloss_repro.tabular.running import Rows, check_rows, encode_rows, model_path, sha256
from directloss_repro.tabular.target import find_target, read_target
from directloss_repro.tensorboard import FOLDER
from directloss_repro.torchrun import LAUNCH, began_before, launch

MODEL, PREDICTIONS = "model.pt", "predictions.csv"


@dataclass(frozen=True)
class Request:
    """What the user asked for. None means: the default, or as the run that is resumed has it."""

    data: Path
    target: str | None = None
    metric: str | None = None
    compare: str | None = None
    model: str | None = None
    positive: str | None = None
    trials: int | None = None
    seed: int | None = None
    test_share: float | None = None
    iterations: int | None = None
    impute: bool | None = None
    drop: str | None = None
    categorical: str | None = None
    out: Path | None = None
    workers: int | None = None
    resume: bool = False
    tensorboard: bool = False

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.out or Path("runs") / f"fit-{self.data.name.split('.')[0]}"

    def command(self) -> str:
        """The command that asks for exactly this."""
        words = ["directloss", "fit", str(self.data)]
        names = ("target", "metric", "compare", "model", "positive", "trials", "seed", "test_share", "iterations")
        for name in (*names, "drop", "categorical"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        words += ["--impute"] if self.impute else []
        words += ["--tensorboard"] if self.tensorboard else []
        return shlex.join([*words, "--out", str(self.folder)])


@dataclass(frozen=True)
class Plan:
    """A checked request: nothing in it can fail any more except the work itself."""

    config: FitConfig
    rows: Rows
    folder: Folder
    info: dict[str, Any]
    workers: int
    data: Path
    why: str
    """Why the positive label is the positive one."""
    tensorboard: bool = False

    @property
    def resume_command(self) -> str:
        """How to go on after an interruption."""
        return shlex.join(["directloss", "fit", str(self.data), "--out", str(self.folder.path), "--resume"])


def make_plan(request: Request) -> Plan:
    """Check everything that can be checked before the first run, and write nothing."""
    workers = workers_of(request.workers)
    folder = Folder(request.folder)
    if began_before(folder):
        request = replace(request, resume=True)
    if request.resume:
        info = folder.check_resumable(EXPERIMENT)
        stored = FitConfig.from_dict(info["config"])
    else:
        folder.check_new(EXPERIMENT)
        info, stored = {"experiment": EXPERIMENT, "command": request.command(), "started": now()}, None
    tensorboard = asked_for_board(request.tensorboard, info)
    table = read_table(request.data)
    config = _config(request, table, stored)
    if stored is not None:
        config.check_continues(stored, str(folder.path))
    rows = check_rows(table, config)
    _check_losses(config, rows)
    info |= {"config": config.to_dict(), "finished": None, "versions": versions(), "commit": commit()}
    info |= {LAUNCH: launch()}
    # The config names the label in any case; whether it was asked for is known here only.
    why = read_target(table, config.target, request.positive).why if stored is None else "as before"
    return Plan(config, rows, folder, info, workers, request.data, why, tensorboard)


def _config(request: Request, table: Table, stored: FitConfig | None) -> FitConfig:
    """What was asked for, then what the resumed run has, then the defaults."""
    old = stored.to_dict() if stored is not None else {}
    if request.metric is None and stored is None:
        fail("--metric", "must be given", "missing", "For example --metric ap, or --metric f1.")
    metric = get_measure(request.metric if request.metric is not None else old["metric"])
    target = find_target(table, request.target if request.target is not None else old.get("target"))
    labels = read_target(table, target, request.positive if request.positive is not None else old.get("positive"))
    given: dict[str, Any] = {
        "data": request.data.name,
        "sha256": sha256(request.data),
        "target": target,
        "positive": labels.labels[1],
        "metric": metric.name,
        "methods": _methods(request, metric, old.get("methods")),
        "model": request.model,
        "trials": request.trials,
        "seed": request.seed,
        "test_share": request.test_share,
        "iterations": request.iterations,
        "impute": request.impute,
        "drop": _words(request.drop),
        "categorical": _words(request.categorical),
    }
    config = FitConfig.from_dict({**old, **{key: value for key, value in given.items() if value is not None}})
    return _sized(config, len(labels.y), request.iterations) if stored is None else config


def _methods(request: Request, metric: Measure, old: list[str] | None) -> tuple[str, ...]:
    if request.compare is None and old is not None:
        return tuple(old)
    others = parse_methods(request.compare if request.compare is not None else "x-ent")
    return tuple(dict.fromkeys((metric.direct, *others)))


def _sized(config: FitConfig, rows: int, iterations: int | None) -> FitConfig:
    """Batches for large data, and, unless a number was asked for, enough of them to see every row several times."""
    trained = round(rows * (1 - config.test_share))
    if trained <= LARGE:
        return config
    return replace(config, batch=BATCH, iterations=iterations or max(ITERATIONS, EPOCHS * trained // BATCH))


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _check_losses(config: FitConfig, rows: Rows) -> None:
    """Each loss and the metric once on the real labels, so that what does not fit them is said before the first run."""
    measure = get_measure(config.metric)
    for name, part in rows.parts.items():
        if measure.first > len(part):
            fail("--metric", f"must look at no more than the {len(part)} rows of the {name} part", repr(config.metric))
        y = rows.target.y[part]
        measure.value(torch.zeros(len(y)), y)
    y = rows.target.y[rows.parts["train"]][: config.batch or None]
    for name in config.methods:
        parse_method(name).loss(torch.zeros(len(y), requires_grad=True), y, {})


# ---------------------------------------------------------------------- the work


def introduce(plan: Plan, console: Console) -> None:
    """What was found in the file, before the work begins."""
    config, rows = plan.config, plan.rows
    kinds = Counter(rows.kinds.values())
    words = kinds[CATEGORY]
    share, positive = float(rows.target.y.double().mean()), rows.target.labels[1]
    sizes = {name: len(part) for name, part in rows.parts.items()}
    lines = [
        f"{config.data}: {len(rows.frame)} rows, {len(rows.kinds)} columns "
        f"({len(rows.kinds) - words} of numbers, {words} of categories).",
        f"Target {config.target!r}: {positive!r} is positive ({plan.why}), {share:.1%} of the rows.",
        f"Split: {sizes['train']} training, {sizes['val']} validation and {sizes['test']} test rows.",
    ]
    if rows.with_missing:
        lines.append(f"Missing numbers are filled with the median and marked: {', '.join(rows.with_missing)}.")
    lines += [f"Note: {sentence}" for sentence in suspicions(rows.frame, rows.kinds)]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def carry_out(plan: Plan, console: Console) -> None:
    """Do the runs and write model, predictions and comparison."""
    with_description(plan.folder, plan.info, lambda: _work(plan, console))


def _work(plan: Plan, console: Console) -> dict[str, Any]:
    models = plan.folder.path / "models"
    records = RecordFile(plan.folder.path)
    campaign = Campaign(plan.config, str(plan.data), str(models), records)
    standing = Standing(plan.config, plan.config.metric, shows_noise=False)
    pool = open_pool(plan.workers)
    title = f"{EXPERIMENT} {plan.config.data}"
    try:
        with Display(console, title, campaign.total, standing, list(records.by_key.values())) as display:
            campaign.observe = display.add
            if plan.tensorboard:
                campaign.board = str(plan.folder.path / FOLDER)
                campaign.observe = on_board(campaign.board, records, display.add)
            campaign.run(pool)
    finally:
        pool.stop()
    trained = {method: load_model(model_path(models, method)) for method in plan.config.methods}
    # Chosen by validation data; test data only judges.
    chosen = max(plan.config.methods, key=lambda method: campaign.best(method).value)
    return _write_results(plan, trained, chosen)


def _write_results(plan: Plan, trained: dict[str, Model], chosen: str) -> dict[str, Any]:
    from directloss_repro.files import write_all

    config, rows, measure = plan.config, plan.rows, get_measure(plan.config.metric)
    test = encode_rows(rows, config, "final").test
    scores = {method: model.score(test.x) for method, model in trained.items()}
    first, *others = config.methods
    cuts = {method: model.threshold or 0.0 for method, model in trained.items()}
    drawn = {method: bootstrap(measure, scores[method] - cuts[method], test.y, config.seed) for method in trained}
    values = {method: float(measure.value(scores[method] - cuts[method], test.y)) for method in trained}
    comparison = []
    for other in others:
        low, high = interval(drawn[first] - drawn[other])
        difference = {"difference": values[first] - values[other], "low": low, "high": high}
        rounded = {key: round(value, 8) for key, value in difference.items()}
        comparison.append({"first": first, "second": other, "metric": f"test_{measure.name}", **rounded})
    table = _prediction_table(rows, trained, scores)
    files = {MODEL: trained[chosen].to_bytes(), PREDICTIONS: table}
    write_all({plan.folder.path / name: content for name, content in files.items()})
    return {"comparison": comparison, "model": chosen}


def _prediction_table(rows: Rows, trained: dict[str, Model], scores: dict[str, torch.Tensor]) -> bytes:
    """The test rows with their label and the score of each loss; rows are counted from 1, without the header."""
    test = rows.parts["test"]
    columns: dict[str, list[Any]] = {
        "row": (test + 1).tolist(),
        rows.target.name: [rows.target.labels[label] for label in rows.target.y[test].tolist()],
    }
    for method, model in trained.items():
        columns[f"score {method}"] = score_texts(scores[method])
        if model.threshold is not None:
            columns[f"decision {method}"] = decisions(model, scores[method])
    return csv_bytes(columns)


def score_texts(scores: torch.Tensor) -> list[str]:
    """Scores with eight digits."""
    return [f"{value:.8g}" for value in scores.tolist()]


def decisions(model: Model, scores: torch.Tensor) -> list[str]:
    """The label that each row is given."""
    cut = model.threshold or 0.0
    return [model.labels[value > cut] for value in scores.tolist()]


def csv_bytes(columns: dict[str, list[Any]]) -> bytes:
    """A CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()
