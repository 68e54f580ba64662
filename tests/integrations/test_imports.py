"""Other libraries are loaded by those who ask for them, and by nobody else."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
OTHERS = (
    "accelerate", "lightgbm", "lightning", "matplotlib", "pandas", "pyarrow", "pytorch_metric_learning",
    "sentence_transformers", "sklearn", "skorch", "tensorboard", "torchmetrics", "transformers", "xgboost",
)  # fmt: skip


def loaded_by(line: str) -> set[str]:
    code = f"import sys\n{line}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    there = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=there)
    return set(done.stdout.split()) & set(OTHERS)


def test_the_library_loads_no_other() -> None:
    """Nor do the integrations that know their library by what it hands them."""
    use = "import directloss as dl; dl.DirectLoss('ap'), dl.UniLoss, dl.metrics, dl.ScoreMemory"
    assert loaded_by(f"{use}; import directloss.integrations.boosting, directloss.integrations.transformers") == set()


def test_an_integration_loads_its_own() -> None:
    assert {"sklearn"} <= loaded_by("import directloss.integrations.sklearn") <= {"sklearn", "pandas", "pyarrow"}


@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("sklearn", "sklearn", "scikit-learn"),
        ("boosting_sklearn", "sklearn", "scikit-learn"),
        ("lightning", "lightning", "lightning"),
    ],
)
def test_a_missing_library_is_one_line(name: str, missing: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"directloss.integrations.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"^{re.escape(module)} needs {missing}: pip install {install}$"):
        importlib.import_module(module)
