"""The tables of the studies of defaults, as README and docs show them.

`benchmarks.verdicts` puts them between ``<!-- leads: NAME -->`` and ``<!-- end -->``. A cell is the median (and mean)
lead over cross-entropy in points over the data sets; a mean rank counts the cells that all losses of the table have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median

from directloss_repro.records import Record
from directloss_repro.reports.stats import estimate

from benchmarks.defaults import AT_ZERO, BASE, MODELS, OURS, SECOND
from benchmarks.figures import finals
from benchmarks.study import table

NAMES = {
    OURS: '`DirectLoss("ap")`',
    "direct, likelihood 1": "the same with `likelihood=1`",
    "direct, noise 10": "the same with `noise=10`",
    SECOND: "the second version",
    "smooth-ap 1": "Smooth-AP, temperature 1",
    "smooth-ap 1 + 0.1 x-ent": "Smooth-AP, plus 0.1 cross-entropy",
    "uniloss": "UniLoss",
    "gce": "generalised cross-entropy",
    "focal": "focal loss",
    "hinge": "hinge-AP",
    "pos": "pos-AP, automatic epsilon",
}
OTHERS = {
    ("ap", 200): "AP, 200",
    ("ap", 6000): "AP, 6,000",
    ("ndcg@10", 600): "NDCG@10, 600",
    ("precision@20", 600): "precision@20, 600",
    ("f1", 600): "F1, 600; cross-entropy at the best validation threshold",
    ("accuracy", 600): "accuracy, 600",
}
Place = tuple[str, str, float]
"""Data set, model, share of wrong labels."""
Values = dict[Place, dict[str, float]]
"""Test metric of each loss in points, mean over seeds."""
WORDS = {"linear": "linear", "mlp": "network"}


def values(records: Iterable[Record], metric: str, steps: int) -> Values:
    """All cells of a metric and a length."""
    found: Values = {}
    for record in records:
        data, model, *judged = str(record.group).split(" / ")
        if judged == [metric, str(steps)]:
            found.setdefault((data, model, record.noise or 0.0), {})[record.method] = 100 * record.metrics["test"]
    return found


def lead(found: Values, method: str, model: str, noises: Sequence[float], base: str = BASE) -> str:
    """Median (mean) lead over cross-entropy."""
    leads = [
        cell[method] - cell[base]
        for (_, its_model, noise), cell in found.items()
        if its_model == model and noise in noises and method in cell and base in cell
    ]
    return f"{median(leads):+.1f} ({mean(leads):+.1f})" if leads else "-"


def places(found: Values) -> dict[tuple[str, float], str]:
    """The models and shares of wrong labels of these cells, with their heads."""
    noises = sorted({noise for *_, noise in found})
    return {(model, n): f"{WORDS[model]}, {f'{n:.0%} wrong' if n else 'clean'}" for model in MODELS for n in noises}


def of_losses(results: str, steps: str = "600") -> str:
    """AP after some steps, all losses."""
    found = {place: cell for place, cell in values(finals(results), "ap", int(steps)).items() if BASE in cell}
    methods = [method for method in NAMES if any(method in cell for cell in found.values())]
    whole = [cell for cell in found.values() if {*methods, BASE} <= set(cell)]

    def rank(method: str) -> str:
        ranks = [1 + sum(cell[other] > cell[method] for other in (*methods, BASE)) for cell in whole]
        return f"{mean(ranks):.1f}" if ranks else "-"

    rows = [
        [NAMES[method], *(lead(found, method, model, [noise]) for model, noise in places(found)), rank(method)]
        for method in methods
    ]
    rows.append(["cross-entropy", *["0"] * len(places(found)), rank(BASE)])
    return table([f"loss, {_sets(found)} data sets", *places(found).values(), "mean rank"], rows)


def of_metrics(results: str) -> str:
    """The default's lead for other lengths and metrics."""
    records, rows = finals(results), []
    others = {name: values(records, *place) for place, name in OTHERS.items()}
    heads = places({place: {} for found in others.values() for place, cell in found.items() if OURS in cell})
    for name, found in others.items():
        for base, added in ((BASE, ""), (AT_ZERO, " at threshold 0")):
            if any(base in cell and OURS in cell for cell in found.values()):
                label = f"{name.split(';')[0]}; cross-entropy{added}" if added else name
                cells = [lead(found, OURS, model, [noise], base) for model, noise in heads]
                rows.append([f"{label} ({_sets(found)})", *cells])
    return table(["metric, steps (data sets)", *heads.values()], rows)


def in_short(results: str) -> str:
    """README's table, and in how many cells the seeds are sure."""
    records = finals(results)
    found = values(records, "ap", 600)
    rows = [
        [words, *(lead(found, OURS, model, [noise]) for model in MODELS)]
        for noise, words in ((0.4, "40 % wrong labels"), (0.2, "20 % wrong labels"), (0.0, "clean labels"))
    ]
    shown = table(["lead over cross-entropy in points of test AP, median (mean)", "linear model", "network"], rows)
    low, high = _bounds([record for record in records if str(record.group).endswith(" / ap / 600")])
    ahead, behind = sum(x > 0 for x in low), sum(x < 0 for x in high)
    sure = f"Of {len(low)} cells (data set, model, clean or wrong labels) the default is surely ahead in {ahead}"
    return f"{shown}\n\n{sure}\nand surely behind in {behind} (95 % intervals of the difference on the same seeds)."


def _bounds(records: list[Record]) -> tuple[list[float], list[float]]:
    """The ends of the intervals of the default's lead, one per cell."""
    ours, base = (
        {
            (one.group, one.noise): [one.metrics[f"test {seed}"] for seed in range(len(one.metrics) - 1)]
            for one in chosen
        }
        for chosen in ([r for r in records if r.method == method] for method in (OURS, BASE))
    )
    leads = [estimate([a - b for a, b in zip(ours[cell], base[cell], strict=True)]) for cell in ours if cell in base]
    return [one.low for one in leads], [one.high for one in leads]


TABLES: dict[str, Callable[..., str]] = {"short": in_short, "losses": of_losses, "metrics": of_metrics}


def _sets(found: Values) -> int:
    return len({data for data, *_ in found})


def block(words: str) -> str:
    """The table of ``"TABLE STUDY [STEPS]"``, such as ``"losses defaults 200"``."""
    name, *study = words.split()
    return TABLES[name](*study) + "\n"
