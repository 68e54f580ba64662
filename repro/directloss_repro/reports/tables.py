"""Tables as data: built once from records, printed as HTML, Markdown and in the terminal.

In each column the best mean is bold. Methods whose paired difference to the best has an interval that contains zero
carry ``≈``: these seeds cannot tell them from the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from directloss_repro.reports.compared import BOOTSTRAP_TEXT, stored_comparisons
from directloss_repro.reports.description import Description, Reference
from directloss_repro.reports.samples import measured, paired_at
from directloss_repro.reports.stats import METHOD_TEXT, Estimate, estimate
from directloss_repro.reports.stored import Run, method_order
from directloss_repro.reports.wording import Metric, capital, decimals, interval_text, noise_text, number, span

ALIKE = "≈"
ALIKE_TEXT = (
    "≈: these seeds cannot tell it from the best "
    "(the interval of the paired difference contains zero; no correction for many comparisons)."
)
NOTHING = "–"  # noqa: RUF001
"""What stands where there is no number."""


@dataclass(frozen=True)
class Cell:
    """One cell: its text, what stands small behind it, and a mark ("best", "alike", "clear", "paper" or "")."""

    text: str
    small: str = ""
    mark: str = ""
    heading: bool = False


@dataclass(frozen=True)
class Column:
    """A column and the group it stands under ("" for none)."""

    label: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table with a title and notes below; the first cell of each row is its heading."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """The row of group headings as (label, number of columns); empty when no column has a group."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and column.group and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return tuple(spans) if any(label for label, _ in spans) else ()


def result_tables(run: Run, description: Description, metrics: Sequence[Metric]) -> list[Table]:
    """The tables of an experiment: over methods, over noise levels, over classes, whatever the records hold."""
    classes = _over_classes(run, metrics[:1], description.reference)
    if len(run.noises) == 1:
        return [_over_metrics(run, metrics, description.reference), *classes]
    over_noise = [_over_noise(run, one, description if one.key == "test_ap" else None) for one in metrics]
    return [*over_noise, *classes]


def _over_metrics(run: Run, metrics: Sequence[Metric], reference: Reference | None) -> Table:
    """Rows are methods, columns are metrics; the paper's numbers stand beside the first one."""
    noise = run.noises[0]
    paper = _paper_column(run, noise, reference)
    columns = [_column(run, noise, metric) for metric in metrics]
    ranked = sorted(run.methods, key=lambda method: _rank(run, method, noise, metrics[0]))
    counts = not stored_comparisons(run)  # such a run has one training of each method
    rows = [
        (
            Cell(method, heading=True),
            columns[0][method],
            *([paper.get(method, Cell(NOTHING))] if paper else []),
            *(column[method] for column in columns[1:]),
            *([Cell(str(_seeds(run, method, metrics[0])))] if counts else []),
        )
        for method in ranked
    ]
    first, *others = (Column(metric.axis) for metric in metrics)
    heads = (Column("method", numeric=False), first, *([Column("paper")] if paper else []), *others)
    heads += (Column("seeds"),) if counts else ()
    where = f", {noise_text(noise)} of the labels flipped" if noise else ""
    notes = _notes(run, columns) + ((_reference_note(run, reference),) if paper and reference else ())
    return Table(f"Results of each method{where}", heads, tuple(rows), notes)


def _paper_column(run: Run, noise: float | None, reference: Reference | None) -> dict[str, Cell]:
    """What the paper prints for the methods of a run, with both of its decimals; empty where it prints none."""
    if reference is None or reference.classes or (noise or 0.0) not in reference.noises:
        return {}
    at = reference.noises.index(noise or 0.0)
    found = {method: reference.means[method][at] for method in run.methods if method in reference.means}
    return {m: Cell(number(100 * value, 2), mark="paper") for m, value in found.items() if value is not None}


def _rank(run: Run, method: str, noise: float | None, metric: Metric) -> float:
    e = measured(run, method, noise, metric.key)
    if e is None:
        return float("inf")
    return e.mean if metric.lower_is_better else -e.mean


def _seeds(run: Run, method: str, metric: Metric) -> int:
    found = [measured(run, method, noise, metric.key) for noise in run.noises]
    return max((e.n for e in found if e), default=0)


