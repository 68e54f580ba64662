"""How complete a run is, and which hyper-parameters were chosen: what a reader must know before trusting a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, TypeGuard

from directloss_repro.reports.compared import stored_comparisons
from directloss_repro.reports.samples import without_value
from directloss_repro.reports.stored import RUN, Record, Run, group_order, method_order
from directloss_repro.reports.tables import NOTHING, Cell, Column, Table
from directloss_repro.reports.wording import Metric, duration, noise_text, value_text

SHOWN = 3
"""How many of the files that were left out a report names."""
EDGE = "edge"
EDGE_TEXT = "edge: the smallest or largest value that was tried; a wider search might do better."


def notices(run: Run, metric: Metric | None) -> list[str]:
    """Sentences about everything that is not as it should be; empty for a complete run."""
    found = list(run.notes)
    if run.info and not run.info.get("finished"):
        found.append("This run has not finished. The numbers below are those of the runs that have.")
    if not run.final:
        return [*found, "No final run is stored yet, so there is nothing to compare."]
    found += _told(run)
    found += _missing(run)
    if len(run.seeds) == 1 and not stored_comparisons(run):
        found.append("There is one seed only, so nothing can be said about chance: claims stay undecided.")
    if len(run.methods) == 1:
        found.append(f"There is one method only ({run.methods[0]}), so there is nothing to compare it with.")
    stopped = Counter(record.method for record in run.final if record.diverged)
    if stopped:
        listed = ", ".join(f"{method} {count}" for method, count in sorted(stopped.items()))
        found.append(
            f"Final runs in which training diverged and stopped early, counted as they were measured: {listed}."
        )
    if metric is not None:
        lost = Counter(record.method for record in without_value(run, metric.key))
        if lost:
            listed = ", ".join(f"{method} {count}" for method, count in sorted(lost.items()))
            found.append(f"Final runs without a finite {metric.label}, which are left out: {listed}.")
    return found


def _told(run: Run) -> list[str]:
    """What the run itself said: notes, classes and files that could not be used."""
    found = [f"This class could not be used: {name}." for name in _words(run.info.get("left_out"))]
    skipped = _words(run.info.get("skipped"))
    if skipped:
        more = f" {RUN} lists all {len(skipped)}." if len(skipped) > SHOWN else ""
        found.append("Left out or repaired: " + " ".join(skipped[:SHOWN]) + more)
    return [*_words(run.info.get("notes")), *found]


def _missing(run: Run) -> list[str]:
    """Which final runs are not there, judged by the settings if they list them and else by what the others have."""
    config = run.info.get("config")
    plan = config if isinstance(config, dict) else {}
    methods = sorted({*run.methods, *_words(plan.get("methods"))}, key=method_order)
    wanted = set(product(methods, _seeds(run, plan), _noises(run, plan), _groups(run, plan)))
    missing = wanted - {record.place for record in run.final}
    if not missing:
        return []
    count = Counter(place[0] for place in missing)
    listed = ", ".join(f"{method} {count[method]}" for method in methods if count[method])
    return [
        f"{len(missing)} of {len(wanted)} final runs are missing ({listed}). Intervals use the seeds that are there."
    ]


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _seeds(run: Run, plan: Mapping[str, Any]) -> Iterable[int]:
    seeds = plan.get("seeds")
    if isinstance(seeds, list):
        return {*run.seeds, *(seed for seed in seeds if isinstance(seed, int))}
    if isinstance(seeds, int) and seeds > len(run.seeds) and set(run.seeds) <= set(range(seeds)):
        return range(seeds)
    return run.seeds


def _noises(run: Run, plan: Mapping[str, Any]) -> Iterable[float | None]:
    listed = plan.get("noise", plan.get("noises"))
    numbers = (
        {float(noise) for noise in listed if isinstance(noise, int | float)} if isinstance(listed, list) else set()
    )
    return {*run.noises, *numbers}


def _groups(run: Run, plan: Mapping[str, Any]) -> Iterable[str | None]:
    # A run with classes has no runs without one, so the plan can only add to it.
    planned = set(_words(plan.get("classes")) if run.groups != (None,) else ()) - set(_words(run.info.get("left_out")))
    return sorted({*run.groups, *planned}, key=group_order)


def chosen_table(run: Run) -> Table | None:
    """The hyper-parameters of the final runs, how many trials chose them, and which lie at the edge of the search."""
    names = sorted({name for record in run.final for name in record.params})
    if not names:
        return None
    several = len(run.noises) > 1
    rows = [row for method in run.methods for row in _chosen_rows(run, method, names, several)]
    heads = [Column("method", numeric=False)]
    heads += [Column("flipped labels", numeric=False)] if several else []
    heads += [Column(name) for name in names] + [Column("trials"), Column("time of all runs")]
    edge = any(cell.small == EDGE for row in rows for cell in row)
    trials = "Trials at each noise level" if several else "Trials: how many settings were tried"
    differ = "; where classes chose different values, each is given with its count" if len(run.groups) > 1 else ""
    notes = (f"{trials}{differ}.",)
    return Table("Chosen hyper-parameters", tuple(heads), tuple(rows), (*notes, EDGE_TEXT) if edge else notes)


def _chosen_rows(run: Run, method: str, names: list[str], several: bool) -> list[tuple[Cell, ...]]:
    """A row for each set of noise levels that chose the same values."""
    grid = not stored_comparisons(run)  # values drawn from a range have no edge: one of them is always the largest
    rows: dict[tuple[Cell, ...], list[float | None]] = {}
    spent: Counter[tuple[Cell, ...]] = Counter()
    for noise in run.noises:
        final, search = (
            [r for r in part if (r.method, r.noise) == (method, noise)] for part in (run.final, run.search)
        )
        if final:
            tried = search if grid else []
            cells = (*(_chosen(name, final, tried) for name in names), Cell(str(len(search)) if search else NOTHING))
            rows.setdefault(cells, []).append(noise)
            spent[cells] += round(sum(record.seconds for record in final + search))
    return [
        (
            Cell(method, heading=True),
            *([Cell("all" if len(noises) == len(run.noises) else _listed(noises))] if several else []),
            *cells,
            Cell(duration(spent[cells])),
        )
        for cells, noises in rows.items()
    ]


def _listed(noises: list[float | None]) -> str:
    return ", ".join(noise_text(noise).removesuffix(" %") or "none" for noise in noises) + " %"


def _chosen(name: str, final: list[Record], search: list[Record]) -> Cell:
    values = Counter(value_text(record.params[name]) for record in final if name in record.params)
    if not values:
        return Cell(NOTHING)
    if len(values) > 1:
        return Cell(", ".join(f"{value} ({count}×)" for value, count in values.most_common()))  # noqa: RUF001
    tried: set[float] = {value for record in search if _is_number(value := record.params.get(name))}
    value = next(record.params[name] for record in final if name in record.params)
    # Zero is an end of its own (no weight decay), not a place where the search stopped too early.
    at_edge = len(tried) > 2 and _is_number(value) and value != 0 and value in (min(tried), max(tried))
    return Cell(value_text(value), EDGE if at_edge else "")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def versions(run: Run) -> dict[str, str]:
    """Every version and commit that took part; more than one is worth knowing."""
    found: dict[str, set[str]] = {}
    for record in (*run.search, *run.final):
        for name, version in record.versions.items():
            found.setdefault(name, set()).add(version)
        if record.commit:
            found.setdefault("commit", set()).add(record.commit)
    return {name: ", ".join(sorted(values)) for name, values in sorted(found.items())}
