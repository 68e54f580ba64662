"""The page in a real browser: no error, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.repro.fake_records import make_run, record, records, run_info, write_report, write_run

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed, so no browser can be driven"
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
EVIL = "</title></style></svg><script>alert(1)</script><img src=x onerror=alert(2)><a href=javascript:alert(3)>"
A4 = 680  # CSS pixels of an A4 page within the margins of the page's print rules


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser found (looked for {', '.join(BROWSERS)})")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind that there is."""
    base = tmp_path_factory.mktemp("pages")
    found = {name: make_run(base / name, name, seeds=3) for name in ("synthetic", "robustness", "digits-noise")}
    part = [line for line in records("robustness", 2) if line["stage"] == "search" or line["method"] < "neg"]
    found["incomplete"] = write_run(base / "incomplete", part, run_info("robustness", finished=None))
    lines = [
        record("synthetic", "x-ent", seed) | {"method": EVIL, "experiment": EVIL, "commit": EVIL} for seed in (0, 1)
    ]
    info = run_info(EVIL, command=EVIL * 5, config={EVIL: EVIL})
    found["hostile"] = write_run(base / "hostile", lines, info)
    return {name: write_report(folder) for name, folder in found.items()}


KINDS = ("synthetic", "robustness", "digits-noise", "incomplete", "hostile")


@dataclass
class View:
    """An open page with all that it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture
def view(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def open_view(kind: str, width: int = 390, scheme: str = "light", media: str = "screen") -> View:
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        contexts.append(context)
        seen = View(context.new_page())
        seen.page.on("console", lambda message: seen.said.append(message.text))
        seen.page.on("pageerror", lambda error: seen.said.append(str(error)))
        seen.page.on("dialog", lambda dialog: (seen.said.append(dialog.message), dialog.dismiss()))
        seen.page.on("request", lambda request: seen.asked.append(request.url))
        seen.page.emulate_media(media=media, color_scheme=scheme)
        seen.page.goto(pages[kind].as_uri(), wait_until="load")
        return seen

    yield open_view
    for context in contexts:
        context.close()


@pytest.mark.parametrize("kind", KINDS)
def test_says_nothing_asks_nothing_and_fits_a_phone(view: Any, pages: dict[str, Path], kind: str) -> None:
    seen = view(kind)
    assert seen.said == []
    assert [url for url in seen.asked if url != "data:,"] == [pages[kind].as_uri()]
    assert seen.run("document.documentElement.scrollWidth") <= 390
    assert seen.run("document.querySelectorAll('script, img, iframe, object, [onerror]').length") == 0
    assert seen.run("[...document.links].every(link => link.protocol === 'file:')")


def test_narrowest_phone(view: Any) -> None:
    assert view("digits-noise", width=320).run("document.documentElement.scrollWidth") <= 320


def test_wide_tables_scroll_in_their_box_and_keep_their_first_column(view: Any) -> None:
    seen = view("digits-noise")
    box = "[...document.querySelectorAll('.scroll')].find(box => box.scrollWidth > box.clientWidth + 100)"
    assert seen.run(f"!!{box}"), "the test needs a table that is wider than the phone"
    moved = seen.run(
        f"(() => {{ const box = {box}; box.scrollLeft = 120; const cell = box.querySelector('tbody th');"
        " return [box.scrollLeft, cell.getBoundingClientRect().left - box.getBoundingClientRect().left]; })()"
    )
    assert moved[0] == 120
    assert abs(moved[1]) < 3, "the first column must stay in sight"


def test_tables_can_be_scrolled_with_the_keyboard(view: Any) -> None:
    seen = view("digits-noise")
    assert seen.run("[...document.querySelectorAll('.scroll')].every(box => box.tabIndex === 0)")


LOOK = """(() => {
  const [page, line, text] = ['body', 'figure svg path[style*="--m-"]', 'figure svg text'].map(
    path => getComputedStyle(document.querySelector(path)));
  return [page.backgroundColor, page.color, line.stroke, text.fill];
})()"""


def luminance(colour: str) -> float:
    values = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_dark_mode_changes_page_and_figures(view: Any) -> None:
    light, dark = (view("robustness", scheme=scheme).run(LOOK) for scheme in ("light", "dark"))
    assert all(one != other for one, other in zip(light, dark, strict=True)), (light, dark)
    assert luminance(light[0]) > 0.9 > 0.1 > luminance(dark[0])
    assert luminance(light[3]) < 0.1 < 0.7 < luminance(dark[3]), "text in figures must follow"


CONTRAST = """(() => {
  const parse = c => { const p = c.match(/[\\d.]+/g).map(Number); return p.length > 3 ? p : [...p, 1]; };
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const lum = c => { const [r, g, b] = c.map(v => linear(v / 255)); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => {
    const c = e ? parse(getComputedStyle(e).backgroundColor) : [255, 255, 255, 1];
    return c[3] > 0 ? c : ground(e.parentElement);
  };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || e.closest('title, desc, style')) continue;
    const style = getComputedStyle(e);
    const front = parse(e instanceof SVGElement ? style.fill : style.color), back = ground(e);
    const [low, high] = [lum(front.slice(0, 3)), lum(back.slice(0, 3))].sort((a, b) => a - b);
    const ratio = (high + .05) / (low + .05);
    if (ratio < 4.5) bad.push(text + ' ' + ratio.toFixed(2));
  }
  return bad;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["digits-noise", "incomplete"])
