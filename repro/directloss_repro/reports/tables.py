"""Tables as data: built once from records, then printed as HTML, as Markdown and in the terminal.

In each column the best mean is bold. Methods whose paired difference to the best has an interval that contains zero
carry ``≈``: these seeds cannot tell them from the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from directloss_repro.records import Run, method_order
from directloss_repro.reports.description import Numbers, Reference
from directloss_repro.reports.formatting import (
    NOTHING,
    axis,
    capital,
    decimals,
    label,
    noise_text,
    number,
    plus_minus,
    span,
)
from directloss_repro.reports.stats import Estimate, difference, measured

ALIKE = "≈"
ALIKE_TEXT = (
    "≈: these seeds cannot tell it from the best "
    "(the interval of the paired difference contains zero; no correction for many comparisons)."
)


@dataclass(frozen=True)
class Entry:
    """A cell of a table: its text, small text after it, and a mark ("best", "alike", "clear", "paper" or "")."""

    text: str
    small: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """A column and the heading of its group ("" for none)."""

    label: str
    group: str = ""
    numeric: bool = True


Row = tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A table with a title and notes below; the first cell of each row is its heading."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """The row of group headings as (label, number of columns); empty if no column has a group."""
        spans = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda column: column.group)]
        return tuple(spans) if any(name for name, _ in spans) else ()


# ---------------------------------------------------------------------- results


def result_tables(run: Run, metrics: Sequence[str], reference: Reference | None) -> list[Table]:
    """The tables of an experiment: over methods, noise levels or classes, depending on the records."""
    if len(run.noises) == 1:
        tables = [_over_metrics(run, metrics, reference)]
    else:
        tables = [_over_noise(run, one, reference if one == "test_ap" else None) for one in metrics]
    return tables if run.groups == (None,) else [*tables, _over_classes(run, metrics[0], reference)]


def _over_metrics(run: Run, metrics: Sequence[str], reference: Reference | None) -> Table:
    """Rows are methods, best first; columns are metrics; the paper's numbers follow the first one."""
    noise, main = run.noises[0], metrics[0]
    columns = [_column(run, noise, one) for one in metrics]
    paper = _paper_column(run, noise, reference)
    found = {method: e for method in run.methods if (e := measured(run, method, noise, main))}
    ranked = sorted(run.methods, key=lambda method: -found[method].mean if method in found else 0.0)
    rows = [
        (
            Entry(method),
            columns[0][method],
            *([paper.get(method, Entry(NOTHING))] if paper else []),
            *(column[method] for column in columns[1:]),
            Entry(str(found[method].n if method in found else 0)),
        )
        for method in ranked
    ]
    first, *others = (Column(axis(one)) for one in metrics)
    heads = (Column("method", numeric=False), first, *([Column("paper")] if paper else []), *others, Column("seeds"))
    where = f", {noise_text(noise)} of the labels flipped" if noise else ""
    notes = _notes(run, columns) + (_reference_notes(run, reference) if paper else ())
    return Table(f"Results of each method{where}", heads, tuple(rows), notes)


def _over_noise(run: Run, metric: str, reference: Reference | None) -> Table:
    """Rows are methods, columns are noise levels; the paper's numbers follow if it prints any."""
    columns = [_column(run, noise, metric) for noise in run.noises]
    rows = [(Entry(method), *(column[method] for column in columns)) for method in run.methods]
    for method in sorted(reference.means if reference else (), key=method_order):
        rows.append((Entry(f"{method} (paper)"), *(_paper_cell(reference, method, noise) for noise in run.noises)))
    several = f", mean over {len(run.groups)} classes" if len(run.groups) > 1 else f", class {run.groups[0]}"
    classes = "" if run.groups == (None,) else several
    heads = (Column("method", numeric=False), *_noise_columns(run))
    notes = _notes(run, columns) + _reference_notes(run, reference)
    return Table(f"{capital(axis(metric))} by label noise{classes}", heads, tuple(rows), notes)


