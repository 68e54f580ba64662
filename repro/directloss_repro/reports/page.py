"""The page: everything a reader needs in one file that opens offline and asks nothing of the network."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from directloss_repro.folder import RUN_FILE
from directloss_repro.records import Run
from directloss_repro.reports.claims import PLACE_TEXT, rule_text
from directloss_repro.reports.formatting import capital, config_of, duration, label, moment, value_text
from directloss_repro.reports.images import read_drawings
from directloss_repro.reports.plotting import colour_rules

if TYPE_CHECKING:
    from directloss_repro.reports.report import Report


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
        drawings=read_drawings(report.run.folder),
        settings={str(key): value_text(value) for key, value in config_of(report.run).items()},
        facts=_facts(report.run),
        light=light,
        dark=dark,
        run_file=RUN_FILE,
    )


def _facts(run: Run) -> dict[str, str]:
    """Who, when, how long, with what: only what is known."""
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