def _over_noise(run: Run, metric: Metric, description: Description | None) -> Table:
    """Rows are methods, columns are noise levels; the paper's numbers follow where it prints some."""
    columns = [_column(run, noise, metric) for noise in run.noises]
    rows = [(Cell(method, heading=True), *(column[method] for column in columns)) for method in run.methods]
    rows += _reference_rows(run, description)
    heads = [Column("method", numeric=False)]
    heads += [Column(noise_text(noise) or "none", "share of flipped labels") for noise in run.noises]
    classes = f", mean over {len(run.groups)} classes" if len(run.groups) > 1 else f", class {run.groups[0]}"
    classes = "" if run.groups == (None,) else classes
    notes = _notes(run, columns)
    if description and description.reference:
        notes += (_reference_note(run, description.reference),)
    return Table(f"{capital(metric.axis)} by label noise{classes}", tuple(heads), tuple(rows), notes)


def _reference_rows(run: Run, description: Description | None) -> list[tuple[Cell, ...]]:
    reference = description.reference if description else None
    if reference is None:
        return []
    at = {noise: place for place, noise in enumerate(reference.noises)}
    return [
        (
            Cell(f"{method} (paper)", heading=True),
            *(_paper_cell(means[at[n]] if n in at else None) for n in run.noises),
        )
        for method, means in sorted(reference.means.items(), key=lambda pair: method_order(pair[0]))
    ]


def _paper_cell(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else number(100 * value, 1), mark="paper")


def _reference_note(run: Run, reference: Reference) -> str:
    config = run.info.get("config")
    settings = config if isinstance(config, dict) else {}
    seen = run.info.get("data")
    if not reference.dataset or settings.get("dataset") != reference.dataset:
        how = "other data than ours, so compare the course, not the height"
    elif isinstance(seen, dict) and seen.get("published") is None:
        doubt = "are not those that were published" if seen.get("checkable") else "could not be checked"
        how = f"the same data, if ours is what its name says: its files {doubt}"
    else:
        how = (
            "the same data, of which we take a part" if settings.get("points") else "the same data, in parts of our own"
        )
    return f"{reference.title}; {how}."


def _paper_row(run: Run, reference: Reference, name: str | None) -> list[tuple[Cell, ...]]:
    """The paper's numbers for one class, or its means, under ours."""
    found = reference.means if name is None else reference.classes.get(name)
    if found is None:
        return []
    at = {noise: place for place, noise in enumerate(reference.noises)}
    cells = [
        _paper_cell(found[method][at[noise]] if method in found and noise in at else None)
        for noise in run.noises
        for method in run.methods
    ]
    return [(Cell(f"{name or 'mean'} (paper)", heading=True), *cells)]


def _over_classes(run: Run, metrics: Sequence[Metric], reference: Reference | None = None) -> list[Table]:
    """Rows are classes, columns are methods within noise levels: the form of Table 1 of the ICML paper."""
    if run.groups == (None,):
        return []
    tables = []
    for metric in metrics:
        heads = [Column("class", numeric=False)]
        columns: list[dict[str | None, Cell]] = []
        for noise in run.noises:
            heads += [Column(method, noise_text(noise)) for method in run.methods]
            by_class = [_column(run, noise, metric, group, brief=True) for group in run.groups]
            mean = _column(run, noise, metric, brief=True)
            for method in run.methods:
                cells: dict[str | None, Cell] = {g: c[method] for g, c in zip(run.groups, by_class, strict=True)}
                columns.append({**cells, None: mean[method]})
        # Beside ours where the paper prints classes and one of them is here; elsewhere it would be other data.
        paper = reference if reference and reference.classes.keys() & set(run.groups) else None
        rows = []
        for name in (*run.groups, None):
            rows.append((Cell(name or "mean", heading=True), *(column[name] for column in columns)))
            rows += _paper_row(run, paper, name) if paper and metric.key == "test_ap" else []
        notes: tuple[str, ...] = ("Means over seeds; best of each class and noise level in bold.",)
        notes += (_reference_note(run, paper),) if paper else ()
        if any(cell.mark == "alike" for row in rows for cell in row):
            notes += (ALIKE_TEXT,)
        tables.append(Table(f"{capital(metric.axis)} of each class", tuple(heads), tuple(rows), notes))
    return tables


