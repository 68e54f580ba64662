"""Intervals and verdicts, against scipy and against cases with a known answer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from directloss_repro.experiments import FILES, get_experiment
from directloss_repro.records import Run, load_run
from directloss_repro.reports.claims import Verdict, judge, judge_all, rule_text
from directloss_repro.reports.description import OURS, Claim, Comparison
from directloss_repro.reports.stats import by_seed, estimate, paired
from scipy import stats

from tests.repro.fake_records import make_run, record, records, run_info, write_run

CONFIRMED, NOT_CONFIRMED, UNDECIDED = Verdict.CONFIRMED, Verdict.NOT_CONFIRMED, Verdict.UNDECIDED


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 10, 50])
def test_interval_is_that_of_scipy(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(0.9, 0.05, n)
    low, high = stats.t.interval(level, n - 1, values.mean(), stats.sem(values))
    e = estimate(list(values), level)
    assert e.mean == pytest.approx(values.mean(), rel=1e-12)
    assert (e.low, e.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))


def test_equal_values_have_an_interval_without_width() -> None:
    e = estimate([0.5, 0.5, 0.5])
    assert (e.low, e.high) == (0.5, 0.5)


def run_of(folder: Path, gaps: dict[str, list[float]], noise: float = 0.0, first: str = "pos-ap") -> Run:
    """A run in which ``first`` is ahead of each other method by the given gaps, seed by seed."""
    lines = []
    for other, values in gaps.items():
        for seed, gap in enumerate(values):
            base = 0.6 + 0.05 * math.sin(seed)
            for method, ap in ((first, 0.9 + base / 100), (other, 0.9 + base / 100 - gap)):
                lines.append(record("synthetic", method, seed, noise) | {"metrics": {"test_ap": ap}})
    # The first method is written once for each rival, always with the same number.
    unique = {(line["method"], line["seed"]): line for line in lines}
    return load_run(write_run(folder, list(unique.values()), run_info("synthetic")))


def spread_around(mean: float, half: float, n: int = 5) -> list[float]:
    """Values whose 95 % interval is ``mean`` +- ``half``."""
    shape = np.linspace(-1, 1, n)
    return list(mean + shape * half / estimate(list(shape)).half)


# mean and half-width of the interval of the difference -> verdict
BETTER = [
    (0.03, 0.029, CONFIRMED),
    (0.03, 0.031, UNDECIDED),
    (-0.03, 0.01, NOT_CONFIRMED),
    (0.0, 0.0049, NOT_CONFIRMED),  # equal, and a lead of half a point is ruled out
    (0.0, 0.0051, UNDECIDED),
    (0.002, 0.001, CONFIRMED),  # small, but certain
]
LARGE = [(0.03, 0.009, CONFIRMED), (0.03, 0.011, UNDECIDED), (0.01, 0.009, NOT_CONFIRMED), (0.01, 0.011, UNDECIDED)]
ALIKE = [
    (0.0, 0.019, CONFIRMED),
    (0.01, 0.011, UNDECIDED),
    (0.03, 0.009, NOT_CONFIRMED),
    (-0.03, 0.009, NOT_CONFIRMED),
    (-0.03, 0.011, UNDECIDED),
]


@pytest.mark.parametrize(
    ("limits", "mean", "half", "verdict"),
    [({}, *case) for case in BETTER]
    + [({"above": 2.0, "fails_below": 2.0}, *case) for case in LARGE]
    + [({"above": -2.0, "fails_below": -2.0, "under": 2.0}, *case) for case in ALIKE],
)
def test_rule(tmp_path: Path, limits: dict[str, float], mean: float, half: float, verdict: Verdict) -> None:
    run = run_of(tmp_path, {"x-ent": spread_around(mean, half)})
    claim = Claim("", "", (Comparison("pos-ap", "x-ent"),), **limits)
    judgement = judge(claim, run)
    difference = judgement.findings[0].difference
    assert difference is not None
    assert (difference.mean, difference.half) == (pytest.approx(100 * mean, abs=1e-9), pytest.approx(100 * half))
    assert judgement.verdict is verdict


def test_all_comparisons_must_hold(tmp_path: Path) -> None:
    sure, unsure, wrong = spread_around(0.05, 0.01), spread_around(0.01, 0.02), spread_around(-0.05, 0.01)
    claim = Claim("", "", (Comparison("pos-ap", "x-ent"), Comparison("pos-ap", "hinge-ap")))
    assert judge(claim, run_of(tmp_path / "a", {"x-ent": sure, "hinge-ap": sure})).verdict is CONFIRMED
    assert judge(claim, run_of(tmp_path / "b", {"x-ent": sure, "hinge-ap": unsure})).verdict is UNDECIDED
    assert judge(claim, run_of(tmp_path / "c", {"x-ent": unsure, "hinge-ap": wrong})).verdict is NOT_CONFIRMED
    assert judge(claim, run_of(tmp_path / "d", {"x-ent": sure})).verdict is UNDECIDED


def test_one_of_many_failing_must_fail_clearly(tmp_path: Path) -> None:
    """Among many comparisons one fails by chance, so its interval is widened before it may refute the claim."""
    barely = spread_around(-0.01, 0.014)  # below 0.005, but not when widened for two comparisons
    run = run_of(tmp_path, {"x-ent": barely, "hinge-ap": spread_around(0.05, 0.01)})
    alone = Claim("", "", (Comparison("pos-ap", "x-ent"),))
    both = Claim("", "", (Comparison("pos-ap", "x-ent"), Comparison("pos-ap", "hinge-ap")))
    assert judge(alone, run).verdict is NOT_CONFIRMED
    assert judge(both, run).verdict is UNDECIDED
    assert "widened" in rule_text(both)
    assert "widened" not in rule_text(alone)


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    judgement = judge(Claim("", "", (Comparison("pos-ap", "x-ent"),)), run_of(tmp_path, {"x-ent": [0.5]}))
    assert judgement.verdict is UNDECIDED
    assert judgement.findings[0].why == "one seed gives no interval"


@pytest.mark.parametrize(
    ("place", "noise", "why"),
    [
        ("noisy", 0.0, "no noisy labels in this run"),
        ("growth", 0.0, "no noisy labels in this run"),
        ("growth", 0.2, "no run without label noise"),
        ("clean", 0.2, "no run without label noise"),
    ],
)
def test_noise_levels_that_are_not_there(tmp_path: Path, place: str, noise: float, why: str) -> None:
    run = run_of(tmp_path, {"x-ent": [0.1, 0.2]}, noise)
    judgement = judge(Claim("", "", (Comparison("pos-ap", "x-ent"),), place=place), run)
    assert (judgement.verdict, judgement.findings[0].why) == (UNDECIDED, why)


def test_pairs_are_of_the_same_seed_and_complete(tmp_path: Path) -> None:
    lines = [line for line in records("robustness", 4, ["pos-ap", "hinge-ap"]) if line["stage"] == "final"]
    run = load_run(write_run(tmp_path / "whole", lines, run_info("robustness")))
    ap = {(r.method, r.seed, r.noise): r.metrics["test_ap"] for r in run.final}

    def gap(seed: int, noise: float) -> float:
        return ap["pos-ap", seed, noise] - ap["hinge-ap", seed, noise]

    noisy = [np.mean([gap(seed, noise) for noise in (0.1, 0.2, 0.3, 0.4)]) for seed in range(4)]
    assert paired(run, "pos-ap", "hinge-ap", "test_ap", "noisy") == pytest.approx(noisy)
    growth = [mean - gap(seed, 0.0) for seed, mean in enumerate(noisy)]
    assert paired(run, "pos-ap", "hinge-ap", "test_ap", "growth") == pytest.approx(growth)
    lines = [line for line in lines if (line["method"], line["seed"], line["noise"]) != ("hinge-ap", 2, 0.3)]
    run = load_run(write_run(tmp_path / "part", lines, run_info("robustness")))
    assert paired(run, "pos-ap", "hinge-ap", "test_ap", "noisy") == pytest.approx([noisy[0], noisy[1], noisy[3]])
    assert len(paired(run, "pos-ap", "hinge-ap", "test_ap", "clean")) == 4


def test_classes_count_once_for_each_seed(tmp_path: Path) -> None:
    lines = [record("digits-noise", "x-ent", seed, group=group) for seed in range(3) for group in range(10)]
    run = load_run(write_run(tmp_path, lines[:-1], run_info("digits-noise")))
    found = by_seed(run, "x-ent", 0.0, "test_ap")
    assert list(found) == [0, 1], "seed 2 lacks a class, so its mean would be of something else"
    assert found[1] == pytest.approx(np.mean([line["metrics"]["test_ap"] for line in lines[10:20]]))
    assert len(by_seed(run, "x-ent", 0.0, "test_ap", "3")) == 3


def test_our_own_questions_need_their_methods(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"x-ent": [0.1, 0.2]})
    asked = [Claim("", source, (Comparison("direct-ap", "x-ent"),)) for source in (OURS, "Sec. 1")]
    assert [one.claim.source for one in judge_all(tuple(asked), run)] == ["Sec. 1"]


def test_every_claim_names_known_methods_and_fits_its_experiment(tmp_path: Path) -> None:
    for experiment in map(get_experiment, FILES):
        run = load_run(make_run(tmp_path / experiment.name, experiment.name, seeds=3))
        assert experiment.description.claims
        for claim in experiment.description.claims:
            assert claim.methods <= set(run.methods)
            assert claim.above <= claim.fails_below, "nothing may be both confirmed and refuted"
            assert all(finding.difference for finding in judge(claim, run).findings), (experiment.name, claim.says)


def test_the_numbers_of_table_1_are_told(tmp_path: Path) -> None:
    """Table 1, means: pos-AP 62.5 57.8 45.9 29.6, hinge-AP 60.1 45.7 30.0 16.8 at 10 to 40 % noise."""
    claim = get_experiment("digits-noise").description.claims[0]
    paper = (62.5 + 57.8 + 45.9 + 29.6 - 60.1 - 45.7 - 30.0 - 16.8) / 4
    assert claim.comparisons[0].paper == pytest.approx(paper)
