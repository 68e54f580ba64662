"""The code in README and docs runs, and shows what it says it shows.

Every page is run from top to bottom in one namespace. A ``python`` block is executed; a ``pycon`` block (with ``>>>``)
is run as a doctest and its output compared. A block with ``no-run`` in its first line is left out.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
FENCE = re.compile(r"^(?P<indent> *)```(?P<words>.*)\n(?P<code>(?:.*\n)*?)(?P=indent)``` *$", re.MULTILINE)


class Block(NamedTuple):
    language: str
    line: int
    code: str


def blocks(text: str) -> Iterator[Block]:
    """The runnable blocks of a page."""
    for found in FENCE.finditer(text):
        words = found["words"].replace("{", " ").split()
        if words and words[0] in ("python", "pycon") and "no-run" not in words:
            indent = len(found["indent"])
            code = "".join(line[indent:] or "\n" for line in found["code"].splitlines(keepends=True))
            yield Block(words[0], text[: found.start("code")].count("\n"), code)


def run(page: str, text: str) -> int:
    """Run a page and return how many blocks it had."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = list(blocks(text))
    for block in found:
        if block.language == "pycon":
            test = doctest.DocTestParser().get_doctest(block.code, names, page, page, block.line)
            lines: list[str] = []
            result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=lines.append, clear_globs=False)
            names |= test.globs
            assert not result.failed, "".join(lines)
        else:
            # Newlines in front make line numbers in a traceback those of the page.
            exec(compile("\n" * block.line + block.code, page, "exec"), names)
    return len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_of_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes must not land in the project
    run(page.name, page.read_text())


def test_readme_has_code() -> None:
    assert list(blocks((ROOT / "README.md").read_text()))


GOOD = """\
```python
x = 1
```

- a list

  ```pycon
  >>> x + 1
  2
  ```

```python no-run
1 / 0
```
```text
?
```
"""


def test_runner_shares_names_and_skips_what_it_should() -> None:
    assert run("page", GOOD) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert False\n```\n", AssertionError),
        ("```python\nmissing\n```\n", NameError),
        ("```pycon\n>>> 1 + 1\n3\n```\n", AssertionError),
        ("```python\nx = 1\n```\n```pycon\n>>> x\n2\n```\n", AssertionError),
    ],
)
def test_runner_fails_on_wrong_code(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run("page", text)
