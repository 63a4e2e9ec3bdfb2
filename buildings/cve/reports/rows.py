"""Tables in texts as rows by the names of their columns: CSV of all dialects, and what Trivy and Grype print on a terminal. Pure."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from buildings.cve.reports.findings import Unreadable
from buildings.cve.reports.schemes import CVE

DELIMITERS = (",", ";", "\t")
HEAD_WITHIN = 40
"""Lines among which the head of a CSV is looked for: Qualys writes up to eight of titles and sums before it."""
HEAD_WITHIN_CHARACTERS = 1_000_000
LONGEST_NAME = 100
MOST_COLUMNS = 1_000
MOST_ROWS = 200_000
"""More than the findings that are read of a report."""
LONGEST_CELL = 1 << 30
ID_COLUMNS = frozenset(
    {"cve", "cves", "cveid", "cveids", "cvelist", "cvenumber", "cvename", "cvecode", "vulnerabilityid", "vulnerabilityids", "vulnid"}
    | {"vulnerability", "vulnerabilities", "advisory", "advisoryid", "ghsa", "ghsaid", "qid", "plugin", "pluginid", "nvtoid"}
    | {"definitioncve", "identifiers", "otheridentifiers", "aliases", "bdsa"}
)
"""Names of columns, without spaces and signs, that tell the head of a table of vulnerabilities."""

MAY_BE_HEAD = re.compile("vulnerabilit|cve", re.IGNORECASE)
BORDER = re.compile("[│┃|]")
DRAWN = frozenset("│┃|─━═-=+├┤┬┴┼┌┐└┘╞╡╪┏┓┗┛┡┩╇┳┻╋┠┨╂┯┷┿┝┥ \t:")
"""Characters of which the lines between rows are made."""
GAP = re.compile(r"\s{2,}|\t")

Row = dict[str, str]


def column_of(name: str) -> str:
    """A column's name without its spaces, signs and capital letters."""
    return "".join(filter(str.isalnum, name.casefold()))


def _is_head(names: Iterable[str]) -> bool:
    return not ID_COLUMNS.isdisjoint(map(column_of, names))


# CSV


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written: its delimiter, the names in its head, and the number of rows before it."""

    delimiter: str
    names: list[str]
    before: int
    is_known: bool


def dialect_of(text: str) -> Dialect | None:
    """The dialect of a CSV; None if the text is none. A head that names a column of vulnerabilities goes before one that may be a head."""
    csv.field_size_limit(LONGEST_CELL)  # of the process: Nessus writes outputs of plugins beyond the default of 131,072 characters
    dialects = [dialect for delimiter in DELIMITERS if (dialect := _dialect(text, delimiter))]
    return max(dialects, key=lambda dialect: (dialect.is_known, len(dialect.names)), default=None)


def _dialect(text: str, delimiter: str) -> Dialect | None:
    first = list(islice(_cells(text[:HEAD_WITHIN_CHARACTERS], delimiter), HEAD_WITHIN))
    fallback = None
    for before, cells in enumerate(first):
        names = [column_of(cell) for cell in cells[: MOST_COLUMNS + 1]]
        filled = [name for name in names if name]
        if not 2 <= len(filled) <= len(names) <= MOST_COLUMNS or max(map(len, cells)) > LONGEST_NAME or any(map(CVE.search, cells)):
            continue
        if _is_head(names):
            return Dialect(delimiter, names, before, is_known=True)
        is_followed = before + 1 < len(first) and len(first[before + 1]) == len(cells)
        if not fallback and is_followed and len(set(filled)) == len(names) > 2:
            fallback = Dialect(delimiter, names, before, is_known=False)
    return fallback


def csv_rows(text: str, dialect: Dialect) -> tuple[list[Row], list[Unreadable]]:
    """The rows below the head that have a cell, and those that cannot be read."""
    rows: list[Row] = []
    unreadable: list[Unreadable] = []
    cells: list[str] = []
    number = 0
    for number, cells in enumerate(_cells(text, dialect.delimiter), start=1):
        if number <= dialect.before + 1 or not any(cells):
            continue
        if len(cells) > MOST_COLUMNS:
            unreadable.append(Unreadable(f"row {number}", f"it has {len(cells):,} columns"))
        elif len(rows) < MOST_ROWS:
            rows.append(_row(dialect.names, cells))
        else:
            unreadable.append(Unreadable(f"row {number} and all after it", f"only {MOST_ROWS:,} rows are read; send it in parts"))
            break
    if rows and text.count('"') % 2 and any("\n" in cell for cell in cells):
        unreadable.append(Unreadable(f"row {number}", "a quotation mark is never closed: all that follows it is one cell"))
    return rows, unreadable


def _cells(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _row(names: Iterable[str], cells: Iterable[str]) -> Row:
    """The cells by the names of their columns; of columns of the same name the first that is filled."""
    row: Row = {}
    for name, cell in zip(names, cells, strict=False):
        row[name] = row.get(name) or cell.strip()
    return row


# Tables on a terminal


def printed_rows(text: str) -> list[Row]:
    """The rows of all tables in a text whose head has a column of vulnerabilities, with `target`: the line of text before the table."""
    rows: list[Row] = []
    lines = iter(text.splitlines())
    target = ""
    for line in lines:
        if MAY_BE_HEAD.search(line) and (table := _table(line)):
            names, read = table
            read_rows = islice(read(line, lines), MOST_ROWS - len(rows))
            rows += ({**_row(map(column_of, names), cells), "target": target} for cells in read_rows)
        elif not DRAWN.issuperset(line) and not line.startswith("Total:"):
            target = line.strip()
    return rows


def _table(head: str) -> tuple[list[str], Callable[[str, Iterator[str]], Iterator[list[str]]]] | None:
    for names, read in ((_split(head), _boxed_rows), (GAP.split(head.strip()), _aligned_rows)):
        if 2 < len(names) <= MOST_COLUMNS and _is_head(names) and not CVE.search(head):
            return names, read
    return None


def _split(line: str) -> list[str]:
    """The cells of a line with borders."""
    return [cell.strip() for cell in BORDER.split(line.strip())[1:-1]]


def _boxed_rows(head: str, lines: Iterator[str]) -> Iterator[list[str]]:
    """Rows with borders. A row may take several lines; a cell may be drawn over several rows, and belongs to each of them.

    In Markdown, and where no line is drawn between rows, each line is a row.
    """
    borders = [match.start() for match in BORDER.finditer(head)]
    row: list[str] = []
    above: list[str] = []
    block: list[list[str]] = []
    for line in lines:
        if not line.strip() or not (DRAWN.issuperset(line) or BORDER.match(line.strip())):
            break
        if not DRAWN.issuperset(line):
            block.append(_split(line))
        elif block:
            row = [cell or over for cell, over in zip(map(_joined, zip(*block, strict=False)), above, strict=False)]
            yield row
            above = ["" if line[begin + 1 : end].strip() else cell for cell, begin, end in zip(row, borders, borders[1:], strict=False)]
            block = []
        else:
            above = [""] * len(borders)
    yield from block


def _joined(cells: Iterable[str]) -> str:
    return " ".join(filter(None, cells))


def _aligned_rows(head: str, lines: Iterator[str]) -> Iterator[list[str]]:
    """Rows without borders, whose cells begin below the names of their columns."""
    begins = [0, *(match.end() for match in GAP.finditer(head.rstrip()) if match.start())]
    for line in lines:
        if not line.strip():
            return
        yield [line[begin:end] for begin, end in zip(begins, (*begins[1:], None), strict=True)]
