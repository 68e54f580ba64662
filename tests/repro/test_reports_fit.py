"""Runs that bring their own intervals, as `fit` does: their ends, their digits, their words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.reports import write_report
from directloss_repro.reports.describe import Figure
from directloss_repro.reports.figures import KINDS
from directloss_repro.reports.state import chosen_table
from directloss_repro.reports.stored import Run, load_run
from directloss_repro.reports.tables import _over_metrics
from directloss_repro.reports.wording import metric
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from tests.repro.fake_records import record, write_run


def fit_run(folder: Path, name: str, values: dict[str, tuple[float, float, float]]) -> Path:
    """A folder as `fit` leaves it: value, low and high of each method."""
    lines = []
    for method, (value, low, high) in values.items():
        line = record("fit", method, 0)
        line["metrics"] = {f"test_{name}": value, f"test_{name}_low": low, f"test_{name}_high": high}
        line["curve"] = {"iteration": [0, 10, 20], f"test_{name}": [value / 2, value - 0.01, value]}
        lines.append(line)
    first, second = values
    difference = {"difference": values[first][0] - values[second][0], "low": -0.01, "high": 0.2}
    comparison = [{"first": first, "second": second, "metric": f"test_{name}", **difference}]
    info = {"experiment": "fit", "command": "directloss fit rows.csv", "finished": None, "comparison": comparison}
    return write_run(folder, lines, info | {"finished": "2026-01-05T10:42:30+00:00"})


def bars(run: Run, kind: str, key: str, across: int) -> list[tuple[float, float]]:
    """The ends of all error bars of a figure; ``across`` is 0 for those that lie and 1 for those that stand."""
    canvas = Canvas()
    FigureCanvasAgg(canvas)
    axes: Axes = canvas.add_axes((0.1, 0.1, 0.6, 0.8))
    assert KINDS[kind](run, Figure(kind, key), metric(key), canvas, axes) is not None
    found: list[tuple[float, float]] = []
    for collection in axes.collections:
        segments: Any = getattr(collection, "get_segments", list)()
        found += [(float(low[across]), float(high[across])) for low, high in segments]
    return found


def test_an_interval_that_is_not_even_is_drawn_as_it_is(tmp_path: Path) -> None:
    run = load_run(fit_run(tmp_path, "ap", {"pos-ap": (0.9, 0.7, 0.95), "x-ent": (0.8, 0.75, 0.99)}))
    drawn = bars(run, "methods", "test_ap", 0)
    assert sorted(drawn) == [pytest.approx((70, 95)), pytest.approx((75, 99))]


def test_intervals_end_where_the_metric_ends(tmp_path: Path) -> None:
    lines = [record("robustness", "pos-ap", seed, noise) for noise in (0.0, 0.4) for seed in range(2)]
    for line, value in zip(lines, (0.99, 1.0, 0.01, 0.0), strict=True):
        line["metrics"] = {"test_ap": value}
    drawn = bars(load_run(write_run(tmp_path, lines)), "noise", "test_ap", 1)
    assert max(high for _, high in drawn) == 100
    assert min(low for low, _ in drawn) == 0


@pytest.mark.parametrize(
    ("name", "cell", "head"),
    [
        ("mcc", "0.612 (0.501 to 0.702)", "test MCC (\u22121 to 1)"),
        ("kappa", "0.612 (0.501 to 0.702)", "test kappa (\u22121 to 1)"),
        ("balanced_accuracy", "61.2 (50.1 to 70.2)", "test balanced accuracy (%)"),
        ("f1", "61.2 (50.1 to 70.2)", "test F1 (%)"),
    ],
)
def test_shares_are_percentages_and_numbers_from_minus_one_to_one_are_not(
    tmp_path: Path, name: str, cell: str, head: str
) -> None:
    run = load_run(fit_run(tmp_path, name, {"pos-f1": (0.612, 0.501, 0.702), "x-ent": (0.6, 0.5, 0.7)}))
    table = _over_metrics(run, [metric(f"test_{name}")], None)
    assert [column.label for column in table.columns] == ["method", head]
    assert f"{table.rows[0][1].text} {table.rows[0][1].small}" == cell


def test_equal_values_are_both_the_best(tmp_path: Path) -> None:
    run = load_run(fit_run(tmp_path, "ap", {"pos-ap": (0.9, 0.7, 0.95), "x-ent": (0.9, 0.75, 0.99)}))
    table = _over_metrics(run, [metric("test_ap")], None)
    assert [row[1].mark for row in table.rows] == ["best", "best"]


def test_values_that_were_drawn_from_a_range_have_no_edge(tmp_path: Path) -> None:
    folder = fit_run(tmp_path, "ap", {"pos-ap": (0.9, 0.7, 0.95), "x-ent": (0.8, 0.75, 0.99)})
    trials = [record("fit", "pos-ap", 1000) | {"stage": "search", "params": {"lr": rate}} for rate in (0.1, 0.2, 0.3)]
    with (folder / "records.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in trials)
    table = chosen_table(load_run(folder))
    assert table is not None
    assert [cell.text for cell in table.rows[0]][:2] == ["pos-ap", "1"]
    assert not any(cell.small for row in table.rows for cell in row)


def test_the_page_of_a_fit_speaks_of_rows_not_of_seeds_and_noise(tmp_path: Path) -> None:
    folder = fit_run(tmp_path, "ap", {"pos-ap": (0.9, 0.7, 0.95), "x-ent": (0.8, 0.75, 0.99)})
    page = write_report(folder).read_text(encoding="utf-8")
    for words in ("seed", "noise level", "flipped"):
        assert words not in page.split("<body>")[1].split('id="how"')[0], words
    assert "noise level" not in page
    assert "bootstrap over the test rows" in page


@pytest.mark.parametrize("packed", [False, True])
def test_the_page_links_to_the_records_that_are_there(tmp_path: Path, packed: bool) -> None:
    folder = fit_run(tmp_path, "ap", {"pos-ap": (0.9, 0.7, 0.95), "x-ent": (0.8, 0.75, 0.99)})
    name = "records.jsonl"
    if packed:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
        name = f"{name}.gz"
    page = write_report(folder).read_text(encoding="utf-8")
    assert f'<a href="{name}">{name}</a>' in page
    assert (folder / name).is_file()
