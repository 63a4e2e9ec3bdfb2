"""Writes tables as CSV and as Markdown: no text of others runs as a formula, nor breaks a table. Pure."""

import csv
import io
from collections.abc import Iterable, Sequence

from twins import spreadsheet_text


def csv_of(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def markdown_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table in Markdown; columns that begin with # are of numbers, at the right."""
    return [
        _line(column.removeprefix("#") for column in columns),
        f"|{'|'.join('---:' if column.startswith('#') else '---' for column in columns)}|",
        *(_line(map(_markdown_cell, row)) for row in rows),
    ]


def plain(text: str) -> str:
    """A text of others in Markdown: on one line, without a character that has a meaning there."""
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>()#+!|~&" else character for character in " ".join(text.split()))


def document(*lines: str, notices: Iterable[str]) -> str:
    return "\n".join([*lines, "", *(f"*{notice}*  " for notice in notices), ""])


def warnings_of(*, sample: bool, stale: bool) -> list[str]:
    if sample:
        return ["**A built-in sample: no list has been made from the feeds yet. Do not act on it.**", ""]
    return ["**The feeds behind this list are old.**", ""] if stale else []


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return spreadsheet_text(value)
    return "" if value is None else value


def _markdown_cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return plain(value) if isinstance(value, str) else "" if value is None else str(value)
