"""Names of tasks: ``"ap"`` is `AveragePrecision()`, ``"ndcg@10"`` is `NDCG(10)`."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from directloss._checks import DirectLossError, fail, near
from directloss.task import METHODS, ForeignTask, Task

Factory = Callable[..., Task]


class Measured(NamedTuple):
    """The metric of a task, as a function of scores and target, and the meaning of a number after the @."""

    metric: Callable[..., Any]
    number: str = ""
    """The argument that receives the number; empty if the name takes none."""
    event_dims: int = 1
    """How many trailing dimensions of the scores one call reduces."""
    other: Callable[..., Any] | None = None
    """The function to use with a number, if different."""

    def function(self, value: float | None) -> Callable[..., Any]:
        """The metric as a function of scores and target only, with the number after the @ bound if given."""
        return self.metric if value is None else partial(self.other or self.metric, **{self.number: value})


class Entry(NamedTuple):
    """A registered name."""

    factory: Factory
    summary: str
    measured: Measured | None


_entries: dict[str, Entry] = {}
_meant: dict[str, str] = {}


def register(
    name: str, factory: Factory, summary: str, also: Iterable[str] = (), measured: Measured | None = None
) -> None:
    """Register a task under a name. ``"name@x"`` calls ``factory(x)``, plain ``"name"`` calls ``factory()``.

    ``also`` lists words that users may try instead, for which the error message suggests the name. With ``measured``,
    `UniLoss` accepts the name as well.
    """
    if not re.fullmatch(r"[a-z0-9_]+", str(name)) or str(name) != name:
        fail("name", "must consist of lowercase letters, digits and _", repr(name))
    if not callable(factory):
        fail("factory", "must be a class, or a function that returns a task", f"a {type(factory).__name__}")
    if name in _entries and _origin(_entries[name].factory) != _origin(factory):
        origin = ".".join(_origin(_entries[name].factory))
        fail("name", "must not be taken", f"{name!r}, which is {origin}", "Choose another name.")
    _entries[name] = Entry(factory, summary, measured)
    _meant.update(dict.fromkeys((name, *also), name))


def _origin(factory: Factory) -> tuple[str, str]:
    """Module and qualified name of a factory; unchanged when a notebook cell runs again."""
    return getattr(factory, "__module__", ""), getattr(factory, "__qualname__", repr(factory))


def _registered() -> dict[str, Entry]:
    """All entries; imports the library's own tasks, which register themselves."""
    if "directloss.tasks" not in sys.modules:
        importlib.import_module("directloss.tasks")
    return _entries


def names() -> list[str]:
    """Every registered name, in alphabetical order."""
    return sorted(_registered())


def summaries() -> dict[str, str]:
    """Each registered name with its one-line summary."""
    return {name: _entries[name].summary for name in names()}


def measured() -> dict[str, Measured]:
    """The names that have a metric of scores and target, with that metric."""
    return {name: entry.measured for name, entry in _registered().items() if entry.measured is not None}


def meant(word: str) -> str | None:
    """The registered name for a word that users may try; None if unknown."""
    return _meant.get(word.strip().lower().replace(" ", "_").replace("-", "_"))


def split_name(argument: str, name: str) -> tuple[str, int | float | None]:
    """``"ndcg@10"`` as ``("ndcg", 10)``, ``"recall@1%"`` as ``("recall", 0.01)``, ``"ndcg"`` as ``("ndcg", None)``."""
    base, at, number = name.strip().lower().partition("@")
    if at and not re.fullmatch(r"\d+(\.\d+)?%?", number):
        fail(argument, "must have a number after '@'", repr(name), f"For example {base + '@10'!r}.")
    if number.endswith("%"):
        return base, float(number[:-1]) / 100
    return base, None if not at else float(number) if "." in number else int(number)


def get(name: str, argument: str = "task") -> Task:
    """The task of a name such as ``"ap"``, ``"ndcg@10"`` or ``"fbeta@2"``; errors call it ``argument``."""
    base = name.strip().lower().partition("@")[0]
    if base not in _registered():
        hint = near(base.replace(" ", "_").replace("-", "_"), _meant) or f"Known: {', '.join(names())}."
        words = base.replace(" ", "_").replace("-", "_").split("_")
        for average, of in ((words[-1], "_".join(words[:-1])), (words[0], "_".join(words[1:]))):
            if of in _registered() and average in ("macro", "micro", "weighted", "samples"):
                hint = f'For averages use directloss.AveragedLoss("{of}", average="{average}").'
        classes = importlib.import_module("directloss.tasks").__all__
        for own in (own for own in classes if own.lower() == "".join(words) and meant(base) is None):
            hint = f"Create it: directloss.tasks.{own}(...)."
        fail(argument, "must be a known name, or a task object", repr(name), hint)
    _, number = split_name(argument, name)
    factory, given = _entries[base].factory, () if number is None else (number,)
    try:
        return as_task(factory(*given))
    except DirectLossError as error:
        if not name.rstrip().endswith("%"):
            raise
        rule = f"must have a number after '@' that {base!r} can take"
        fail(argument, rule, repr(name), f"{str(error).split(', but')[0]}. Shares are for precision@1% and recall@1%.")
    except TypeError:
        try:  # inspecting the signature only now, because it takes longer than making the task
            inspect.signature(factory).bind(*given)
        except TypeError:
            rule = f"takes no number: {base!r} stands alone" if given else f"needs a number, such as {base + '@5'!r}"
            fail(argument, rule, repr(name))
        raise


def as_task(task: object, argument: str = "task") -> Task:
    """A task from a name, a `Task`, any object with the five methods, or a function of scores and target."""
    if isinstance(task, Task):
        return task
    if isinstance(task, str):
        return get(task, argument)
    missing = [method for method in METHODS if not callable(getattr(task, method, None))]
    if missing or isinstance(task, type):
        what = f"the class {task.__name__}" if isinstance(task, type) else f"a {type(task).__name__}"
        hint = "Create an instance first." if isinstance(task, type) else f"It lacks {', '.join(missing)}."
        if callable(task) and not isinstance(task, type) and len(missing) == len(METHODS):
            function: Task = importlib.import_module("directloss.tasks.functions").MetricFunction(task)
            return function
        fail(argument, "must be a name or an object with the methods " + ", ".join(METHODS), what, hint)
    return ForeignTask(task)
