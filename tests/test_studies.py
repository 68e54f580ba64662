"""Every stored study still prints the tables that the docs are made from."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUDIES = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if path.stem not in ("study", "segmentation")
    and re.search(r"from_command_line\(|^ +command\(", path.read_text(), re.M)
)


@pytest.mark.parametrize("name", STUDIES)
def test_stored_records_are_those_of_the_study(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [name, "--show"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    rows = re.findall(r"^\|.*\d\.\d.*\|$", capsys.readouterr().out, re.M)
    assert len(rows) > 1, "records of another version of the study have other keys"
