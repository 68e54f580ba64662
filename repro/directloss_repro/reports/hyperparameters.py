"""Which settings were chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TypeGuard

from directloss_repro.records import Record, Run
from directloss_repro.reports.formatting import (
    NOTHING,
    duration,
    noise_text,
    value_text,
)
from directloss_repro.reports.tables import Column, Entry, Row, Table

UNSURE = "Intervals in the tables of results hold for these settings; they do not include the choice of settings."
EDGE = "edge"
EDGE_TEXT = "edge: the smallest or largest value that was tried; a wider search might do better."


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
    notes = (f"{trials}{differ}.", *([EDGE_TEXT] if edge else []), *([UNSURE] if run.search else []))
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