def test_all_text_has_contrast(view: Any, kind: str, scheme: str) -> None:
    seen = view(kind, scheme=scheme)
    assert seen.run(CONTRAST) == []
    seen.run("document.querySelector('h1').style.color = getComputedStyle(document.body).backgroundColor")
    assert len(seen.run(CONTRAST)) == 1, "the measurement must see a text that cannot be read"


TEXTS = """[...document.querySelectorAll('figure svg')].map(svg => {
  const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
  return { width: frame.width, height: frame.height, texts: [...svg.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect();
    return { words: text.textContent, size: parseFloat(getComputedStyle(text).fontSize) * scale,
      left: box.left - frame.left, right: box.right - frame.left,
      top: box.top - frame.top, bottom: box.bottom - frame.top };
  }) };
})"""


@pytest.mark.parametrize("kind", ["synthetic", "robustness", "hostile"])
def test_names_in_figures_are_large_enough_apart_and_inside(view: Any, kind: str) -> None:
    figures = view(kind).run(TEXTS)
    assert figures
    for figure in figures:
        texts = figure["texts"]
        assert len(texts) >= 5
        for text in texts:
            assert text["size"] >= 9, text
            assert text["left"] >= -0.5, text
            assert text["right"] <= figure["width"] + 0.5, text
            assert text["top"] >= -0.5, text
            assert text["bottom"] <= figure["height"] + 0.5, text
        for place, one in enumerate(texts):
            for other in texts[place + 1 :]:
                beside = one["right"] <= other["left"] or other["right"] <= one["left"]
                # A line of text has empty room above and below its letters, which may overlap a little.
                room = 0.2 * one["size"]
                above = one["bottom"] - room <= other["top"] + room or other["bottom"] - room <= one["top"] + room
                assert beside or above, (one, other)


def test_ids_are_unique(view: Any) -> None:
    ids = view("robustness").run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)) > 20


@pytest.mark.parametrize("kind", ["digits-noise", "synthetic"])
def test_paper_is_white_and_shows_whole_tables(view: Any, kind: str) -> None:
    seen = view(kind, width=A4, scheme="dark", media="print")
    ground, ink, _, text = seen.run(LOOK)
    assert ground in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert luminance(ink) < 0.1
    assert luminance(text) < 0.1
    assert seen.run("document.documentElement.scrollWidth") <= A4
    hidden = (
        "[...document.querySelectorAll('.scroll, pre')].filter(box => getComputedStyle(box).overflowX === 'visible'"
    )
    assert (
        seen.run(f"{hidden} ? box.firstElementChild.scrollWidth > {A4} : box.scrollWidth > box.clientWidth).length")
        == 0
    )


def test_prints(view: Any) -> None:
    paper = view("digits-noise").page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") <= 8