def _noise_columns(run: Run) -> tuple[Column, ...]:
    return tuple(Column(noise_text(noise) or "none", "share of flipped labels") for noise in run.noises)


def _over_classes(run: Run, metric: str, reference: Reference | None) -> Table:
    """Rows are classes, columns are methods within noise levels, as in Table 1 of the ICML paper."""
    # The paper's rows only if it has one of our classes; otherwise they are about other data.
    paper = reference if reference and reference.classes.keys() & set(run.groups) else None
    rows: list[Row] = []
    for name in (*run.groups, None):
        columns = [_column(run, noise, metric, name, brief=True) for noise in run.noises]
        rows.append((Entry(name or "mean"), *(column[method] for column in columns for method in run.methods)))
        if paper and (name is None or name in paper.classes):
            places = [(method, noise) for noise in run.noises for method in run.methods]
            cells = (_paper_cell(paper, method, noise, name) for method, noise in places)
            rows.append((Entry(f"{name or 'mean'} (paper)"), *cells))
    heads = [Column(method, noise_text(noise)) for noise in run.noises for method in run.methods]
    notes = ("Means over seeds; best of each class and noise level in bold.", *_reference_notes(run, paper))
    notes += (ALIKE_TEXT,) if any(cell.mark == "alike" for row in rows for cell in row) else ()
    return Table(f"{capital(axis(metric))} of each class", (Column("class", numeric=False), *heads), tuple(rows), notes)


def _column(
    run: Run, noise: float | None, metric: str, group: str | None = None, brief: bool = False
) -> dict[str, Entry]:
    """One cell per method, with the best marked; ``brief`` omits the intervals."""
    found = {method: measured(run, method, noise, metric, group) for method in run.methods}
    present = {method: e for method, e in found.items() if e is not None}
    places = 1 if brief else decimals(present.values())
    best = max(present, key=lambda method: present[method].mean, default="")
    cells = dict.fromkeys(run.methods, Entry(NOTHING))
    for method, e in present.items():
        cell = Entry(number(e.mean, places), "" if brief else plus_minus(e, places))
        if e.mean == present[best].mean:
            cell = replace(cell, mark="best" if len(present) > 1 else "")
        elif (gap := difference(run, best, method, metric, noise, group)) and gap.has_zero:
            cell = replace(cell, mark="alike")
        cells[method] = cell
    return cells


def _notes(run: Run, columns: Iterable[dict[str, Entry]]) -> tuple[str, ...]:
    if len(run.seeds) == 1:
        return ("One seed, so there are no intervals.",)
    first = f"Mean over seeds with a two-sided 95 % Student t interval ({len(run.seeds)} seeds); best in bold."
    alike = any(cell.mark == "alike" for column in columns for cell in column.values())
    return (first, ALIKE_TEXT) if alike else (first,)


def difference_table(run: Run, metric: str, first: str) -> Table | None:
    """``first`` minus each other method on the same seeds, at each noise level; None if there is no other method."""
    others = [method for method in run.methods if method != first]
    if first not in run.methods or not others:
        return None
    found = {(other, n): difference(run, first, other, metric, n) for other in others for n in run.noises}
    places = decimals(found.values())
    rows = [(Entry(other), *(_difference_cell(found[other, n], places) for n in run.noises)) for other in others]
    heads = (Column("difference"),) if len(run.noises) == 1 else _noise_columns(run)
    notes = (
        "Mean of the differences on the same seeds, with its 95 % Student t interval in brackets.",
        "Bold: the interval does not contain zero.",
    )
    title = f"Paired differences of {label(metric)} in points"
    return Table(title, (Column(f"{first} minus", numeric=False), *heads), tuple(rows), notes)


def _difference_cell(e: Estimate | None, places: int) -> Entry:
    if e is None:
        return Entry(NOTHING)
    text = number(e.mean, places, signed=True)
    return Entry(text, f"({span(e, places)})", "" if e.has_zero else "clear") if e.has_interval else Entry(text)


