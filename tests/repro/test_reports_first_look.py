"""Runs that are too small to judge."""

from __future__ import annotations

import io
from pathlib import Path

from directloss_repro.reports.claims import Verdict
from directloss_repro.reports.report import for_terminal
from rich.console import Console

from tests.repro.fake_records import records, report_of, run_info, write_report, write_run


def test_a_quick_run_gives_numbers_and_no_verdict(tmp_path: Path) -> None:
    lines = records("robustness", 3, ("pos-ap", "hinge-ap"))
    folder = write_run(tmp_path, lines, run_info("robustness", preset="quick"))
    report = report_of(folder)
    assert {judgement.verdict for judgement in report.judgements} == {Verdict.TOO_SMALL}
    assert {one.verdict for judgement in report.judgements for one in judgement.findings} == {Verdict.TOO_SMALL}
    assert report.summary.startswith("pos-ap is ")
    assert report.summary.endswith(
        "This is a first look, too small to judge the paper's 2 claims (3 seeds; 500 iterations); the "
        "paper preset is made for that."
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
