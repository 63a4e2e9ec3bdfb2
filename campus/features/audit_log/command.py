"""campus audit-log: who called which tool, how that ended and what it cost, and who changed which key; also while the server runs."""

import csv
import json
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

import anyio
from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import read_place
from campus.core import open_core
from campus.errors import ConfigError
from campus.features.audit_log.log import audit_entries
from campus.pricing import Price
from campus.storage import Storage
from twins import spreadsheet_text

COLUMNS = ("at", "who", "frame", "building", "tool", "outcome", "usd", "request_id")
BEGINNING = date(2000, 1, 1)


def audit_log(
    *,
    since: Annotated[date | None, Parameter(help="The first UTC day, YYYY-MM-DD; default: that of the first entry.")] = None,
    until: Annotated[date | None, Parameter(help="The last UTC day, included; default: today.")] = None,
    format: Annotated[Literal["json", "csv"], Parameter(help="json: an object per line; or csv.")] = "json",  # noqa: A002  # the option's name
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write the audit log to standard output, the oldest entry first; a running server's entries appear within 10 seconds.

    Changes of keys are always in it, calls and acts of the operator's pages while campus.toml has [audit_log].
    """
    first = datetime.combine(since or BEGINNING, time(), UTC)
    last = datetime.combine(until or datetime.now(UTC).date(), time(), UTC)
    if first > last:
        raise ConfigError(f"--since {first.date()} is after --until {last.date()}; exchange them")

    async def run() -> None:
        async with open_core(read_place(config), reading=True) as core:
            await (_write_csv if format == "csv" else _write_json)(_rows(core.storage, first, last + timedelta(days=1)))

    anyio.run(run)


async def _rows(storage: Storage, since: datetime, until: datetime) -> AsyncIterator[Mapping[str, Any]]:
    async for entry in audit_entries(storage, since=since, until=until):
        usd = None if entry.amount is None else str(Price(entry.amount))
        at = entry.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        yield {name: getattr(entry, name, None) for name in COLUMNS} | {"at": at, "usd": usd}


async def _write_json(rows: AsyncIterator[Mapping[str, Any]]) -> None:
    async for row in rows:
        print(json.dumps(row))


async def _write_csv(rows: AsyncIterator[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    async for row in rows:
        writer.writerow(spreadsheet_text(value) if isinstance(value, str) else value for value in row.values())
