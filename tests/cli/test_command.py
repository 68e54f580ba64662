"""The frame of the command: quick help, and a word about what is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import directloss
from directloss import doctor
from tests.tabular.tables import call

HEAVY = ("torch", "numpy", "pandas", "matplotlib", "sklearn", "scipy", "numba", "pyarrow")


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


LOADED = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["predict", "--help"]])
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


def test_commands_stand_in_the_order_in_which_one_meets_them() -> None:
    lines = call("--help").output.split("Commands")[1].splitlines()
    found = [words[1] for line in lines if len(words := line.split()) > 2]
    assert found[:4] == ["fit", "predict", "tasks", "doctor"]


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
    assert "pip install '.[fit]'" in result.stderr
    assert absent in result.stderr


@pytest.mark.parametrize("word", ["list", "reproduce", "report"])
def test_without_the_experiments_one_is_told_where_they_are(word: str) -> None:
    result = python(f"from directloss.cli import app; app(['{word}', '--help'], prog_name='directloss')")
    assert result.returncode == 2
    assert "pip install ./repro" in result.stderr


def test_public_names_are_imported_when_they_are_used() -> None:
    code = """
import directloss, pickle
assert directloss.kernels.use and directloss.integrations and directloss.distributed
from directloss.direct import DirectLoss
assert set(directloss.__all__) <= set(dir(directloss))
assert not {"import_module", "TYPE_CHECKING", "Any"} & set(dir(directloss))
assert pickle.loads(pickle.dumps(directloss.DirectLoss)) is DirectLoss
assert str(DirectLoss("ap")).startswith("DirectLoss(AveragePrecision()")  # though nobody imported tasks
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


def test_doctor_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main() == 0
    said = capsys.readouterr().out
    assert said.startswith(f"directloss {directloss.__version__} on Python ")
    for part in (
        f"torch {torch.__version__}",
        "compiled loops: work",
        "tensor operations: work",
        "threads: ",
    ):
        assert part in said


def test_doctor_names_what_is_missing_and_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("torch", "nothere"))
    assert doctor.main() == 1
    assert capsys.readouterr().out.endswith("nothere is missing\nNot usable: pip install nothere\n")


def test_doctor_tells_of_kernels_that_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(backend: str) -> list[float]:
        raise OSError("no place for the cache")

    monkeypatch.setattr(doctor, "_try", broken)
    assert doctor.main() == 1
    assert "compiled loops: do not work: OSError: no place for the cache" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["doctor"], ["--version"]])
def test_doctor_and_version_need_no_extra(words: list[str]) -> None:
    code = f"sys.argv[1:] = {words!r}; from directloss.__main__ import main; main()"
    result = python(f"import sys; sys.modules.update(typer=None, rich=None, sklearn=None, pandas=None); {code}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"directloss {directloss.__version__}")
