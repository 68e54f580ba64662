"""Imports point one way. The table says which room may look into which; anything else is a breach."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import directloss

SOURCE = Path(__file__).parents[1] / "src" / "directloss"

# room -> the rooms of the package that it may import from (its own room is always allowed)
MAY_IMPORT: dict[str, set[str]] = {
    "_checks": set(),
    "_dynamo": set(),
    "_gradient": {"_checks"},
    "kernels": {"_checks", "_dynamo"},
    "metrics": {"_checks", "_dynamo", "kernels"},
    "task": {"_checks"},
    "_registry": {"_checks", "task"},
    "_problem": {"_checks", "_registry", "task"},
    "_loss": {"_checks", "_dynamo", "_problem", "_registry", "distributed", "task"},
    "epsilon": {"_checks", "_problem"},
    "noise": {"_checks"},
    "direct": {
        "_checks",
        "_dynamo",
        "_gradient",
        "_loss",
        "_problem",
        "distributed",
        "epsilon",
        "noise",
        "task",
    },
    "surrogates": {"_checks", "_gradient", "_loss", "_problem", "distributed", "epsilon", "task"},
    "tasks": {"_checks", "_registry", "kernels", "metrics", "task"},
    "_uniloss": {
        "_checks",
        "_dynamo",
        "_gradient",
        "_loss",
        "_problem",
        "_registry",
        "distributed",
        "kernels",
        "metrics",
    },
    "relaxation": {"_uniloss"},
    "distributed": {"_checks", "_dynamo", "_gradient"},
    "full_batch": {"_checks", "_gradient"},
    "memory": {"_checks", "_dynamo", "_gradient"},
}  # fmt: skip
LIBRARY = set(MAY_IMPORT)
MAY_IMPORT["__init__"] = LIBRARY
MAY_IMPORT["lab"] = LIBRARY | {"__init__"}
MAY_IMPORT["integrations"] = LIBRARY | {"__init__"}
MAY_IMPORT["__main__"] = {"lab"}

# Inside the lab: reports know stored records alone; an experiment declares, and has no training loop and no loss.
IN_LAB: dict[str, tuple[str, ...]] = {
    "directloss.lab.reports": (
        "directloss._checks", "directloss.lab.files", "directloss.lab.reports", "directloss.lab.records",
    ),
    "directloss.lab.experiments": (
        "directloss._checks", "directloss.metrics", "directloss.lab.config", "directloss.lab.data",
        "directloss.lab.experiments", "directloss.lab.files", "directloss.lab.methods", "directloss.lab.models",
        "directloss.lab.rules", "directloss.lab.schedule", "directloss.lab.seeding",
        *(f"directloss.lab.detection.{part}" for part in (
            "drawing", "evaluation", "proposals", "sampling", "scenes", "views",
        )),
    ),
}  # fmt: skip

# What the library itself may need; everything else belongs to rooms that are extras.
PACKAGES = {"numba", "numpy", "scipy", "torch"}
WITH_EXTRAS = {"integrations", "lab"}


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


def breaches(path: Path, source: str, module: str) -> list[str]:
    room = room_of(module)
    found = []
    for line, name in imported(path, source, module):
        top = name.split(".")[0]
        if top == "directloss":
            target = room_of(name)
            narrow = next((allowed for part, allowed in IN_LAB.items() if is_within(module, part)), None)
            strange = target != room and target not in MAY_IMPORT[room]
            if strange or (narrow is not None and not any(is_within(name, part) for part in narrow)):
                found.append(f"{module}:{line}: {room} must not import {name}")
        elif room not in WITH_EXTRAS and top not in PACKAGES | sys.stdlib_module_names:
            found.append(f"{module}:{line}: the library must not need {top}")
    return found


def module_name(path: Path) -> str:
    parts = ["directloss", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_uniloss_is_a_function_and_nothing_else() -> None:
    assert not isinstance(directloss.uniloss, ModuleType)
    assert importlib.util.find_spec("directloss.uniloss") is None


def test_every_room_is_in_the_table() -> None:
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms <= set(MAY_IMPORT), "a new room: decide what it may import"


def test_imports_point_one_way() -> None:
    found = [line for path in SOURCE.rglob("*.py") for line in breaches(path, path.read_text(), module_name(path))]
    assert not found, "\n".join(found)


def test_the_test_sees_a_breach() -> None:
    engine, task, init = SOURCE / "direct.py", SOURCE / "tasks" / "made_up.py", SOURCE / "tasks" / "__init__.py"
    for path, source in [
        (engine, "from directloss.tasks.ranking import AveragePrecision"),
        (engine, "from directloss import tasks"),
        (engine, "def f():\n    import directloss.lab"),
        (engine, "import pandas"),
        (engine, "from .tasks import names"),
        (task, "from directloss.direct import direct_loss"),
        (task, "from ..direct import direct_loss"),
        (SOURCE / "_uniloss" / "made_up.py", "from directloss.direct import DirectLoss"),
        (task, "from .. import _uniloss"),
        (init, "from ..lab import cli"),
        (SOURCE / "metrics" / "made_up.py", "from directloss.task import Task"),
        (SOURCE / "full_batch.py", "from directloss.integrations.sklearn import DirectLossClassifier"),
        (SOURCE / "integrations" / "made_up.py", "from directloss.lab.training import train"),
        (SOURCE / "lab" / "reports" / "made_up.py", "from directloss.lab.training import train"),
        (SOURCE / "lab" / "experiments" / "made_up.py", "from directloss.direct import direct_loss"),
        (SOURCE / "lab" / "experiments" / "made_up.py", "from ..training import train"),
    ]:
        assert len(breaches(path, source, module_name(path))) == 1, source


def test_the_test_allows_what_is_right() -> None:
    for path, source in [
        (SOURCE / "tasks" / "made_up.py", "from directloss.metrics.ranking import average_precision"),
        (SOURCE / "tasks" / "made_up.py", "from .ranking import RankingTask\nimport math, torch"),
        (
            SOURCE / "lab" / "made_up.py",
            "import pandas\nimport directloss as dl\nfrom directloss.direct import direct_loss",
        ),
        (SOURCE / "integrations" / "sklearn.py", "import sklearn\nfrom directloss.direct import direct_loss"),
    ]:
        assert not breaches(path, source, module_name(path)), source
