"""The verdicts on the papers' claims, as a machine-readable file and as tables in the docs.

    python -m benchmarks.verdicts [--check]

Judges the claims of every run in `results/`, writes `results/verdicts.json`, and fills the tables in README and docs:

    <!-- verdicts: NAMES -->           all claims of these results
    <!-- verdicts, short: NAMES -->    the first claim of each
    <!-- leads: TABLE STUDY -->        a table of `benchmarks.leads`

each up to ``<!-- end -->``. ``--check`` writes nothing and fails if a file is not up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from directloss_repro.experiments import describe
from directloss_repro.files import write_all
from directloss_repro.records import Run, load_run
from directloss_repro.reports.claims import PLACE_TEXT, Finding, judge_all
from directloss_repro.reports.description import OURS
from directloss_repro.reports.formatting import seeds_text

from benchmarks import leads

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLE = RESULTS / "verdicts.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "evidence-papers.md", ROOT / "docs" / "evidence-peers.md")
LEADS = re.compile(r"(<!-- leads: (?P<words>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
PLACE = re.compile(r"(<!-- verdicts(?P<form>, short)?: (?P<names>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
Row = dict[str, Any]


def rows(results: Path = RESULTS) -> list[Row]:
    """One row per claim and run, in the order of the folders' names."""
    folders = sorted(path.parent for path in results.glob("*/run.json"))
    return [row for folder in folders for row in _of_run(folder.name, load_run(folder))]


def _of_run(name: str, run: Run) -> Iterator[Row]:
    for one in judge_all(describe(run.experiment).claims, run):
        yield {
            "results": name,
            "claim": one.claim.says,
            "source": one.claim.source,
            "where": PLACE_TEXT[one.claim.place],
            "comparisons": [_comparison(finding) for finding in one.findings],
            "seeds": len(run.seeds),
            "command": _command(run),
            "minutes": round(sum(record.seconds for record in (*run.search, *run.final)) / 60),
            "verdict": str(one.verdict),
        }


def _comparison(finding: Finding) -> Row:
    found, pair = finding.difference, finding.comparison
    return {
        "first": pair.first,
        "second": pair.second,
        "paper": None if pair.paper is None else round(pair.paper, 2),
        "ours": None if found is None else round(found.mean, 2),
        "interval": [round(found.low, 2), round(found.high, 2)] if found and found.has_interval else None,
    }


def _command(run: Run) -> str:
    """The command for the same experiment, without this run's output folder."""
    words = str(run.info.get("command", "")).split()
    return " ".join(words[: words.index("--out")] if "--out" in words else words)


def table(found: list[Row], names: str, short: bool = False) -> str:
    """The paper's claims on some results as Markdown; ``names`` are folders, in order."""
    by_name = {
        name: [row for row in found if row["results"] == name and row["source"] != OURS] for name in names.split()
    }
    missing = [name for name, claims in by_name.items() if not claims]
    if missing:
        sys.exit(f"There is no verdict on {', '.join(missing)} in results/.")
    chosen = [(_short(claims[0]),) if short else map(_long, claims) for claims in by_name.values()]
    heads = (
        ("claim", "ours", "verdict", "results")
        if short
        else ("claim of the paper", "its lead", "ours", "verdict", "results")
    )
    lines = [heads, ["---"] * len(heads), *(cells for rows in chosen for cells in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _long(row: Row) -> list[str]:
    pairs = row["comparisons"]
    printed = ["" if pair["paper"] is None else f"{pair['paper']:+.1f}" for pair in pairs]
    where = f"; {row['where']}" if row["where"] else ""
    return [
        f"{row['claim']} ({row['source']}{where})",
        "<br>".join(printed) if any(printed) else "-",
        "<br>".join(_difference(pair) for pair in pairs),
        row["verdict"],
        f"`{row['results']}`, {seeds_text(row['seeds'])}, {row['minutes']} min",
    ]


def _short(row: Row) -> list[str]:
    """Of several comparisons, the one in which the claim does worst."""
    return [
        row["claim"],
        _difference(min(row["comparisons"], key=lambda pair: pair["ours"])),
        row["verdict"],
        f"`{row['results']}`",
    ]


def _difference(pair: Row) -> str:
    name = f"{pair['first']} minus {pair['second']}"
    if pair["ours"] is None:
        return f"{name}: not run"
    places = 1 if abs(pair["ours"]) >= 0.5 else 2
    between = "" if pair["interval"] is None else " ({0:+.{2}f} to {1:+.{2}f})".format(*pair["interval"], places)
    return f"{name}: {pair['ours']:+.{places}f}{between}"


def files(found: list[Row]) -> dict[Path, str]:
    """The expected content of every file with verdicts."""
    made = {TABLE: json.dumps(found, indent=1, ensure_ascii=False) + "\n"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = LEADS.sub(lambda place: place[1] + leads.block(place["words"]) + place[3], text)
        made[page] = PLACE.sub(
            lambda place: place[1] + table(found, place["names"], bool(place["form"])) + place[4], text
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = files(rows())
    old = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if parser.parse_args().check:
        for path in old:
            print(f"{path.relative_to(ROOT)} is not up to date: run python -m benchmarks.verdicts", file=sys.stderr)
        return bool(old)
    write_all({path: text.encode() for path, text in made.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
