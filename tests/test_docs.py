"""The code in README and docs runs and shows what it says it shows, and the built site shows all of it.

Every page is run from top to bottom in one namespace. A ``python`` block is executed; a ``pycon`` block (with ``>>>``)
is run as a doctest and its output compared. A block right after the comment ``<!-- no-run -->`` is left out.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import directloss as dl

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)\n(?P<code>(?:.*\n)*?)(?P=indent)``` *$", re.MULTILINE)
NO_RUN = "<!-- no-run -->"


class Block(NamedTuple):
    language: str
    line: int
    code: str
    runs: bool


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for found in FENCE.finditer(text):
        indent = len(found["indent"])
        code = "".join(line[indent:] or "\n" for line in found["code"].splitlines(keepends=True))
        runs = found["language"] in ("python", "pycon") and not text[: found.start()].rstrip().endswith(NO_RUN)
        yield Block(found["language"], text[: found.start("code")].count("\n"), code, runs)


def run(page: str, text: str) -> int:
    """Run a page and return how many blocks it ran."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = [block for block in blocks(text) if block.runs]
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
    assert any(block.runs for block in blocks((ROOT / "README.md").read_text()))


GOOD = """\
```python
x = 1
```

- a list

  ```pycon
  >>> x + 1
  2
  ```

<!-- no-run -->
```python
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


class Rendered(HTMLParser):
    """What a reader sees of a page: headings, code blocks, and the text outside of code."""

    HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.code: list[str] = []
        self.prose = ""
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("pre", *self.HEADINGS):
            self._open.append(tag)
            (self.code if tag == "pre" else self.headings).append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.prose += data
        elif self._open[-1] == "pre":
            self.code[-1] += data
        else:
            self.headings[-1] += data.replace("¶", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built documentation; a link to nowhere fails the build."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def rendered(site: Path, name: str) -> Rendered:
    return Rendered((site / ("index.html" if name == "index" else f"{name}/index.html")).read_text())


def plain(heading: str) -> str:
    """A heading of Markdown as it is shown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip()


@pytest.mark.slow
@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_site_has_every_heading_and_every_example(page: Path, site: Path) -> None:
    text = page.read_text()
    seen = rendered(site, page.stem)
    headings = [plain(line.lstrip("#")) for line in FENCE.sub("", text).splitlines() if re.match("#+ ", line)]
    assert [heading for heading in headings if heading not in map(str.strip, seen.headings)] == []
    shown = [code.strip() for code in seen.code]
    assert [block.code for block in blocks(text) if block.code.strip() not in shown] == []
    assert "```" not in seen.prose


NOTEBOOKS = {"first_steps": 4, "own_metric": 1, "wrong_labels": 2}
"""The notebooks, which the build executes from top to bottom, and how many pictures they draw."""


def test_every_notebook_is_known_and_in_the_navigation() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.py")} == set(NOTEBOOKS)
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in NOTEBOOKS if f"notebooks/{name}.md" not in navigation] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_show_what_they_say(name: str, site: Path) -> None:
    seen, folder = rendered(site, f"notebooks/{name}"), site / "notebooks"
    shown = "\n".join(seen.code)
    assert len(list(folder.glob(f"{name}-*.png"))) == NOTEBOOKS[name]
    assert (folder / f"{name}.ipynb").is_file()
    assert "```" not in seen.prose
    assert "ipykernel" not in shown
    if name == "own_metric":
        plain, tuned, metric = map(float, re.findall(r"test rows (0\.\d+)", shown))
        assert metric > plain + 0.03
        assert abs(metric - tuned) < 0.02
    if name == "wrong_labels":
        ap = {loss: float(value) for loss, value in re.findall(r"wrong labels, ([\w -]+): test AP (0\.\d+)", shown)}
        assert ap["direct loss"] > ap["cross-entropy"]


@pytest.mark.slow
def test_examples_of_docstrings_are_code(site: Path) -> None:
    seen = rendered(site, "api")
    assert any(">>>" in code for code in seen.code)
    assert ">>>" not in seen.prose


@pytest.mark.slow
def test_site_shows_the_example_of_every_public_name(site: Path) -> None:
    shown = "\n".join(rendered(site, "api").code)
    for name in dl.__all__:
        docstring = getattr(getattr(dl, name), "__doc__", None) or ""
        for example in doctest.DocTestParser().get_examples(docstring):
            assert example.source.splitlines()[0] in shown, f"{name}: {example.source}"


@pytest.mark.parametrize("name", ["robustness", "regrets", "boosting", "letor", "crowd", "speed", "plot-step"])
def test_figures_are_drawn_from_what_is_committed(name: str, tmp_path: Path) -> None:
    from benchmarks.figures import draw

    draw([name], tmp_path)
    committed, drawn = ((folder / f"{name}.svg").read_text() for folder in (ROOT / "docs" / "assets", tmp_path))
    assert "prefers-color-scheme: dark" in drawn
    assert re.findall("<!-- .* -->", committed) == re.findall("<!-- .* -->", drawn)  # the words of the figure


def test_verdicts_follow_from_what_is_committed() -> None:
    from benchmarks import verdicts

    for path, text in verdicts.files(verdicts.rows()).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m benchmarks.verdicts"
