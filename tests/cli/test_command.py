"""The frame of the command: quick help, and a word about what is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.tabular.tables import call

HEAVY = ("torch", "numpy", "pandas", "matplotlib", "optuna", "sklearn", "scipy", "numba", "pyarrow")


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


LOADED = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["predict", "--help"], ["--version"]])
def test_help_imports_nothing_that_takes_time(words: list[str]) -> None:
    code = f"""
from directloss.cli import app
try:
    app({words!r}, prog_name="directloss")
except SystemExit as end:
    assert not end.code, end.code
{LOADED}"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_library_imports_neither_pandas_nor_matplotlib() -> None:
    result = python(f"import directloss as dl; dl.DirectLoss('ap'), dl.UniLoss, dl.metrics, dl.ScoreMemory; {LOADED}")
    assert result.returncode == 0, result.stderr
    found = result.stdout.splitlines()[-1]
    for name in ("pandas", "matplotlib", "optuna", "sklearn", "pyarrow"):
        assert name not in found


@pytest.mark.parametrize(
    ("absent", "code"),
    [
        ("typer", "from directloss.__main__ import main; main()"),
        (
            "pandas",
            "import sys; sys.argv[1:] = ['fit', 'x.csv', '--metric', 'ap']; from directloss.cli import main; main()",
        ),
        ("pandas", "import directloss; directloss.load('x')"),
    ],
)
def test_without_the_extra_one_is_told_what_to_install(absent: str, code: str) -> None:
    result = python(f"import sys; sys.modules[{absent!r}] = None; {code}")
    assert result.returncode != 0
    assert "pip install 'directloss[fit]'" in result.stderr
    assert absent in result.stderr


def test_public_names_are_imported_when_they_are_used() -> None:
    code = """
import directloss, pickle
from directloss.direct import DirectLoss
assert set(directloss.__all__) <= set(dir(directloss))
assert pickle.loads(pickle.dumps(directloss.DirectLoss)) is DirectLoss
assert str(DirectLoss("ap")) == "DirectLoss(AveragePrecision())"  # the tasks are there, though nobody imported them
from directloss import *
assert uniloss is directloss.uniloss
try:
    directloss.nothing
except AttributeError as error:
    print(error)
"""
    result = python(code)
    assert result.stdout == "module 'directloss' has no attribute 'nothing'\n", result.stderr


def test_tasks_lists_what_can_be_trained_on() -> None:
    result = call("tasks")
    assert result.exit_code == 0
    for name in ("ap", "ndcg", "f1", "topk"):
        assert name in result.output.split()


def test_the_shell_completes_metrics() -> None:
    from typer.testing import CliRunner

    from directloss.cli import app

    line = "directloss fit rows.csv --metric nd"
    words = {"_DIRECTLOSS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert CliRunner(env=words).invoke(app, [], prog_name="directloss").output.split() == ["ndcg", "ndcg@10"]
