"""Turns matplotlib's SVG into one that follows the page: its text colour, its dark mode, its ids."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from directloss_repro.reports.style import FAMILIES, INK, RULE

FONT = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def colour_rules() -> tuple[str, str]:
    """CSS variables of the methods' colours for light and for dark mode."""
    light, dark = (
        " ".join(f"--m-{family}: {colours[mode]};" for family, colours in FAMILIES.items()) for mode in (0, 1)
    )
    return light, dark


def adapt(raw: str, name: str, title: str, description: str) -> str:
    """An ``<svg>`` element to put into a page, with a title and a description for those who cannot see it."""
    body = raw[raw.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s*<style type=\"text/css\">.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = _own_ids(_css_colours(body), name)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", FONT, body)
    box = re.search(r'viewBox="([^"]+)"', body)
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box.group(1) if box else ""}" '
        f'role="img" aria-labelledby="{name}-title {name}-desc" style="stroke-linejoin: round; stroke-linecap: butt">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    )
    return head + body[body.index(">") + 1 :]


def standalone(element: str) -> str:
    """The same picture as a file of its own, which follows the reader's dark mode."""
    light, dark = colour_rules()
    style = (
        f"<style>svg {{ color: {INK}; --rule: {RULE}; {light} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ color: #e6edf3; --rule: #3d444d; {dark} }} }}</style>"
    )
    start = element.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element[:start]}{style}{element[start:]}'


def _css_colours(body: str) -> str:
    body = body.replace(INK, "currentColor").replace(RULE, f"var(--rule, {RULE})")
    for family, (light, _) in FAMILIES.items():
        body = body.replace(light, f"var(--m-{family}, {light})")
    return body


def _own_ids(body: str, name: str) -> str:
    """Several pictures share one page, so every id gets the picture's name in front."""
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    return re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