def _column(
    run: Run, noise: float | None, metric: Metric, group: str | None = None, brief: bool = False
) -> dict[str, Cell]:
    """One cell for each method, with the best marked."""
    found = {method: measured(run, method, noise, metric.key, group) for method in run.methods}
    scaled = {method: e.scaled(metric.factor) if e else None for method, e in found.items()}
    places = metric.places if brief else decimals(scaled.values(), metric.places)
    present = {method: e for method, e in scaled.items() if e is not None}
    if not present:
        return {method: Cell(NOTHING) for method in run.methods}
    pick = min if metric.lower_is_better else max
    best = pick(present, key=lambda method: present[method].mean)
    cells = {}
    for method, e in scaled.items():
        cell = _cell(e, places, brief)
        if e is not None and e.mean == present[best].mean and len(present) > 1:
            cell = replace(cell, mark="best")
        elif e is not None and _alike(run, best, method, metric, noise, group):
            cell = replace(cell, mark="alike")
        cells[method] = cell
    return cells


def _alike(run: Run, best: str, method: str, metric: Metric, noise: float | None, group: str | None) -> bool:
    gaps = paired_at(run, best, method, metric.key, noise, group)
    if len(gaps) < 2 or method == best:
        return False
    e = estimate(gaps)
    return e.low is not None and e.high is not None and e.low <= 0 <= e.high


def _cell(e: Estimate | None, places: int, brief: bool) -> Cell:
    if e is None:
        return Cell(NOTHING)
    return Cell(number(e.mean, places), "" if brief else interval_text(e, places))


def _notes(run: Run, columns: Iterable[dict[str, Cell]]) -> tuple[str, ...]:
    cells = [cell for column in columns for cell in column.values()]
    if stored_comparisons(run):
        return (BOOTSTRAP_TEXT, "Best in bold.")
    if len(run.seeds) == 1:
        own = any(cell.small for cell in cells)
        return ("One seed; the intervals were stored by the run." if own else "One seed, so there are no intervals.",)
    first = f"{METHOD_TEXT[0].upper()}{METHOD_TEXT[1:]} ({len(run.seeds)} seeds); best in bold."
    return (first, ALIKE_TEXT) if any(cell.mark == "alike" for cell in cells) else (first,)


def difference_table(run: Run, metric: Metric, first: str) -> Table | None:
    """``first`` minus each other method on the same seeds, at each noise level; None without another method."""
    others = [method for method in run.methods if method != first]
    if first not in run.methods or not others:
        return None
    found = {(o, n): _difference(run, first, o, metric, n) for o in others for n in run.noises}
    places = decimals(found.values(), metric.places)
    rows = [
        (Cell(other, heading=True), *(_difference_cell(found[other, n], places) for n in run.noises))
        for other in others
    ]
    single = len(run.noises) == 1
    heads = [Column(f"{first} minus", numeric=False)]
    heads += [
        Column("difference" if single else noise_text(n) or "none", "" if single else "share of flipped labels")
        for n in run.noises
    ]
    unit = " in points" if metric.factor == 100 else ""
    own = stored_comparisons(run)
    kind = "Mean of the differences on the same seeds, with its 95 % Student t interval in brackets."
    notes = (BOOTSTRAP_TEXT if own else kind, "Bold: the interval does not contain zero.")
    return Table(f"Paired differences of {metric.label}{unit}", tuple(heads), tuple(rows), notes)


def _difference(run: Run, first: str, second: str, metric: Metric, noise: float | None) -> Estimate | None:
    for own in stored_comparisons(run):
        if (own.first, own.second, own.metric) == (first, second, metric.key):
            return own.difference.scaled(metric.factor)
    gaps = paired_at(run, first, second, metric.key, noise)
    return estimate(gaps).scaled(metric.factor) if gaps else None


def _difference_cell(e: Estimate | None, places: int) -> Cell:
    if e is None:
        return Cell(NOTHING)
    text = number(e.mean, places, signed=True)
    if e.low is None or e.high is None:
        return Cell(text)
    clear = e.low > 0 or e.high < 0
    return Cell(text, f"({span(e, places, signed=True)})", "clear" if clear else "")
