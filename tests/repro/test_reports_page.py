"""The page and its files: complete, offline, safe, written whole or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from directloss_repro.experiments import FILES, get_experiment
from directloss_repro.reports.report import for_terminal
from rich.console import Console

from directloss import DirectLossError
from tests.repro.fake_records import make_run, record, records, report_of, run_info, write_report, write_run


class Reader(HTMLParser):
    """Collects the text, the tags and the links of a page, and checks that tags are closed in order."""

    VOID = frozenset({"meta", "link", "br", "hr", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "srcset", "action")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"unexpected </{tag}>"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


def read(path: Path) -> Reader:
    return Reader(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_gets_a_whole_page(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path, name, seeds=3)
    page = write_report(folder)
    assert page == folder / "report.html"
    read_page = read(page)
    description = get_experiment(name).description
    assert description.title in read_page.words
    assert all(claim.says in read_page.words for claim in description.claims)
    assert f"directloss reproduce {name} --preset paper --out runs/{name}" in read_page.words
    for word in ("42 min 30 s", "2.13.0", "0123456789abcdef", "weight_decay", "train_points", "Student t interval"):
        assert word in read_page.words
    assert "Before you read on" not in read_page.words, "a complete run needs no warning"
    drawn = {
        f"{figure.kind}-{figure.metric.replace('_', '-')}" for figure in description.figures if figure.kind != "frames"
    }
    assert {path.stem for path in (folder / "figures").iterdir()} == drawn
    assert {path.name for path in folder.iterdir()} == {
        "figures",
        "records.jsonl",
        "report.html",
        "run.json",
        "tables.md",
    }


def test_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path, "robustness", seeds=2))
    found = read(page)
    assert "script" not in found.tags
    assert "img" not in found.tags
    for link in found.links:
        assert link.startswith(("#", "data:,")) or (page.parent / link).is_file(), link
    assert "@import" not in page.read_text()
    assert not re.search(r"url\((?!#)", page.read_text())


def test_page_has_one_outline(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path, "digits-noise", seeds=2))
    text = page.read_text()
    assert '<html lang="en">' in text
    levels = [int(tag[1]) for tag in read(page).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - before <= 1 for before, later in itertools.pairwise(levels))
    assert "Content-Security-Policy" in text


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&$x_{"


def test_values_of_records_cannot_become_markup(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for seed in (0, 1):
        for method in ("pos-ap", EVIL):
            line = record("synthetic", "pos-ap", seed) | {"experiment": EVIL, "method": method, "class": EVIL}
            line |= {"params": {EVIL: EVIL}, "versions": {EVIL: EVIL}, "commit": EVIL}
            line["metrics"] = {f"test_{EVIL}": 0.5 + seed / 10, "test_ap": 0.5}
            line["curve"][f"test_{EVIL}"] = line["curve"]["test_ap"]
            lines.append(line)
    info = run_info(EVIL, command=EVIL, preset=EVIL, config={EVIL: [EVIL]}, started=EVIL)
    folder = write_run(tmp_path, lines, info)
    page = write_report(folder)
    found = read(page)
    assert not {"script", "img"} & set(found.tags)
    assert EVIL in found.words
    # Code between backticks is shown as it is.
    assert "<script" not in re.sub("`[^`]*`", "", (folder / "tables.md").read_text())
    pictures = list((folder / "figures").iterdir())
    assert len(pictures) == 6
    for picture in pictures:
        assert re.fullmatch(r"[a-z0-9-]+\.(svg|png)", picture.name)
        assert picture.suffix == ".png" or "<script" not in picture.read_text()


def test_the_first_sentence_gives_the_numbers(tmp_path: Path) -> None:
    summary = report_of(make_run(tmp_path, "robustness", seeds=10)).summary
    assert re.fullmatch(
        r"pos-ap is 12\.\d+ points of test AP ahead of hinge-ap "
        r"\(difference \+12\.\d+ to \+1\d\.\d+ with 95 % confidence; mean over the noisy levels; 10 seeds\)\. "
        r"Of the paper's 2 claims judged here: 2 confirmed\. Of our own 1 statement judged here: 1 confirmed\.",
        summary,
    )


def test_many_rivals_are_told_by_the_strongest(tmp_path: Path) -> None:
    summary = report_of(make_run(tmp_path, "synthetic", seeds=10)).summary
    assert "ahead of x-ent, the strongest of 5 rivals (difference +2." in summary


INCOMPLETE = {
    "one seed": (lambda line: line["seed"] == 0, "only one seed"),
    "one method": (lambda line: line["method"] == "pos-ap", "only one method (pos-ap)"),
    "one run": (lambda line: (line["method"], line["seed"], line["noise"]) == ("x-ent", 0, 0.0), "only one seed"),
    "half": (lambda line: line["noise"] < 0.25 or line["seed"] == 1, "8 of 30 final runs are missing"),
    "search only": (lambda line: False, "No final run is stored yet"),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_incomplete_runs_get_a_page_that_says_so(tmp_path: Path, case: str) -> None:
    keep, expected = INCOMPLETE[case]
    lines = records("robustness", 3, ["pos-ap", "x-ent"])
    kept = [line for line in lines if line["stage"] == "search" or keep(line)]
    words = read(write_report(write_run(tmp_path, kept, run_info("robustness", finished=None)))).words
    assert "This experiment has not finished" in words
    assert expected in words
    assert "undecided" in words


def test_no_final_numbers_at_all(tmp_path: Path) -> None:
    lines = [
        record("linear", "x-ent", 0) | {"metrics": {}, "curve": None, "params": {}, "versions": {}, "commit": None}
    ]
    words = read(write_report(write_run(tmp_path, lines))).words
    assert "There is no result yet." in words
    assert "The folder has no run.json" in words


def test_unknown_experiments_get_tables_without_verdicts(tmp_path: Path) -> None:
    lines = [record("synthetic", m, s) | {"experiment": "own"} for m in ("x-ent", "hinge-ap") for s in range(3)]
    words = read(write_report(write_run(tmp_path, lines, run_info("own")))).words
    assert "Best test AP: x-ent with 9" in words
    assert "confirmed" not in words


def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "linear", seeds=2, methods=["pos-ap", "neg-ap"])
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_tables_in_markdown_hold_the_verdicts(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "digits-noise", seeds=3)
    write_report(folder)
    text = (folder / "tables.md").read_text()
    assert "- **confirmed**: Under label noise, direct loss works much better than the hinge loss." in text
    assert re.search(r"pos-ap minus hinge-ap: \+1\d\.\d+ points \(.* to .*\); paper \+10\.8 points", text)
    assert "| class | 0 %: pos-ap |" in text


def test_terminal_summary_ends_with_the_table(tmp_path: Path) -> None:
    out = io.StringIO()
    folder = make_run(tmp_path, "robustness", seeds=3, methods=["pos-ap", "hinge-ap"])
    Console(file=out, width=120).print(for_terminal(report_of(folder)))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("pos-ap is ")
    assert "✓ confirmed: pos-ap is more robust to label noise than hinge-ap." in lines
    assert any(line.startswith("hinge-ap  ") for line in lines)


def test_bad_records_leave_the_old_page(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "linear", seeds=2, methods=["pos-ap"])
    before = write_report(folder).read_bytes()
    with (folder / "records.jsonl").open("a") as file:
        file.write("broken\n")
    with pytest.raises(DirectLossError, match=r"records\.jsonl line \d+ must be one JSON object"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path, "linear", seeds=2, methods=["pos-ap"])
    write_report(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_run(folder, records("linear", 2, ["pos-ap", "neg-ap"]), run_info("linear"))
    before |= {path: path.read_bytes() for path in (folder / "records.jsonl", folder / "run.json")}
    real, calls = Path.write_bytes, []

    def full(self: Path, content: bytes) -> int:
        calls.append(self)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DirectLossError, match=r"cannot be written: No space left on device\. Nothing was replaced"):
        write_report(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_pages_can_be_read_by_others(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path, "linear", seeds=1, methods=["pos-ap"]))
    probe = tmp_path / "probe"
    probe.touch()
    assert page.stat().st_mode == probe.stat().st_mode


@pytest.mark.parametrize("packed", [False, True])
def test_the_page_links_to_the_records_that_are_there(tmp_path: Path, packed: bool) -> None:
    folder = make_run(tmp_path, "linear", seeds=1, methods=["pos-ap"])
    name = "records.jsonl"
    if packed:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
        name = f"{name}.gz"
    assert f'<a href="{name}">{name}</a>' in write_report(folder).read_text(encoding="utf-8")


def test_rivals_are_counted_only_where_one_method_has_several(tmp_path: Path) -> None:
    assert "the strongest of 2 rivals" in report_of(make_run(tmp_path / "one", "ablation-batch", seeds=3)).summary
    several = report_of(make_run(tmp_path / "several", "ablation-ap", seeds=3)).summary
    assert "rivals" not in several
    assert "Of our own 5 statements" in several
