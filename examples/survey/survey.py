"""Sells a computation: a profile of a table that the caller uploads. The columns' names are free, the profile costs two cents."""

import csv
from collections.abc import Sequence
from io import StringIO
from statistics import fmean, quantiles
from typing import Annotated

import anyio.to_thread
from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict, Field

from campus import Building, Problem, access, free, route

LARGEST = 512 * 1024
MOST_COLUMNS = 200
READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
Table = Annotated[str, Field(description="The table as CSV, its first line the columns' names; at most 512 KiB.")]

mcp = FastMCP("Survey", instructions="Profiles tables: columns is free and says what would be profiled, profile returns it.")


class Result(BaseModel):
    """Base of the results."""

    model_config = ConfigDict(frozen=True)


class Columns(Result):
    """What a table holds."""

    columns: tuple[str, ...] = Field(description="The columns' names.")
    rows: int = Field(description="How many rows follow the first line.")


class Column(Result):
    """The profile of one column."""

    name: str = Field(description="The column's name.")
    filled: int = Field(description="In how many rows it has a value.")
    distinct: int = Field(description="How many different values it has.")
    low: float | None = Field(default=None, description="The smallest number; null unless every value is a number.")
    median: float | None = Field(default=None, description="The number in the middle; null as above.")
    mean: float | None = Field(default=None, description="The mean; null as above.")
    high: float | None = Field(default=None, description="The largest number; null as above.")
    outliers: tuple[str, ...] = Field(default=(), description="At most ten numbers far from the others (1.5 quartile ranges).")


class Profile(Result):
    """The profiles of all columns."""

    rows: int = Field(description="How many rows were read.")
    columns: tuple[Column, ...] = Field(description="A profile of each column, in the table's order.")


@mcp.tool(title="Columns of a table", annotations=READ_ONLY, meta=route("POST /v1/survey/columns", body_limit=LARGEST) | free())
async def columns(table: Table) -> Columns:
    """Return a table's columns and its number of rows, free of charge. Use it before profile, to see that the table is read as meant."""
    names, rows = await anyio.to_thread.run_sync(read, table)
    return Columns(columns=tuple(names), rows=len(rows))


@mcp.tool(
    title="Profile of a table", annotations=READ_ONLY, meta=route("POST /v1/survey/profile", body_limit=LARGEST) | access(price="0.02")
)
async def profile(table: Table) -> Profile:
    """Return for each column of a table how many values it has, and for numbers their spread and outliers. A table that cannot be
    read costs nothing: the call is refused and says which line is wrong."""
    return await anyio.to_thread.run_sync(profile_of, table)


def read(table: str) -> tuple[list[str], list[list[str]]]:
    """The columns' names, and the rows. Raises Problem 422 for what is no table."""
    try:
        lines = [line for line in csv.reader(StringIO(table), strict=True) if line]
    except csv.Error as error:
        raise Problem(422, "no_table", f"the table is not CSV: {error}; send lines of values with commas between them") from None
    if not lines or len(lines[0]) > MOST_COLUMNS:
        raise Problem(422, "no_table", f"the table needs a first line with 1 to {MOST_COLUMNS} names")
    names, *rows = lines
    if odd := next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None):
        raise Problem(422, "no_table", f"row {odd} has another number of values than the first line, {len(names)}; mend it and send again")
    return names, rows


def profile_of(table: str) -> Profile:
    """The profile of a table."""
    names, rows = read(table)
    return Profile(rows=len(rows), columns=tuple(column_of(name, [row[at].strip() for row in rows]) for at, name in enumerate(names)))


def column_of(name: str, values: Sequence[str]) -> Column:
    """The profile of a column."""
    filled = [value for value in values if value]
    numbers = sorted(number for value in filled if (number := number_of(value)) is not None)
    plain = Column(name=name, filled=len(filled), distinct=len(set(filled)))
    if len(numbers) < 2 or len(numbers) < len(filled):
        return plain
    quarter, median, upper = quantiles(numbers, method="inclusive")
    reach = 1.5 * (upper - quarter)
    far = tuple(f"{number:g}" for number in numbers if not quarter - reach <= number <= upper + reach)[:10]
    spread = {"low": numbers[0], "median": median, "mean": fmean(numbers), "high": numbers[-1], "outliers": far}
    return plain.model_copy(update=spread)


def number_of(text: str) -> float | None:
    """A text as a number; None if it is none, or not finite."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e300 else None


building = Building(mcp, problems={"no_table": "The table cannot be read. `detail` names the line; a refused call costs nothing."})
