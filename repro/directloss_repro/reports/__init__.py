"""Tables, figures, verdicts and the page of an experiment, from its stored records alone.

A folder holds ``records.jsonl`` (one finished training per line) and ``run.json`` (command and settings).
`write_report` adds ``report.html``, ``tables.md`` and ``figures/``. It may be called at any moment of a run, and again.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from directloss_repro.files import write_all
from directloss_repro.reports.claims import Verdict, is_first_look
from directloss_repro.reports.page import SIGNS, Report, build, finding_text, panels_of, render
from directloss_repro.reports.printing import plain, to_markdown, to_rich
from directloss_repro.reports.stored import load_run
from directloss_repro.reports.wording import metric

__all__ = ["terminal_summary", "write_report"]

PAGE = "report.html"


def write_report(out_dir: Path) -> Path:
    """Draw tables, figures and the page of ``out_dir`` again and return the path of the page.

    Everything is made in memory first and each file appears whole, so a failure leaves the old report as it was.
    Records that cannot be read raise a `DirectLossError` that names the file and the line.
    """
    out_dir = Path(out_dir)
    report = build(load_run(out_dir))
    panels = panels_of(report)
    files = {out_dir / "figures" / f"{panel.name}.svg": panel.svg for panel in panels}
    files |= {out_dir / "figures" / f"{panel.name}.png": panel.png for panel in panels}
    files[out_dir / "tables.md"] = _markdown(report).encode()
    files[out_dir / PAGE] = render(report, panels).encode()
    write_all(files)
    return out_dir / PAGE


def terminal_summary(out_dir: Path) -> RenderableType:
    """What to show in the terminal at the end of a run: summary, verdicts and the table of results."""
    report = build(load_run(Path(out_dir)))
    colours = {Verdict.CONFIRMED: "green", Verdict.NOT_CONFIRMED: "red"}
    lines: list[RenderableType] = [Text(report.summary, "bold")]
    for judgement in report.judgements if not is_first_look(report.run) else ():  # the summary has said it once
        verdict = Text(
            f"{SIGNS[judgement.verdict]} {judgement.verdict.value}: ", colours.get(judgement.verdict, "yellow")
        )
        lines.append(verdict.append(judgement.claim.says, ""))
    lines += [Text(f"! {notice}", "yellow") for notice in report.notices]
    return Group(*lines, Text(), *(to_rich(table) for table in report.results[:1]))


def _markdown(report: Report) -> str:
    parts = [f"# {plain(report.description.title)}", plain(report.summary)]
    parts += [f"> {plain(notice)}" for notice in report.notices]
    for judgement in report.judgements:
        what = metric(judgement.claim.metric)
        lines = [f"- **{judgement.verdict.value}**: {judgement.claim.says} ({judgement.claim.source})"]
        for finding in judgement.findings:
            ours, theirs = finding_text(finding, what)
            pair = f"{finding.comparison.first} minus {finding.comparison.second}"
            lines.append("    - " + plain(f"{pair}: {ours}" + (f"; paper {theirs}" if theirs else "")))
        parts.append("\n".join(lines))
    parts += [to_markdown(table) for table in (*report.results, *report.differences, *report.choices)]
    command = report.run.info.get("command")
    if isinstance(command, str):
        parts.append(f"Command: `{' '.join(command.replace('`', '').split())}`")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
