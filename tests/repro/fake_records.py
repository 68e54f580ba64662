"""Plausible records of each experiment, made without training, the same on every call."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from directloss_repro.experiments import FILES, describe, get_experiment
from directloss_repro.records import load_run
from directloss_repro.reports.report import Report, build, write

METHODS = ("direct-ap", "pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01", "per-ap", "per-01", "x-ent")
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4)
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "directloss": "0.1.0"}

# Final test AP without noise, and how much of it 40 % of flipped labels take away.
LEVEL = {"pos-ap": 0.952, "neg-ap": 0.874, "pos-01": 0.842, "neg-01": 0.803, "hinge-ap": 0.921, "hinge-01": 0.908}
LEVEL |= {"direct-ap": 0.957, "per-ap": 0.861, "per-01": 0.812, "x-ent": 0.926}
FALL = {"pos-ap": 0.12, "neg-ap": 0.38, "pos-01": 0.33, "neg-01": 0.41, "hinge-ap": 0.31, "hinge-01": 0.30}
FALL |= {"direct-ap": 0.11, "per-ap": 0.40, "per-01": 0.42, "x-ent": 0.27}
LINEAR = {"pos-ap": 0.9984, "neg-ap": 0.9993, "pos-01": 0.987, "neg-01": 0.991, "hinge-ap": 0.9989, "hinge-01": 0.9986}
LINEAR |= {"direct-ap": 0.9985, "per-ap": 0.9991, "per-01": 0.9975, "x-ent": 0.9990}

# Experiments that are judged by another metric, or have other methods.
OTHERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "mnist-ap": ("ap", ("x-ent", "uniloss-ap", "pos-ap")),
    "cifar10": ("accuracy", ("x-ent", "uniloss-accuracy")),
    "cifar100": ("accuracy", ("x-ent", "uniloss-accuracy")),
    "pose": ("pck", ("mse-0.1", "mse-1", "mse-3", "mse-10", "uniloss-pckh")),
}
ABLATIONS = [get_experiment(name) for name in FILES if name.startswith("ablation")]
for _ablation in ABLATIONS:
    OTHERS[_ablation.name] = (_ablation.metric, _ablation.config("paper").methods)


def _noise(*key: object) -> random.Random:
    return random.Random(repr(key))


def final_ap(experiment: str, method: str, seed: int, noise: float, group: int | None) -> float:
    shared = _noise("data", experiment, seed, group).gauss(0, 0.012)
    own = _noise("own", experiment, method, seed, noise, group).gauss(0, 0.004)
    if experiment == "linear":
        return min(1.0, LINEAR[method] + (shared + own) / 60)
    if experiment == "linear-noisy":
        return LEVEL[method] + 0.02 - 0.5 * FALL[method] + shared / 3 + own
    lost = FALL.get(method, 0.3) * (noise / 0.4) ** 1.6
    return min(
        1.0, LEVEL.get(method, 0.9) - lost + shared + own + (0.0 if group is None else 0.01 * ((group * 7) % 10 - 4))
    )


def curve(final: float, method: str, steps: int = 25, length: int = 500) -> dict[str, list[float]]:
    rate = 3 + (len(method) * 7 + ord(method[0])) % 6
    start = 0.2
    iterations = [round(length * step / steps) for step in range(steps + 1)]
    rise = [1 - math.exp(-rate * i / length) for i in iterations]
    wobble = [0.006 * math.sin(i / 17 + ord(method[-1])) * (1 - r) for i, r in zip(iterations, rise, strict=True)]
    ap = [start + (final - start) * r / rise[-1] + w for r, w in zip(rise, wobble, strict=True)]
    return {
        "iteration": [float(i) for i in iterations],
        "test_ap": ap,
        "test_accuracy": [0.8 + 0.2 * (value - start) / (1 - start) for value in ap],
        "train_ap": [min(1.0, value + 0.01) for value in ap],
    }


def record(experiment: str, method: str, seed: int, noise: float = 0.0, group: int | None = None) -> dict[str, Any]:
    ap = final_ap(experiment, method, seed, noise, group)
    params = {"lr": 0.1 if method.endswith("ap") else 0.3, "weight_decay": 1e-4}
    if method.startswith(("pos", "neg")):
        params["epsilon"] = 1.0
    metric = OTHERS.get(experiment, ("ap", ()))[0]
    metrics = {"test_accuracy": 0.8 + 0.18 * ap, "train_ap": min(1.0, ap + 0.01), "val_ap": ap - 0.002, "test_ap": ap}
    course = curve(ap, method) if group is None else {}
    if experiment in OTHERS:
        course |= {"val_ap": course["test_ap"]}
    return {
        "schema": 1,
        "experiment": experiment,
        "stage": "final",
        "method": method,
        "seed": seed,
        "noise": noise,
        "class": group,
        "params": params,
        "metrics": {key.replace("_ap", f"_{metric}"): value for key, value in metrics.items()},
        "curve": {key.replace("_ap", f"_{metric}"): values for key, values in course.items()},
        "seconds": 2.5,
        "versions": VERSIONS,
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "key": f"final/{experiment}/{method}/{seed}/{noise}/{group}",
    }


def search_records(experiment: str, methods: Sequence[str], noises: Sequence[float]) -> Iterator[dict[str, Any]]:
    for method in methods:
        for noise in noises:
            for rate in (0.01, 0.03, 0.1, 0.3):
                trial = record(experiment, method, 1000, noise)
                metric = f"train_{OTHERS.get(experiment, ('ap', ()))[0]}"
                score = trial["metrics"][metric] - 0.05 * abs(math.log10(rate / trial["params"]["lr"]))
                trial |= {
                    "stage": "search",
                    "curve": {},
                    "metrics": {metric: score},
                    "key": f"search/{method}/{noise}/{rate}",
                }
                trial["params"] = trial["params"] | {"lr": rate}
                yield trial


def records(experiment: str, seeds: int = 10, methods: Sequence[str] | None = None) -> list[dict[str, Any]]:
    few = {"digits-noise": ("pos-ap", "hinge-ap", "x-ent"), "wrong-labels": ("direct-ap", "hinge-ap", "x-ent")}
    methods = methods or OTHERS.get(experiment, ("", ()))[1] or few.get(experiment, METHODS)
    levels = {"linear-noisy": (0.2,), "voc-detection": (0.0, 0.2)}
    noisy = ("robustness", "voc-action", *few)
    noises = NOISES if experiment in noisy else levels.get(experiment, (0.0,))
    groups: Sequence[int | None] = range(10) if experiment in few else (None,)
    found = list(search_records(experiment, methods, noises))
    found += [record(experiment, m, s, n, g) for m in methods for n in noises for s in range(seeds) for g in groups]
    return found


def run_info(experiment: str, **changes: Any) -> dict[str, Any]:
    return {
        "experiment": experiment,
        "preset": "paper",
        "command": f"directloss reproduce {experiment} --preset paper --out runs/{experiment}",
        "config": {
            "iterations": 500,
            "hidden": [64, 64, 64],
            "momentum": 0.9,
            "train_points": 10000,
            "tune_on": "train_ap",
            **({"epochs": 20, "batch_size": 128, "anchors": 16} if experiment in OTHERS else {}),
        },
        "started": "2026-01-05T10:00:00+00:00",
        "finished": "2026-01-05T10:42:30+00:00",
    } | changes


def write_run(folder: Path, lines: Sequence[dict[str, Any]], info: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if info is not None:
        (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    return folder


def make_run(folder: Path, experiment: str, seeds: int = 10, methods: Sequence[str] | None = None) -> Path:
    return write_run(folder, records(experiment, seeds, methods), run_info(experiment))


def report_of(folder: Path) -> Report:
    run = load_run(folder)
    return build(run, describe(run.experiment))


def write_report(folder: Path) -> Path:
    return write(report_of(folder))
