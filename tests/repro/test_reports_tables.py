"""Tables: what is bold, what is marked as alike, and that no text of a record becomes markup."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.experiments import describe
from directloss_repro.records import Run, load_run
from directloss_repro.reports.formatting import NOTHING, metrics_of
from directloss_repro.reports.hyperparameters import chosen_table
from directloss_repro.reports.summary import notices
from directloss_repro.reports.tables import (
    ALIKE,
    Column,
    Entry,
    Table,
    difference_table,
    result_tables,
    to_markdown,
    to_rich,
)
from rich.console import Console
from scipy import stats

from tests.repro.fake_records import METHODS, make_run, record, records, run_info, write_run


def tables_of(run: Run) -> list[Table]:
    description = describe(run.experiment)
    return result_tables(run, metrics_of(run, description.metrics), description.reference)


def values(run: Run, method: str, key: str = "test_ap") -> list[float]:
    return [r.metrics[key] for r in sorted(run.final, key=lambda r: r.seed) if r.method == method]


def test_best_is_bold_and_alike_is_marked_as_a_paired_test_says(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "linear", seeds=2))
    rows = {row[0].text: row[1] for row in tables_of(run)[0].rows}
    best = max(METHODS, key=lambda method: sum(values(run, method)))
    assert [method for method, cell in rows.items() if cell.mark == "best"] == [best]
    alike = {m for m in METHODS if m != best and stats.ttest_rel(values(run, best), values(run, m)).pvalue > 0.05}
    assert {method for method, cell in rows.items() if cell.mark == "alike"} == alike
    assert 0 < len(alike) < len(METHODS) - 1, "the example must show both cases"


def test_equal_values_are_both_the_best_and_the_default_comes_first(tmp_path: Path) -> None:
    lines = records("robustness", 2, ["x-ent", "pos-ap", "direct-ap"])
    for line in lines:
        line["metrics"] = {"test_ap": 0.5}
    table = tables_of(load_run(write_run(tmp_path, lines)))[0]
    assert [row[0].text for row in table.rows] == ["direct-ap", "pos-ap", "x-ent"]
    assert {row[1].mark for row in table.rows} == {"best"}


def test_cells_hold_mean_and_half_width(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "synthetic", seeds=10))
    cell = {row[0].text: row[1] for row in tables_of(run)[0].rows}["x-ent"]
    ap = [100 * value for value in values(run, "x-ent")]
    low, high = stats.t.interval(0.95, 9, sum(ap) / 10, stats.sem(ap))
    assert (cell.text, cell.small) == (f"{sum(ap) / 10:.1f}", f"± {(high - low) / 2:.1f}")


def test_a_single_method_is_neither_best_nor_alike(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "synthetic", seeds=3, methods=["x-ent"]))
    assert tables_of(run)[0].rows[0][1].mark == ""


def test_table_of_classes_has_the_form_of_table_1(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "digits-noise", seeds=2))
    table = tables_of(run)[-1]
    assert [row[0].text for row in table.rows] == [*"0123456789", "mean"]
    assert table.groups == (("", 1), ("0 %", 3), ("10 %", 3), ("20 %", 3), ("30 %", 3), ("40 %", 3))
    assert [column.label for column in table.columns[1:4]] == ["pos-ap", "hinge-ap", "x-ent"]
    at = {(r.method, r.noise, r.group, r.seed): r.metrics["test_ap"] for r in run.final}
    assert table.rows[7][5].text == f"{50 * (at['hinge-ap', 0.1, '7', 0] + at['hinge-ap', 0.1, '7', 1]):.1f}"
    column = [sum(at["hinge-ap", 0.1, str(g), s] for g in range(10) for s in (0, 1)) / 20]
    assert table.rows[10][5].text == f"{100 * column[0]:.1f}"


def test_the_papers_means_stand_below_ours(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "digits-noise", seeds=2))
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in tables_of(run)[0].rows}
    assert rows["pos-ap (paper)"] == ["69.5", "62.5", "57.8", "45.9", "29.6"]
    assert rows["hinge-ap (paper)"] == ["69.9", "60.1", "45.7", "30.0", "16.8"]
    assert rows["x-ent (paper)"] == ["68.0", "59.7", "47.3", "31.7", "18.2"]


def _column(table: Table, label: str) -> dict[str, str]:
    place = [column.label for column in table.columns].index(label)
    return {row[0].text: row[place].text for row in table.rows}


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path) -> None:
    table = tables_of(load_run(make_run(tmp_path, "ablation-ap", seeds=3)))[0]
    found = _column(table, "paper")
    assert found["uniloss-ap:anchors=5"] == "99.88"
    assert found["uniloss-ap:anchors=10"] == "99.87"
    assert found["uniloss-ap:spline"] == NOTHING
    assert "Paper, Table 4: MNIST; different data from ours" in table.notes[-1]


MNIST = {"dataset": "mnist", "points": 0}


@pytest.mark.parametrize(
    ("config", "data", "words"),
    [
        ({"dataset": "mnist", "points": 100}, None, "the same data, of which we use a part"),
        (MNIST, None, "the same data, with our own splits"),
        (MNIST, {"published": "mnist", "checkable": True}, "the same data, with our own splits"),
        (MNIST, {"published": None, "checkable": True}, "its files are not the published ones"),
        (MNIST, {"published": None, "checkable": False}, "its files could not be checked"),
        ({"dataset": "fashion-mnist"}, None, "different data from ours"),
    ],
)
def test_the_note_says_whose_data_it_is(
    config: dict[str, Any], data: dict[str, Any] | None, words: str, tmp_path: Path
) -> None:
    write_run(tmp_path, records("mnist-ap", 2), {**run_info("mnist-ap", config=config), "data": data})
    assert words in tables_of(load_run(tmp_path))[0].notes[-1]


def test_differences_are_paired(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "linear-noisy", seeds=5))
    table = difference_table(run, "test_ap", "pos-ap")
    assert table is not None
    cell = {row[0].text: row[1] for row in table.rows}["per-ap"]
    result = stats.ttest_rel(values(run, "pos-ap"), values(run, "per-ap"))
    interval = result.confidence_interval(0.95)
    assert cell.mark == ("clear" if result.pvalue < 0.05 else "")
    assert cell.small == f"(+{100 * interval.low:.1f} to +{100 * interval.high:.1f})"
    assert difference_table(run, "test_ap", "uniloss-ap") is None


def test_markdown_of_a_whole_table(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "robustness", seeds=3, methods=["pos-ap", "x-ent"]))
    lines = to_markdown(tables_of(run)[0]).splitlines()
    assert lines[2] == "| method | 0 % | 10 % | 20 % | 30 % | 40 % |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[4].startswith("| pos-ap | **")
    assert all(line.count("|") == 7 for line in lines[2:6])


EVIL = "<b>x</b> | [link](u) `c` *s* &amp;\nnew"


def test_markdown_cannot_be_broken_by_text() -> None:
    text = to_markdown(Table(EVIL, (Column(EVIL),), ((Entry(EVIL, EVIL),),), (EVIL,)))
    assert "<b>" not in text
    assert all(line.count(" | ") == 0 for line in text.splitlines() if line.startswith("|"))
    assert "\\| \\[link\\](u) \\`c\\` \\*s\\* &amp;amp; new" in text


def test_terminal_shows_text_as_it_is() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(
        to_rich(Table("[bold]t", (Column("[red]c"),), ((Entry("[b]1", mark="alike"),),)))
    )
    assert "[bold]t" in out.getvalue()
    assert "[red]c" in out.getvalue()
    assert f"{ALIKE} [b]1" in out.getvalue()


def test_chosen_parameters_and_the_edge_of_the_search(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "robustness", seeds=2, methods=["pos-ap", "x-ent"]))
    table = chosen_table(run)
    assert table is not None
    assert [column.label for column in table.columns[:5]] == [
        "method",
        "flipped labels",
        "epsilon",
        "lr",
        "weight_decay",
    ]
    pos, xent = table.rows
    assert [cell.text for cell in pos[:5]] == ["pos-ap", "all", "1", "0.1", "0.0001"]
    assert (pos[3].small, xent[3].small) == ("", "edge")
    assert xent[2].text == NOTHING
    assert pos[5].text == "4", "four trials at each noise level"


def test_no_weight_decay_is_no_edge(tmp_path: Path) -> None:
    lines = [record("linear", "x-ent", 0) | {"params": {"decay": 0.0, "lr": 0.1}}]
    for value in (0.0, 0.1, 0.2):
        lines.append(record("linear", "x-ent", 0) | {"stage": "search", "params": {"decay": value, "lr": 0.1 + value}})
    table = chosen_table(load_run(write_run(tmp_path, lines)))
    assert table is not None
    assert [cell.small for cell in table.rows[0][1:3]] == ["", "edge"]


def test_different_choices_are_counted(tmp_path: Path) -> None:
    lines = [record("synthetic", "x-ent", seed) | {"params": {"lr": 0.1 if seed else 0.3}} for seed in range(3)]
    table = chosen_table(load_run(write_run(tmp_path, lines)))
    assert table is not None
    assert table.rows[0][1].text == "0.1 (2×), 0.3 (1×)"  # noqa: RUF001


PLAN = {"methods": ["pos-ap", "x-ent"], "seeds": 3, "noise": [0.0, 0.1, 0.2, 0.3, 0.4]}


@pytest.mark.parametrize(
    ("keep", "info", "expected"),
    [
        (lambda line: True, {}, ""),
        (lambda line: True, {"finished": None}, "has not finished"),
        (lambda line: line["seed"] != 2 or line["method"] == "x-ent", {}, "5 of 30 final runs are missing (pos-ap 5)"),
        (lambda line: line["method"] == "x-ent", {"config": PLAN}, "15 of 30 final runs are missing (pos-ap 15)"),
        (lambda line: line["seed"] == 0, {"config": PLAN}, "20 of 30 final runs are missing (pos-ap 10, x-ent 10)"),
        (lambda line: line["noise"] > 0, {"config": PLAN}, "6 of 30 final runs are missing (pos-ap 3, x-ent 3)"),
        (lambda line: line["seed"] == 0, {}, "only one seed"),
        (lambda line: line["method"] == "x-ent", {}, "only one method (x-ent)"),
        (lambda line: False, {}, "No final run is stored yet"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, keep: object, info: dict[str, object], expected: str) -> None:
    lines = records("robustness", 3, ["pos-ap", "x-ent"])
    lines = [line for line in lines if line["stage"] == "search" or keep(line)]  # type: ignore[operator]
    run = load_run(write_run(tmp_path, lines, run_info("robustness", **info)))
    found = notices(run, "test_ap")
    assert expected in " ".join(found)
    assert bool(found) is bool(expected)


def test_diverged_runs_are_said(tmp_path: Path) -> None:
    lines = [record("linear", "per-01", seed) for seed in range(3)]
    lines[0] |= {"diverged_at": 12}
    lines[1]["metrics"] = {"test_ap": None}
    found = " ".join(notices(load_run(write_run(tmp_path, lines, run_info("linear"))), "test_ap"))
    assert "training diverged and stopped early, counted as they were measured: per-01 1." in found
    assert "without a finite test AP, which are left out: per-01 1." in found
