"""The project's own files: what they promise about each other."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import directloss as dl

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MADE = {".git", ".venv", "site", "build", "dist", "runs", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
MADE |= {"__pycache__", "directloss.egg-info"}
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".yml",
    ".yaml",
    ".cff",
    ".cfg",
    ".html",
    ".css",
    ".js",
    ".json",
    ".j2",
    ".svg",
    "",
}


def text_files() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        if not MADE & set(path.relative_to(ROOT).parts) and path.is_file() and path.suffix in TEXT:
            yield path


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_version_is_told_everywhere() -> None:
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    if ".dev" in dl.__version__:  # the citation is of the last release
        assert "## [Unreleased]" in changelog
        released = re.findall(r"^## \[(\d.*?)\]", changelog, re.MULTILINE)[0]
    else:
        released = dl.__version__
        assert f"## [{released}]" in changelog
    assert f"version: {released}\n" in citation


# Home directories and the like. Written in pieces, so that this file does not find itself.
MACHINE_PATH = re.compile("/(?:" + "|".join(["home", "root", "Users", "work", "tmp", "opt", "mnt"]) + r")/[\w.]")


def machine_paths(text: str) -> list[str]:
    return [line for line in text.splitlines() if MACHINE_PATH.search(line) and "://" not in line]


def test_no_paths_of_a_machine() -> None:
    found = [f"{path}: {line}" for path in text_files() for line in machine_paths(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["home", "tmp", "root"])
def test_machine_paths_are_seen(name: str) -> None:
    assert machine_paths(f"data = '/{name}/someone'")
    assert not machine_paths(f"see docs/{name}.md or a/b")


def test_every_public_name_is_documented() -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    missing = [name for name in dl.__all__ if not re.search(rf"\b(?:directloss|dl)\.{name}\b", pages)]
    assert not missing, f"not in docs/: {missing}"


def test_every_task_is_documented() -> None:
    page = (ROOT / "docs" / "tasks.md").read_text()
    missing = [name for name in dl.tasks.names() if f'`"{name}' not in page]
    assert not missing, f"not in docs/tasks.md: {missing}"


def test_every_task_object_is_documented() -> None:
    """And what the page names exists. Base classes and outputs need no row."""
    named = set(re.findall(r"`([A-Z]\w+)\(", (ROOT / "docs" / "tasks.md").read_text()))
    public = {name: getattr(dl.tasks, name) for name in dl.tasks.__all__}
    concrete = {
        name
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, dl.Task) and not inspect.isabstract(value)
    }
    assert named <= set(public), f"docs/tasks.md names what is not there: {named - set(public)}"
    assert concrete - named <= {"RankingTask"}, f"not in docs/tasks.md: {concrete - named}"


def test_public_names_exist_and_are_few() -> None:
    assert all(hasattr(dl, name) for name in dl.__all__)
    assert len(dl.__all__) == len(set(dl.__all__)) <= 25


def test_torch_is_a_range_here_and_exact_in_the_constraints() -> None:
    assert any(re.fullmatch(r"torch>=[\d.]+,<\d+", need) for need in PROJECT["project"]["dependencies"])
    assert re.search(r"^torch==[\d.]+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_constraints_are_exact_and_of_no_machine() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.!]+", line)] == []


def test_constraints_pin_every_direct_need() -> None:
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    extras = PROJECT["project"]["optional-dependencies"].values()
    needs = [*PROJECT["project"]["dependencies"], *(need for extra in extras for need in extra)]
    names = {re.split(r"[\[<>=]", need)[0].lower() for need in needs} - {"directloss"}
    assert names <= pinned, f"not pinned: {names - pinned}"


def test_torchvision_is_not_needed() -> None:
    assert "torchvision" not in (ROOT / "constraints.txt").read_text() + (ROOT / "pyproject.toml").read_text()
