"""Which settings were chosen, and how firm the choice is.

The intervals of a report are over final runs, so they hold only for the chosen setting. The records of the search show
how sure the choice is: a setting whose paired difference to the chosen one, on the same search seeds, has a 95 %
interval that contains zero may be as good. The chosen one was the best of many, so its lead is, if anything, too large.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeGuard

from directloss_repro.records import Record, Run
from directloss_repro.reports.formatting import (
    NOTHING,
    decimals,
    duration,
    label,
    noise_text,
    number,
    plus_minus,
    value_text,
)
from directloss_repro.reports.stats import Estimate, percent
from directloss_repro.reports.tables import Column, Entry, Row, Table

TITLE = "How firm the choice of settings is"
FIRM, NOT_FIRM, OPEN = "firm", "not firm", "open: one search seed"
EDGE = "edge"
EDGE_TEXT = "edge: the smallest or largest value that was tried; a wider search might do better."


@dataclass(frozen=True)
class Choice:
    """One search: the lead of the chosen setting over the runner-up, on the same search seeds."""

    method: str
    noise: float | None
    lead: Estimate
    settings: int
    alike: int
    """How many other settings may be as good as the chosen one."""

    @property
    def word(self) -> str:
        """Firm when every other setting is clearly worse."""
        return OPEN if not self.lead.has_interval else NOT_FIRM if self.alike else FIRM


def choices(run: Run, main: str) -> list[Choice]:
    """Every search of a run with more than one setting; each class has its own search."""
    key = _chosen_by(run, main)
    searches: dict[tuple[str, float | None, str | None], list[Record]] = defaultdict(list)
    for record in run.search:
        if key in record.metrics:
            searches[record.method, record.noise, record.group].append(record)
    final = {(record.method, record.noise, record.group): record.params for record in run.final}
    found = [_choice(*place[:2], searches[place], final[place], key) for place in final if place in searches]
    return [choice for choice in found if choice is not None]


def _chosen_by(run: Run, main: str) -> str:
    """The metric that settings were chosen by, from the config or else from the search records."""
    name = main.removeprefix("test_")
    held_out = any(f"val_{name}" in record.metrics for record in run.search)
    return f"{run.config.get('select_on') or ('val' if held_out else 'train')}_{name}"


def _choice(
    method: str, noise: float | None, search: Sequence[Record], chosen: Mapping[str, object], key: str
) -> Choice | None:
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for record in search:
        values[_name(record.params)][record.seed] = record.metrics[key]
    means = {name: sum(found.values()) / len(found) for name, found in values.items()}
    best = _name(chosen) if _name(chosen) in values else max(means, key=lambda name: means[name])
    leads = []
    for other in sorted((name for name in values if name != best), key=lambda name: -means[name]):
        gaps = [values[best][seed] - values[other][seed] for seed in sorted(values[best].keys() & values[other])]
        leads += [percent(gaps)] if gaps else []
    if not leads:
        return None
    return Choice(method, noise, leads[0], len(values), sum(lead.low <= 0 for lead in leads))


def _name(params: Mapping[str, object]) -> str:
    return repr(sorted(params.items()))


def choice_table(run: Run, main: str) -> Table | None:
    """One row per method and noise level; for several classes, medians and the number of firm choices."""
    cells: dict[tuple[str, float | None], list[Choice]] = defaultdict(list)
    for choice in choices(run, main):
        cells[choice.method, choice.noise].append(choice)
    if not cells:
        return None
    several = len(run.noises) > 1
    heads = [Column("method", numeric=False), *([Column("flipped labels")] if several else [])]
    heads += [Column("settings"), Column("search seeds")]
    heads += [Column(f"lead over the runner-up, {label(_chosen_by(run, main))}")]
    heads += [Column("others that may be as good"), Column("choice", numeric=False)]
    rows = tuple(
        (Entry(method), *([Entry(noise_text(noise) or "none")] if several else []), *_row(cells[method, noise]))
        for method in run.methods
        for noise in run.noises
        if (method, noise) in cells
    )
    classes = "Each class has its own search: medians over the classes, and how many choices are firm."
    notes = (
        "Settings were chosen by the mean over the search seeds. Lead: on the same seeds, 95 % Student t interval.",
        *([classes] if len(run.groups) > 1 else []),
        "Another may be as good if the interval of its paired difference to the chosen one contains zero.",
        "Intervals in the other tables hold for the chosen settings and do not include the uncertainty of the choice.",
    )
    return Table(TITLE, tuple(heads), rows, notes)


def _row(found: Sequence[Choice]) -> Row:
    one = found[0]
    sizes = (Entry(str(one.settings)), Entry(str(one.lead.n)))
    if len(found) > 1:
        lead = number(median(choice.lead.mean for choice in found), 2, signed=True)
        alike = f"{median(choice.alike for choice in found):g}"
        word = f"{FIRM} in {sum(choice.word == FIRM for choice in found)} of {len(found)}"
    else:
        places = decimals([one.lead])
        lead = number(one.lead.mean, places, signed=True)
        alike, word = f"{one.alike} of {one.settings - 1}", one.word
    if one.word == OPEN:
        alike, word = NOTHING, OPEN
    return (*sizes, Entry(lead, "" if len(found) > 1 else plus_minus(one.lead, places)), Entry(alike), Entry(word))


def choice_note(run: Run, main: str) -> str:
    """One sentence for the table of results; empty if there was nothing to choose."""
    found = choices(run, main)
    if not found:
        return ""
    if all(choice.word == OPEN for choice in found):
        return "These results hold for the chosen settings; one search seed cannot show how firm their choice is."
    firm = sum(choice.word == FIRM for choice in found)
    return (
        f"These results hold for the chosen settings; the choice is firm in {firm} of {len(found)} searches "
        f"(in the report: {TITLE[0].lower()}{TITLE[1:]})."
    )


# ---------------------------------------------------------------------- the chosen values


def chosen_table(run: Run) -> Table | None:
    """The hyper-parameters of the final runs, how many trials chose them, and which lie at the edge of the search."""
    names = sorted({name for record in run.final for name in record.params})
    if not names:
        return None
    several = len(run.noises) > 1
    rows = tuple(row for method in run.methods for row in _chosen_rows(run, method, names, several))
    heads = [Column("method", numeric=False), *([Column("flipped labels", numeric=False)] if several else [])]
    heads += [*map(Column, names), Column("trials"), Column("time of all runs")]
    trials = "Trials at each noise level" if several else "Trials: how many settings were tried"
    differ = "; where classes chose different values, each is given with its count" if len(run.groups) > 1 else ""
    edge = any(cell.small == EDGE for row in rows for cell in row)
    notes = (f"{trials}{differ}.", *([EDGE_TEXT] if edge else []))
    return Table("Chosen hyper-parameters", tuple(heads), rows, notes)


def _chosen_rows(run: Run, method: str, names: list[str], several: bool) -> list[Row]:
    """One row per set of noise levels that chose the same values."""
    noises: dict[Row, list[float | None]] = defaultdict(list)
    spent: Counter[Row] = Counter()
    for noise in run.noises:
        final, search = (
            [r for r in part if (r.method, r.noise) == (method, noise)] for part in (run.final, run.search)
        )
        if final:
            trials = Entry(str(len(search)) if search else NOTHING)
            cells = (*(_chosen(name, final, search) for name in names), trials)
            noises[cells].append(noise)
            spent[cells] += round(sum(record.seconds for record in final + search))
    everywhere = len(run.noises)
    return [
        (Entry(method), *([_levels(at, everywhere)] if several else []), *cells, Entry(duration(spent[cells])))
        for cells, at in noises.items()
    ]


def _levels(noises: list[float | None], everywhere: int) -> Entry:
    listed = ", ".join(noise_text(noise).removesuffix(" %") or "none" for noise in noises)
    return Entry("all" if len(noises) == everywhere else f"{listed} %")


def _chosen(name: str, final: list[Record], search: list[Record]) -> Entry:
    values = Counter(value_text(record.params[name]) for record in final if name in record.params)
    if not values:
        return Entry(NOTHING)
    if len(values) > 1:
        return Entry(", ".join(f"{value} ({count}×)" for value, count in values.most_common()))  # noqa: RUF001
    tried = {value for record in search if _is_number(value := record.params.get(name))}
    value = next(record.params[name] for record in final if name in record.params)
    # Zero is a natural end (no weight decay), not a search that stopped too early.
    at_edge = len(tried) > 2 and _is_number(value) and value != 0 and value in (min(tried), max(tried))
    return Entry(value_text(value), EDGE if at_edge else "")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
