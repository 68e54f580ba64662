"""All parts of a report, and its outputs: the page, tables as text, figures, and a summary in the terminal.

The page is a single file that opens offline and makes no network requests.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Group, RenderableType
from rich.text import Text

from directloss_repro.files import write_all
from directloss_repro.folder import RUN_FILE
from directloss_repro.records import Run
from directloss_repro.reports.claims import PLACE_TEXT, Judgement, Verdict, is_first_look, judge_all, rule_text
from directloss_repro.reports.description import Description
from directloss_repro.reports.figures import Panel, draw_all
from directloss_repro.reports.formatting import capital, duration, label, metrics_of, moment, value_text
from directloss_repro.reports.hyperparameters import chosen_table
from directloss_repro.reports.style import colour_rules
from directloss_repro.reports.summary import main_method, notices, summary
from directloss_repro.reports.tables import Table, difference_table, plain, result_tables, to_markdown, to_rich


@dataclass(frozen=True)
class Report:
    """All parts of a report, ready for output in any form."""

    run: Run
    description: Description
    metrics: tuple[str, ...]
    summary: str
    notices: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    results: tuple[Table, ...]
    """The tables of results, and the paired differences."""
    chosen: Table | None
    """The settings of the final runs."""

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """The figures, drawn on first use."""
        return tuple(draw_all(self.run, self.description, self.metrics) if self.metrics else ())


def build(run: Run, description: Description) -> Report:
    """Judge the claims and make the tables of a run."""
    metrics = metrics_of(run, description.metrics)
    main = metrics[0] if metrics else None
    judgements = judge_all(description.claims, run)
    results: list[Table] = []
    if main:
        results = list(result_tables(run, metrics, description.reference))
        differences = difference_table(run, main, main_method(run, main))
        results += [differences] if differences else []
    return Report(
        run,
        description,
        metrics,
        summary(run, metrics, judgements),
        tuple(notices(run, main)),
        judgements,
        tuple(results),
        chosen_table(run),
    )


def write(report: Report) -> Path:
    """Write page, tables and figures into the folder of the run; return the path of the page.

    Everything is built in memory first and files are replaced atomically, so a failure leaves the old report intact.
    """
    folder = report.run.folder
    files = {folder / "figures" / f"{panel.name}.svg": panel.svg for panel in report.panels}
    files |= {folder / "figures" / f"{panel.name}.png": panel.png for panel in report.panels}
    files[folder / "tables.md"] = _markdown(report).encode()
    files[folder / "report.html"] = render(report).encode()
    write_all(files)
    return folder / "report.html"


def for_terminal(report: Report) -> RenderableType:
    """What to show in the terminal at the end of a run: summary, verdicts and the first table of results."""
    colours = {Verdict.CONFIRMED: "green", Verdict.NOT_CONFIRMED: "red"}
    lines: list[RenderableType] = [Text(report.summary, "bold")]
    for one in () if is_first_look(report.run) else report.judgements:  # the summary of a first look says it
        verdict = Text(f"{one.verdict.sign} {one.verdict}: ", colours.get(one.verdict, "yellow"))
        lines.append(verdict.append(one.claim.says, ""))
    lines += [Text(f"! {notice}", "yellow") for notice in report.notices]
    return Group(*lines, Text(), *(to_rich(table) for table in report.results[:1]))


def _markdown(report: Report) -> str:
    parts = [f"# {plain(report.description.title)}", plain(report.summary)]
    parts += [f"> {plain(notice)}" for notice in report.notices]
    for one in report.judgements:
        lines = [f"- **{one.verdict}**: {one.claim.says} ({one.claim.source})"]
        for finding in one.findings:
            ours = f"{finding.comparison.first} minus {finding.comparison.second}: {finding.ours} {finding.interval}"
            lines.append("    - " + plain(ours.rstrip() + (f"; paper {finding.paper}" if finding.paper else "")))
        parts.append("\n".join(lines))
    parts += [to_markdown(table) for table in (*report.results, report.chosen) if table]
    command = report.run.info.get("command")
    if isinstance(command, str):
        parts.append(f"Command: `{' '.join(command.replace('`', '').split())}`")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- the page


def render(report: Report) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("directloss_repro.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"capital": capital, "label": label, "place_text": PLACE_TEXT, "rule_text": rule_text}
    light, dark = colour_rules()
    return environment.get_template("report.html.j2").render(
        report=report,
        settings={str(key): value_text(value) for key, value in report.run.config.items()},
        facts=_facts(report.run),
        light=light,
        dark=dark,
        run_file=RUN_FILE,
    )


def _facts(run: Run) -> dict[str, str]:
    """Experiment, preset, times and versions, as far as they are known."""
    started, finished = moment(run.info.get("started")), moment(run.info.get("finished"))
    everything = (*run.search, *run.final)
    versions: dict[str, set[str | None]] = defaultdict(set)  # more than one is worth knowing
    for record in everything:
        for name, version in {**record.versions, "commit": record.commit}.items():
            versions[name].add(version)
    facts = {
        "experiment": run.experiment,
        "preset": value_text(run.info["preset"]) if run.info.get("preset") else "",
        "started": f"{started:%Y-%m-%d %H:%M %Z}" if started else "",
        "duration": duration((finished - started).total_seconds()) if started and finished else "",
        "training time, all runs": duration(sum(record.seconds for record in everything)),
        "runs": f"{len(run.final)} final, {len(run.search)} search trials",
        **{name: ", ".join(sorted(filter(None, found))) for name, found in sorted(versions.items())},
    }
    return {name: value for name, value in facts.items() if value}
