"""The options of every command, --config and --json, and the printing of results."""

import json
import sys
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from campus.observability import utc_text

ConfigFile = Annotated[Path, Parameter(name="--config", help="The campus.toml to use, or a file with a server.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")]

CAMPUS_TOML = Path("campus.toml")


def optional_utc(moment: datetime | None) -> str | None:
    return utc_text(moment) if moment else None


def show(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows as a table, or as JSON."""
    output = Output(as_json=as_json)
    output.show(rows)
    output.end()


async def show_pages(pages: AsyncIterable[Iterable[Mapping[str, Any]]], *, as_json: bool) -> None:
    """Print rows like `show`, each page as soon as it is there; a later page may have wider columns."""
    output = Output(as_json=as_json)
    async for rows in pages:
        output.show(rows)
    output.end()


class Output:
    """A table, or a JSON array, of which more and more is printed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._widths: list[int] = []
        self._is_empty = True

    def show(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if rows := [dict(row) for row in rows]:
            (self._show_json if self._as_json else self._show_table)(rows)
            self._is_empty = False

    def end(self) -> None:
        if self._as_json:
            print("[]" if self._is_empty else "\n]")
        elif self._is_empty:
            print("nothing to show")

    def _show_json(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = json.dumps(rows, indent=2, default=str)
        print(text[:-2] if self._is_empty else f",{text[1:-2]}", end="", flush=True)  # without the brackets in between

    def _show_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        table = [[_cell(value) for value in row.values()] for row in rows]
        if self._is_empty:
            table.insert(0, [name.replace("_", " ") for name in rows[0]])
        widest = [max(map(len, column)) for column in zip(*table, strict=True)]
        self._widths = list(map(max, widest, self._widths or widest))
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, self._widths, strict=True)).rstrip())
        sys.stdout.flush()


def _cell(value: Any) -> str:
    """A value as text; characters that would move the cursor or break the line are escaped."""
    text = "-" if value is None or value == "" else str(value)
    return text if text.isprintable() else repr(text)[1:-1]
