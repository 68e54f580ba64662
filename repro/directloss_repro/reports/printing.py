"""Prints a `Table` as Markdown and in the terminal (the page prints it as HTML)."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from directloss_repro.reports.tables import ALIKE, Cell, Column, Table


def to_markdown(table: Table) -> str:
    """The table for a README or a documentation page.

    Example:
        >>> columns = (Column("method", numeric=False), Column("AP"))
        >>> print(to_markdown(Table("T", columns, ((Cell("a"), Cell("1", mark="best")),))))
        **T**
        <BLANKLINE>
        | method | AP |
        | --- | ---: |
        | a | **1** |
        <BLANKLINE>
    """
    heads = [
        plain(f"{column.group}: {column.label}" if _is_level(column) else column.label) for column in table.columns
    ]
    lines = [f"**{plain(table.title)}**", "", f"| {' | '.join(heads)} |"]
    lines.append(f"| {' | '.join('---:' if column.numeric else '---' for column in table.columns)} |")
    lines += [f"| {' | '.join(_markdown_cell(cell) for cell in row)} |" for row in table.rows]
    lines += ["", *(f"{plain(note)}  " for note in table.notes)] if table.notes else [""]
    return "\n".join(lines) + ("\n" if table.notes else "")


def _is_level(column: Column) -> bool:
    # In the table of classes the group is the noise level and cannot be left out; elsewhere the title says it.
    return column.group.endswith("%")


def _markdown_cell(cell: Cell) -> str:
    text = plain(cell.text)
    text = f"**{text}**" if cell.mark in ("best", "clear") else f"{ALIKE} {text}" if cell.mark == "alike" else text
    return f"{text} {plain(cell.small)}" if cell.small else text


def plain(text: str) -> str:
    """Text that Markdown cannot take for markup or HTML."""
    return " ".join(text.split()).translate(_ESCAPES)


_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_rich(table: Table) -> Group:
    """The table for the terminal, with its notes below."""
    # Without lines, which would cost the width that numbers need.
    shown = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in table.columns:
        label = f"{column.group}\n{column.label}" if _is_level(column) else column.label
        shown.add_column(Text(label), justify="right" if column.numeric else "left", no_wrap=not column.numeric)
    for row in table.rows:
        shown.add_row(*(_rich_cell(cell) for cell in row))
    return Group(Text(table.title, "bold"), shown, *(Text(note, "dim") for note in table.notes))


def _rich_cell(cell: Cell) -> Text:
    styles = {"best": "bold green", "clear": "bold", "paper": "dim"}
    text = Text(f"{ALIKE} {cell.text}" if cell.mark == "alike" else cell.text, styles.get(cell.mark, ""))
    return text.append(f" {cell.small}", "dim") if cell.small else text
