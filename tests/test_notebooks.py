"""The notebooks run from top to bottom, and show what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("jupytext")
pytest.importorskip("nbclient")
PICTURES = {"first_steps": 4, "own_metric": 1, "wrong_labels": 2}


def executed(name: str) -> tuple[str, int]:
    """The page of a notebook, and how many pictures it has."""
    made = runpy.run_path(str(ROOT / ".ci" / "notebooks.py"))["pages"](ROOT / "notebooks" / f"{name}.py")
    assert f"{name}.ipynb" in made
    return made[f"{name}.md"], sum(key.endswith(".png") for key in made)


def test_every_notebook_is_known_and_in_the_navigation() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.py")} == set(PICTURES)
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in PICTURES if f"notebooks/{name}.md" not in navigation] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_notebook(name: str) -> None:
    page, pictures = executed(name)
    assert pictures == PICTURES[name]
    assert page.count("```") % 2 == 0
    assert "ipykernel" not in page
    if name == "own_metric":
        plain, tuned, metric = map(float, re.findall(r"test rows (0\.\d+)", page))
        assert metric > plain + 0.03
        assert abs(metric - tuned) < 0.02
    if name == "wrong_labels":
        ap = {loss: float(value) for loss, value in re.findall(r"wrong labels, ([\w -]+): test AP (0\.\d+)", page)}
        assert ap["direct loss"] > ap["cross-entropy"]
