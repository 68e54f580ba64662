"""Imports point one way. The table says which room may look into which; anything else is a breach."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import directloss

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "directloss"
REPRO = ROOT / "repro" / "directloss_repro"

# room -> the rooms of the package that it may import from (its own room is always allowed)
MAY_IMPORT: dict[str, set[str]] = {
    "_errors": set(),
    "_checks": {"_errors"},
    "_dynamo": set(),
    "answers": {"_checks"},
    "_gradient": {"_checks", "_dynamo"},
    "kernels": {"_checks", "_dynamo"},
    "metrics": {"_checks", "kernels"},
    "noise": {"_checks", "_dynamo"},
    "moves": {"_checks", "kernels", "metrics"},
    "task": {"_checks", "noise"},
    "_registry": {"_checks", "task"},
    "_problem": {"_checks", "_registry", "task", "tasks"},
    "_loss": {"_checks", "_dynamo", "_gradient", "_problem", "_registry", "distributed", "task"},
    "epsilon": {"_checks", "_gradient", "_problem"},
    "theorem": {"_checks", "_gradient", "_problem", "epsilon", "noise", "task"},
    "direct": {
        "_checks", "_dynamo", "_gradient", "_loss", "_problem", "distributed", "noise", "task", "theorem",
    },
    "surrogates": {"_checks", "_loss", "_problem", "distributed", "epsilon", "task"},
    "tasks": {"_checks", "_dynamo", "_registry", "kernels", "metrics", "moves", "noise", "task"},
    "_uniloss": {
        "_checks", "_dynamo", "_gradient", "_loss", "_problem", "_registry", "distributed", "kernels", "metrics",
    },
    "relaxation": {"_uniloss"},
    "distributed": {"_checks", "_dynamo", "_gradient"},
    "full_batch": {"_checks"},
    "memory": {"_checks", "_dynamo", "_gradient"},
    "doctor": {"__init__", "kernels"},
    "averaging": {"_checks", "_dynamo", "_loss", "direct", "distributed", "task", "tasks"},
    "retrieval": {"_checks", "_dynamo", "_loss", "_registry", "direct", "distributed", "memory", "task"},
}  # fmt: skip
LIBRARY = set(MAY_IMPORT)
MAY_IMPORT["__init__"] = LIBRARY | {"plot", "tabular"}  # plot and tabular (directloss.load) when they are used
MAY_IMPORT["integrations"] = LIBRARY | {"__init__"}
MAY_IMPORT["plot"] = LIBRARY | {"integrations"}
MAY_IMPORT["tabular"] = LIBRARY | {"__init__", "integrations", "plot"}
MAY_IMPORT["cli"] = LIBRARY | {"__init__", "integrations", "tabular"}
MAY_IMPORT["__main__"] = {"__init__", "cli", "doctor"}

# What the library itself may need; everything else belongs to rooms that are extras.
PACKAGES = {"numba", "numpy", "scipy", "torch"}
WITH_EXTRAS = {"cli", "integrations", "plot", "tabular"}

# The same for the papers, which may use the whole library.
REPRO_MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "seeding": set(),
    "files": set(),
    "fields": set(),
    "executors": set(),
    "models": set(),
    "folder": {"files"},
    "checkpoint": {"files"},
    "records": {"__init__", "fields", "files", "folder"},
    "data": {"files", "seeding"},
    "detection": {"data", "files", "seeding"},
    "evaluation": {"data"},
    "training": {"checkpoint", "data", "seeding"},
    "ablations": set(),
    "methods": {"__init__", "ablations", "data"},
    "config": {"fields", "files", "methods", "records", "seeding"},
    "campaign": {"executors", "records", "seeding"},
    "reports": {"fields", "files", "folder", "records"},
    "progress": {"campaign", "records", "reports"},
    "experiments": {
        "__init__", "config", "data", "detection", "fields", "files", "methods", "models", "records", "reports",
        "seeding",
    },
    "runner": {
        "campaign", "checkpoint", "config", "data", "evaluation", "experiments", "methods", "records", "seeding",
        "training",
    },
    "reproduce": {
        "campaign", "config", "executors", "experiments", "files", "folder", "progress", "records", "runner",
    },
    "cli": {"__init__", "experiments", "methods", "records", "reports", "reproduce"},
}  # fmt: skip

# Reports are drawn from stored records alone, and an experiment declares: it has no training loop and no loss.
NEVER = {"reports": ("directloss.direct", "directloss.surrogates", "torch"),
         "experiments": ("directloss.direct", "directloss.surrogates", "torch.optim")}  # fmt: skip


def imported(path: Path, source: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def room_of(name: str) -> str:
    """``directloss.tasks.ranking`` lies in the room ``tasks``; a name of the package itself in ``__init__``."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "__init__"


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def breaches(path: Path, source: str) -> list[str]:
    module = module_name(path)
    within_library = path.is_relative_to(SOURCE)
    rule = library_rule(module) if within_library else repro_rule(module)
    return [f"{module}:{line}: {why}" for line, name in imported(path, source, module) if (why := rule(name))]


