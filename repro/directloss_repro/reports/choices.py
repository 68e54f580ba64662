"""How firm the choice of settings is: what the search says of the chosen setting and its runner-up.

The intervals of a report are over final runs, all with the chosen setting. They hold for that setting; that another
search might have chosen another one, they do not show. This table does, from the records of the search: on each search
seed the chosen setting is compared with every other one, and a setting whose paired difference has a 95 % interval
that contains zero cannot be told from it. The chosen one was the best of many, so its lead is, if anything, too large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from directloss_repro.reports.compared import stored_comparisons
from directloss_repro.reports.stats import Estimate, estimate
from directloss_repro.reports.stored import Record, Run
from directloss_repro.reports.tables import NOTHING, Cell, Column, Table
from directloss_repro.reports.wording import Metric, decimals, metric, noise_text, number

TITLE = "How firm the choice of settings is"
FIRM, NOT_FIRM, OPEN = "firm", "not firm", "open: one search seed"


@dataclass(frozen=True)
class Choice:
    """One search: the lead of the chosen setting over the runner-up, on the same search seeds."""

    method: str
    noise: float | None
    lead: Estimate
    settings: int
    alike: int
    """How many other settings cannot be told from the chosen one."""

    @property
    def word(self) -> str:
        """Firm when every other setting is clearly worse."""
        return OPEN if self.lead.low is None else NOT_FIRM if self.alike else FIRM


def choices(run: Run, main: Metric) -> list[Choice]:
    """Every search of a run that had something to choose from; a class is a search of its own."""
    if stored_comparisons(run):
        return []  # its search goes from trial to trial, on one seed
    key = _chosen_by(run, main)
    searches: dict[tuple[str, float | None, str | None], list[Record]] = defaultdict(list)
    for record in run.search:
        if key in record.metrics:
            searches[record.method, record.noise, record.group].append(record)
    final = {(record.method, record.noise, record.group): record.params for record in run.final}
    found = [_choice(place[0], place[1], searches[place], final[place], key) for place in final if place in searches]
    return [choice for choice in found if choice is not None]


def _chosen_by(run: Run, main: Metric) -> str:
    """The number that settings were chosen by, as the config says or else as the search has it."""
    name = main.key.removeprefix("test_")
    config = run.info.get("config")
    named = config.get("select_on") if isinstance(config, dict) else None
    held_out = any(f"val_{name}" in record.metrics for record in run.search)
    return f"{named or ('val' if held_out else 'train')}_{name}"


def _choice(
    method: str, noise: float | None, search: Sequence[Record], chosen: Mapping[str, object], key: str
) -> Choice | None:
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for record in search:
        values[_name(record.params)][record.seed] = record.metrics[key]
    means = {name: sum(found.values()) / len(found) for name, found in values.items()}
    best = _name(chosen) if _name(chosen) in values else max(means, key=lambda name: means[name])
    others = sorted((name for name in values if name != best), key=lambda name: -means[name])
    gaps = [
        [values[best][s] - values[other][s] for s in sorted(values[best].keys() & values[other])] for other in others
    ]
    leads = [estimate(gap) for gap in gaps if gap]
    if not leads:
        return None
    alike = sum(lead.low is not None and lead.low <= 0 for lead in leads)
    return Choice(method, noise, leads[0], len(values), alike)


def _name(params: Mapping[str, object]) -> str:
    return repr(sorted(params.items()))


def choice_table(run: Run, main: Metric) -> Table | None:
    """A row for each method and noise level; of several classes the medians and the number of firm choices."""
    cells: dict[tuple[str, float | None], list[Choice]] = defaultdict(list)
    for choice in choices(run, main):
        cells[choice.method, choice.noise].append(choice)
    if not cells:
        return None
    what = metric(_chosen_by(run, main))
    several = len(run.noises) > 1
    heads = [Column("method", numeric=False), *([Column("flipped labels")] if several else [])]
    heads += [Column("settings"), Column("search seeds"), Column(f"lead over the runner-up, {what.label}")]
    heads += [Column("others that may be as good"), Column("choice", numeric=False)]
    rows = tuple(
        (
            Cell(method, heading=True),
            *([Cell(noise_text(noise) or "none")] if several else []),
            *_row(cells[method, noise], what),
        )
        for method in run.methods
        for noise in run.noises
        if (method, noise) in cells
    )
    notes = [
        "Settings were chosen by the mean over the search seeds. Lead: on the same seeds, 95 % Student t interval."
    ]
    if len(run.groups) > 1:
        notes.append("Each class has a search of its own: medians over the classes, and how many choices are firm.")
    notes.append("Another may be as good if the interval of its paired difference to the chosen one contains zero.")
    notes.append(
        "Intervals in the other tables hold for the chosen settings and do not include the chance of the choice."
    )
    return Table(TITLE, tuple(heads), rows, tuple(notes))


def _row(found: Sequence[Choice], what: Metric) -> tuple[Cell, ...]:
    one = found[0]
    sizes = (Cell(str(one.settings)), Cell(str(one.lead.n)))
    if len(found) > 1:
        lead = number(median(choice.lead.mean for choice in found) * what.factor, max(2, what.places), signed=True)
        alike = NOTHING if one.word == OPEN else f"{median(choice.alike for choice in found):g}"
        firm = sum(choice.word == FIRM for choice in found)
        word = OPEN if one.word == OPEN else f"{FIRM} in {firm} of {len(found)}"
        return (*sizes, Cell(lead), Cell(alike), Cell(word))
    e = one.lead.scaled(what.factor)
    places = decimals([e], what.places)
    half = "" if e.half is None else f"± {number(e.half, places)}"
    alike = NOTHING if one.word == OPEN else f"{one.alike} of {one.settings - 1}"
    return (*sizes, Cell(number(e.mean, places, signed=True), half), Cell(alike), Cell(one.word))


def choice_note(run: Run, main: Metric) -> str:
    """One sentence for the table of results; empty where there was nothing to choose."""
    found = choices(run, main)
    if not found:
        return ""
    if all(choice.word == OPEN for choice in found):
        return "All this holds for the chosen settings; with one search seed nobody can say how firm their choice is."
    firm = sum(choice.word == FIRM for choice in found)
    return (
        f"All this holds for the chosen settings, and the choice is firm in {firm} of {len(found)} searches "
        f"(in the report: {TITLE[0].lower()}{TITLE[1:]})."
    )