# ---------------------------------------------------------------------- the paper's numbers


def _paper_column(run: Run, noise: float | None, reference: Reference | None) -> dict[str, Entry]:
    """The paper's numbers for the methods of a run; empty if it prints none, or prints them per class."""
    if reference is None or reference.classes or (noise or 0.0) not in reference.noises:
        return {}
    return {m: _paper_cell(reference, m, noise or 0.0, places=2) for m in run.methods if m in reference.means}


def _paper_cell(
    reference: Reference | None, method: str, noise: float | None, name: str | None = None, places: int = 1
) -> Entry:
    value = None
    if reference and noise in reference.noises:
        numbers: Numbers = reference.means if name is None else reference.classes[name]
        value = numbers[method][reference.noises.index(noise)] if method in numbers else None
    return Entry(NOTHING if value is None else number(value, places), mark="paper")


def _reference_notes(run: Run, reference: Reference | None) -> tuple[str, ...]:
    if reference is None:
        return ()
    config, seen = run.config, run.info.get("data")
    if not reference.dataset or config.get("dataset") != reference.dataset:
        how = "different data from ours, so compare trends, not values"
    elif isinstance(seen, dict) and seen.get("published") is None:
        doubt = "are not the published ones" if seen.get("checkable") else "could not be checked"
        how = f"the same data, if ours is what its name says: its files {doubt}"
    else:
        how = f"the same data, {'of which we use a part' if config.get('points') else 'with our own splits'}"
    return (f"{reference.title}; {how}.",)


# ---------------------------------------------------------------------- printing


def to_markdown(table: Table) -> str:
    """The table for a README or a documentation page.

    Examples:
        >>> columns = (Column("method", numeric=False), Column("AP"))
        >>> print(to_markdown(Table("T", columns, ((Entry("a"), Entry("1", mark="best")),))))
        **T**
        <BLANKLINE>
        | method | AP |
        | --- | ---: |
        | a | **1** |
    """
    lines = [f"**{plain(table.title)}**", "", f"| {' | '.join(plain(_head(one, ': ')) for one in table.columns)} |"]
    lines.append(f"| {' | '.join('---:' if column.numeric else '---' for column in table.columns)} |")
    lines += [f"| {' | '.join(_markdown_cell(cell) for cell in row)} |" for row in table.rows]
    lines += ["", *(f"{plain(note)}  " for note in table.notes)] if table.notes else []
    return "\n".join(lines)


def _head(column: Column, between: str) -> str:
    # In the table of classes the group is the noise level and must be shown; elsewhere the title says it.
    return f"{column.group}{between}{column.label}" if column.group.endswith("%") else column.label


def _markdown_cell(cell: Entry) -> str:
    text = plain(cell.text)
    text = f"**{text}**" if cell.mark in ("best", "clear") else f"{ALIKE} {text}" if cell.mark == "alike" else text
    return f"{text} {plain(cell.small)}" if cell.small else text


def plain(text: str) -> str:
    """Text escaped for Markdown and HTML."""
    return " ".join(text.split()).translate(_ESCAPES)


_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_rich(table: Table) -> Group:
    """The table for the terminal, with its notes below."""
    # No lines: numbers need the width.
    shown = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in table.columns:
        justify = "right" if column.numeric else "left"
        shown.add_column(Text(_head(column, "\n")), justify=justify, no_wrap=not column.numeric)  # type: ignore[arg-type]
    styles = {"best": "bold green", "clear": "bold", "paper": "dim"}
    for row in table.rows:
        texts = [Text(f"{ALIKE} {c.text}" if c.mark == "alike" else c.text, styles.get(c.mark, "")) for c in row]
        shown.add_row(
            *(text.append(f" {c.small}" if c.small else "", "dim") for text, c in zip(texts, row, strict=True))
        )
    return Group(Text(table.title, "bold"), shown, *(Text(note, "dim") for note in table.notes))
