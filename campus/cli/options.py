"""The options of every command, --config and --json, and the printing of results."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

ConfigFile = Annotated[Path, Parameter(name="--config", help="The campus.toml to use.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")]

CAMPUS_TOML = Path("campus.toml")


def show(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows as a table, or as JSON."""
    rows = [dict(row) for row in rows]
    if as_json:
        print(json.dumps(rows, indent=2, default=str))
        return
    if not rows:
        print("nothing to show")
        return
    table = [[name.replace("_", " ") for name in rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    """A value as text; characters that would move the cursor or break the line are escaped."""
    text = "-" if value is None or value == "" else str(value)
    return text if text.isprintable() else repr(text)[1:-1]