def library_rule(module: str) -> Callable[[str], str | None]:
    room = room_of(module)

    def broken(name: str) -> str | None:
        top = name.split(".")[0]
        if top == "directloss":
            target = room_of(name)
            return None if target == room or target in MAY_IMPORT[room] else f"{room} must not import {name}"
        if top == "directloss_repro":
            return "the library must not know the papers"
        needed = room not in WITH_EXTRAS and top not in PACKAGES | sys.stdlib_module_names
        return f"the library must not need {top}" if needed else None

    return broken


def repro_rule(module: str) -> Callable[[str], str | None]:
    room = repro_room_of(module)

    def broken(name: str) -> str | None:
        if name.split(".")[0] == "directloss_repro":
            target = repro_room_of(name)
            return None if target == room or target in REPRO_MAY_IMPORT[room] else f"{room} must not import {name}"
        return f"{room} must not import {name}" if any(is_within(name, part) for part in NEVER.get(room, ())) else None

    return broken


def repro_room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in REPRO_MAY_IMPORT else "__init__"


def module_name(path: Path) -> str:
    package = SOURCE if path.is_relative_to(SOURCE) else REPRO
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_uniloss_is_a_function_and_nothing_else() -> None:
    assert not isinstance(directloss.uniloss, ModuleType)
    assert importlib.util.find_spec("directloss.uniloss") is None


@pytest.mark.parametrize(("package", "table"), [(SOURCE, MAY_IMPORT), (REPRO, REPRO_MAY_IMPORT)])
def test_every_room_is_in_the_table(package: Path, table: dict[str, set[str]]) -> None:
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms == set(table), "decide what a new room may import, and forget those that are gone"


def test_imports_point_one_way() -> None:
    files = [*SOURCE.rglob("*.py"), *REPRO.rglob("*.py")]
    found = [line for path in files for line in breaches(path, path.read_text())]
    assert not found, "\n".join(found)


def test_the_test_sees_a_breach() -> None:
    engine, task, init = SOURCE / "direct.py", SOURCE / "tasks" / "made_up.py", SOURCE / "tasks" / "__init__.py"
    for path, source in [
        (engine, "from directloss.tasks.ranking import AveragePrecision"),
        (engine, "from directloss import tasks"),
        (engine, "def f():\n    import directloss_repro"),
        (engine, "import pandas"),
        (engine, "from .tasks import names"),
        (task, "from directloss.direct import direct_loss"),
        (task, "from ..direct import direct_loss"),
        (SOURCE / "_uniloss" / "made_up.py", "from directloss.direct import DirectLoss"),
        (task, "from .. import _uniloss"),
        (SOURCE / "moves.py", "from directloss.tasks.ranking import RankingTask"),
        (SOURCE / "task.py", "from directloss.moves import Lists"),
        (init, "from ..cli import app"),
        (SOURCE / "cli" / "made_up.py", "from directloss_repro.training import train"),
        (SOURCE / "metrics" / "made_up.py", "from directloss.task import Task"),
        (SOURCE / "full_batch.py", "from directloss.integrations.sklearn import DirectLossClassifier"),
        (SOURCE / "integrations" / "made_up.py", "from directloss_repro.training import train"),
        (REPRO / "reports" / "made_up.py", "from directloss_repro.training import train"),
        (REPRO / "reports" / "made_up.py", "import torch"),
        (REPRO / "data" / "made_up.py", "from directloss_repro.experiments import get_experiment"),
        (REPRO / "campaign.py", "from directloss_repro.runner import Training"),
        (REPRO / "experiments" / "made_up.py", "from directloss.direct import direct_loss"),
        (REPRO / "experiments" / "made_up.py", "from ..training import train"),
    ]:
        assert len(breaches(path, source)) == 1, source


def test_the_test_allows_what_is_right() -> None:
    for path, source in [
        (SOURCE / "tasks" / "made_up.py", "from directloss.metrics.ranking import average_precision"),
        (SOURCE / "tasks" / "made_up.py", "from .ranking import RankingTask\nimport math, torch"),
        (
            REPRO / "made_up.py",
            "import pandas\nimport directloss as dl\nfrom directloss.direct import direct_loss",
        ),
        (SOURCE / "integrations" / "sklearn.py", "import sklearn\nfrom directloss.direct import direct_loss"),
    ]:
        assert not breaches(path, source), source


def test_each_class_of_the_library_has_a_name_of_its_own() -> None:
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
