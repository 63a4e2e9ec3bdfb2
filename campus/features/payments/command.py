"""campus ledger …: list, sum, count, export and reconcile payments with the chain, also while the server runs."""

import csv
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Annotated, Any, Literal, TypeVar

import anyio
from cyclopts import App, Parameter
from cyclopts.validators import Number

from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import read_place
from campus.config import Config
from campus.core import open_core, utc_now
from campus.errors import ConfigError
from campus.features.payments.audit import Findings
from campus.features.payments.feature import payments_table
from campus.features.payments.ledger import Accounts, Period, Revenue, accounts_of
from campus.features.payments.reconciler import Resolution
from campus.features.payments.setup import Payments, open_payments
from campus.features.payments.tables import LedgerRow
from campus.observability import utc_text
from campus.pricing import Price
from twins import spreadsheet_text

T = TypeVar("T")
Since = Annotated[date | None, Parameter(help="The first UTC day, YYYY-MM-DD; default: that of the first entry.")]
Until = Annotated[date | None, Parameter(help="The last UTC day, included; default: today.")]
MOST_LISTED = 1_000_000
COLUMNS = tuple(LedgerRow.__table__.columns.keys())  # type: ignore[attr-defined]  # sqlmodel adds it to every table class
COUNTED_LATE = "terms appear here up to a minute after they were shown"
LOOKED_BACK = timedelta(days=30)

app = App(name="ledger", version_flags=[])


def ask(config: ConfigFile, question: Callable[[Accounts], Awaitable[T]], *, own: bool = False) -> T:
    async def run() -> T:
        place = read_place(config)
        async with open_core(place, reading=True) as core:
            return await question(Accounts(core.storage) if own else accounts_of(place, core.storage))

    return anyio.run(run)


def _period(since: date | None, until: date | None) -> Period:
    if since and until and since > until:
        raise ConfigError(f"--since {since} is after --until {until}; exchange them")
    return Period(since, until)


