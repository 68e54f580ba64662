"""How firm the choice of settings is, and runs that are too small to judge."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.records import Run, load_run
from directloss_repro.reports.claims import Verdict
from directloss_repro.reports.hyperparameters import FIRM, NOT_FIRM, OPEN, choice_note, choice_table, choices
from directloss_repro.reports.report import for_terminal
from rich.console import Console
from scipy import stats

from tests.repro.fake_records import make_run, record, records, report_of, run_info, write_report, write_run

AP = "test_ap"
RESULTS = Path(__file__).parents[2] / "results"


def searched(
    folder: Path, values: dict[float, list[float]], group: int | None = None, chosen: float = 0.1
) -> list[dict[str, Any]]:
    """Records of one search: the value of each learning rate on each search seed; and a final run."""
    lines = []
    for rate, found in values.items():
        for seed, value in enumerate(found):
            line = record("robustness", "pos-ap", 1000 + seed, 0.2, group)
            line |= {"stage": "search", "params": {"lr": rate}, "metrics": {"val_ap": value, "train_ap": 1.0}}
            lines.append(line)
    return [*lines, *(record("robustness", "pos-ap", s, 0.2, group) | {"params": {"lr": chosen}} for s in range(2))]


def run_of(folder: Path, lines: list[dict[str, Any]]) -> Run:
    return load_run(write_run(folder, lines, run_info("robustness", config={"select_on": "val"})))


CLEAR = {0.1: [0.70, 0.80, 0.90], 0.2: [0.50, 0.61, 0.69], 0.3: [0.40, 0.52, 0.58]}
COIN = {0.1: [0.70, 0.80, 0.90], 0.2: [0.80, 0.70, 0.89], 0.3: [0.40, 0.52, 0.58]}
ONE = {0.1: [0.70], 0.2: [0.69]}


@pytest.mark.parametrize(("values", "alike", "word"), [(CLEAR, 0, FIRM), (COIN, 1, NOT_FIRM), (ONE, 0, OPEN)])
def test_a_choice_is_firm_when_every_other_setting_is_clearly_worse(
    tmp_path: Path, values: dict[float, list[float]], alike: int, word: str
) -> None:
    (choice,) = choices(run_of(tmp_path, searched(tmp_path, values)), AP)
    assert (choice.method, choice.noise, choice.settings) == ("pos-ap", 0.2, len(values))
    assert (choice.alike, choice.word) == (alike, word)


def test_the_lead_is_paired_over_search_seeds(tmp_path: Path) -> None:
    (choice,) = choices(run_of(tmp_path, searched(tmp_path, COIN)), AP)
    gaps = [a - b for a, b in zip(COIN[0.1], COIN[0.2], strict=True)]
    wanted = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert choice.lead.low == pytest.approx(100 * wanted.low)
    assert choice.lead.high == pytest.approx(100 * wanted.high)


def test_the_setting_of_the_final_runs_is_the_chosen_one(tmp_path: Path) -> None:
    (choice,) = choices(run_of(tmp_path, searched(tmp_path, COIN, chosen=0.2)), AP)
    assert choice.lead.mean == pytest.approx(79.67 - 80, abs=0.1)


def test_a_line_for_each_method_and_level(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "robustness", methods=("pos-ap", "x-ent")))
    table = choice_table(run, AP)
    assert table is not None
    assert [row[0].text for row in table.rows] == ["pos-ap"] * 5 + ["x-ent"] * 5
    assert [row[1].text for row in table.rows[:5]] == ["0 %", "10 %", "20 %", "30 %", "40 %"]
    assert all(row[-1].text == OPEN for row in table.rows), "these have one search seed"
    assert "one search seed cannot show" in choice_note(run, AP)


def test_classes_are_counted(tmp_path: Path) -> None:
    lines = searched(tmp_path, CLEAR, 0) + searched(tmp_path, COIN, 1) + searched(tmp_path, COIN, 2)
    table = choice_table(run_of(tmp_path, lines), AP)
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == ["pos-ap", "3", "3", "+0.33", "1", "firm in 1 of 3"]


def test_nothing_was_chosen_without_a_search(tmp_path: Path) -> None:
    lines = [line for line in records("linear", 2) if line["stage"] == "final"]
    run = load_run(write_run(tmp_path, lines))
    assert choice_table(run, AP) is None
    assert choice_note(run, AP) == ""


def test_it_is_on_the_page_and_in_the_tables(tmp_path: Path) -> None:
    folder = write_run(tmp_path, searched(tmp_path, COIN), run_info("robustness", config={"select_on": "val"}))
    page = write_report(folder).read_text(encoding="utf-8")
    for text in (page, (folder / "tables.md").read_text(encoding="utf-8")):
        assert "How firm the choice of settings is" in text
        assert "not firm" in text
        assert "the choice is firm in 0 of 1 searches" in text


@pytest.mark.parametrize("name", ["robustness", "linear", "linear-noisy", "synthetic", "digits-noise"])
def test_stored_results_have_it(name: str) -> None:
    run = load_run(RESULTS / name)
    table = choice_table(run, AP)
    assert table is not None
    assert len(table.rows) == len(run.methods) * len(run.noises)


# ---------------------------------------------------------------------- a first look


def test_a_quick_run_gives_numbers_and_no_verdict(tmp_path: Path) -> None:
    lines = records("robustness", 3, ("pos-ap", "hinge-ap"))
    folder = write_run(tmp_path, lines, run_info("robustness", preset="quick"))
    report = report_of(folder)
    assert {judgement.verdict for judgement in report.judgements} == {Verdict.TOO_SMALL}
    assert {one.verdict for judgement in report.judgements for one in judgement.findings} == {Verdict.TOO_SMALL}
    assert report.summary.startswith("pos-ap is ")
    assert report.summary.endswith(
        "This is a first look, too small to judge the paper's 2 claims (3 seeds; 4 settings of each method on one seed "
        "in the search; 500 iterations); the paper preset is made for that."
    )
    page = write_report(folder).read_text(encoding="utf-8")
    screen = Console(file=io.StringIO(), width=200)
    screen.print(for_terminal(report))
    for text in (page, (folder / "tables.md").read_text(encoding="utf-8"), screen.file.getvalue()):  # type: ignore[attr-defined]
        assert "too small to judge" in text
        assert "not confirmed:" not in text
        assert "**not confirmed**" not in text
    assert 'class="card too-small-to-judge"' in page


def test_the_same_records_of_a_whole_run_are_judged(tmp_path: Path) -> None:
    lines = records("robustness", 3, ("pos-ap", "hinge-ap"))
    report = report_of(write_run(tmp_path, lines, run_info("robustness")))
    assert Verdict.TOO_SMALL not in {judgement.verdict for judgement in report.judgements}