@app.command(name="list")
def list_entries(
    like: Annotated[str, Parameter(help="Only those of a payment: its id, its transaction, its payer, or how one begins.")] = "",
    /,
    *,
    last: Annotated[int, Parameter(help="How many of the newest entries.", validator=Number(gte=1, lte=MOST_LISTED))] = 50,
    since: Since = None,
    until: Until = None,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Show the newest entries: offers (402s shown, with their number), admissions, settlements, replays, failures.

    Offers appear here up to a minute after they were shown, all else at once.
    """
    entries = ask(config, lambda accounts: accounts.last(last, _period(since, until), like=like))
    show([{**as_data(entry), "usd": usd(entry.amount)} if as_json else _line(entry) for entry in entries], as_json=as_json)


@app.command(name="sum")
def sum_revenue(
    *,
    since: Since = None,
    until: Until = None,
    own: Annotated[bool, Parameter(negative="", help="Count payments of own_wallets too, as the chain does.")] = False,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Sum what was earned, by UTC day, tool and network."""
    revenue = ask(config, lambda accounts: accounts.revenue(_period(since, until)), own=own)
    shown = ("day", "building", "tool", "network", "payments", "usd", *(["amount"] if as_json else []))
    show([_columns(one, shown) for one in revenue], as_json=as_json)
    for line in () if as_json else totals(revenue):
        print(line)


def totals(revenue: Sequence[Revenue]) -> Iterator[str]:
    for network, its in groupby(sorted(revenue, key=lambda one: one.network), key=lambda one: one.network):
        of_it = list(its)
        yield f"{network}: ${Price(sum(one.amount for one in of_it))} by {sum(one.payments for one in of_it)} payments"


@app.command
def states(*, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Count and sum the payments by state, own wallets included; `unproven` ones count as settled, and the chain does not show them."""
    found = ask(config, lambda accounts: accounts.states())
    show([{**_columns(one, ("state", "payments", "usd")), "oldest_at": utc_text(one.oldest_at)} for one in found], as_json=as_json)


@app.command
def funnel(*, since: Since = None, until: Until = None, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Show by UTC day and tool how often terms were shown (402), how often they were paid, and by how many addresses.

    Payments of own_wallets are left out. Callers who pay without asking first were not shown terms, so that conversion may be above 1.
    Terms appear here up to a minute after they were shown.
    """
    found = ask(config, lambda accounts: accounts.funnel(_period(since, until)))
    show([_columns(one, ("day", "building", "tool", "shown", "paid", "conversion", "payers")) for one in found], as_json=as_json)
    if not as_json:
        print(COUNTED_LATE)


@app.command
def export(
    *,
    format: Annotated[Literal["csv", "json"], Parameter(help="csv, or json: an array of objects.")] = "csv",  # noqa: A002  # the option's name
    since: Since = None,
    until: Until = None,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write every entry to standard output, for bookkeeping: income is what was `settled`, less what was `reversed`.

    `amount` is in the token's smallest unit, `usd` in US dollars.
    """

    write = _write_csv if format == "csv" else _write_json
    ask(config, lambda accounts: write(accounts.entries(_period(since, until))))


@app.command
def reconcile(
    *,
    since: Annotated[date | None, Parameter(help="The first UTC day of the charges to look up, YYYY-MM-DD; default: 30 days ago.")] = None,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Resolve payments in doubt and compare the ledger with the chain; exit code 1 when they differ.

    Shows every charge that is not on the chain, and every transfer to the wallet that no payment of this ledger claims. A payment in
    doubt whose answer is stored is submitted again, as a job does by itself: its authorization is charged once at most.
    """
    resolutions, found = anyio.run(_reconcile, read_place(config), since)
    rows = [_finding(one, one.payment_id, one.before, one.after) for one in resolutions]
    rows += [_finding(one, one.payment_id, "settled", "not on the chain") for one in found.missing]
    rows += [_finding(one, one.payment_id, None, "unclaimed", at=one.at) for one in found.unclaimed]
    if rows or as_json:
        show(rows, as_json=as_json)
    else:
        print("all is well")
    sys.exit(1 if found.missing or found.unclaimed else 0)


async def _reconcile(config: Config, since: date | None) -> tuple[Sequence[Resolution], Findings]:
    day = since or (utc_now() - LOOKED_BACK).date()
    async with _payments(config) as payments:
        return await payments.reconcile(datetime.combine(day, time(), UTC))


@app.command
def accept_unproven(*, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Accept payments that were reported as settled and are not on the chain, once you know why.

    While there are any, every paid call waits until the chain shows its payment; afterwards small ones wait only seconds again.
    """

    async def accepted() -> Sequence[dict[str, Any]]:
        async with _payments(read_place(config)) as payments:
            return [_finding(one, one.id, one.state, "accepted", at=one.reserved_at) for one in await payments.unproven.accept()]

    show(anyio.run(accepted), as_json=as_json)


@asynccontextmanager
async def _payments(config: Config) -> AsyncIterator[Payments]:
    if (table := payments_table(config)) is None:
        raise ConfigError("campus.toml has no table [payments], so there is no chain to compare with; add it, or uncomment its lines")
    async with (
        open_core(config) as core,
        open_payments(table, core.storage, core.keys.sales, secrets=config.secrets, now=utc_now) as payments,
    ):
        yield payments


def _columns(row: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _finding(one: Any, payment: str | None, was: str | None, now: str, *, at: datetime | None = None) -> dict[str, Any]:
    amount = getattr(one, "amount", None)  # a resolution has neither amount nor payer
    who = {
        "network": one.network,
        "transaction": one.transaction,
        "payer": getattr(one, "payer", None),
        "amount": amount,
        "usd": usd(amount),
    }
    return {"payment": payment, "was": was, "is": now, **who, "at": at and utc_text(at), "reason": one.reason}


async def _write_csv(entries: AsyncIterator[LedgerRow]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*COLUMNS, "usd"])
    async for entry in entries:
        # a caller wrote some of the texts, which a spreadsheet could take for formulas
        cells = [spreadsheet_text(value) if isinstance(value, str) else value for value in as_data(entry).values()]
        writer.writerow([*cells, usd(entry.amount)])


async def _write_json(entries: AsyncIterator[LedgerRow]) -> None:
    separator = "["
    async for entry in entries:
        print(separator, json.dumps({**as_data(entry), "usd": usd(entry.amount)}), sep="\n", end="")
        separator = ","
    print("[]" if separator == "[" else "\n]")


def as_data(entry: LedgerRow) -> dict[str, Any]:
    """An entry with its own column names, times as RFC 3339 with microseconds."""
    return {name: getattr(entry, name) for name in COLUMNS} | {"at": entry.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def usd(amount: int | None) -> str | None:
    return None if amount is None else str(Price(amount))


def _line(entry: LedgerRow) -> dict[str, Any]:
    return {
        "at": utc_text(entry.at),
        "event": entry.event,
        "tool": f"{entry.building}.{entry.tool}",
        "frame": entry.frame,
        "times": entry.quantity,
        "usd": usd(entry.amount),
        "payment": entry.payment_id,
        "payer": entry.payer,
        "transaction": entry.transaction,
        "detail": entry.detail,
    }
