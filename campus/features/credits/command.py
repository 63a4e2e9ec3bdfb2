"""campus credits …: what keys have left to spend, their statements, and corrections, also while the server runs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter

from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import read_place
from campus.core import open_core
from campus.errors import ConfigError
from campus.features.credits.accounts import Accounts, as_csv, dollars
from campus.pricing import Price

KeyName = Annotated[str, Parameter(help="A key: its id, or four or more characters of how it begins.")]
AnyKey = Annotated[str, Parameter(help="Only this key, and those that it replaced: its id, or how it begins.")]

app = App(name="credits", version_flags=[])


@app.command(name="list")
def list_accounts(key: AnyKey = "", /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """List the accounts of keys: what is left, what running calls hold, and what was added and spent, in US dollars."""
    accounts = anyio.run(_read, config, key, Accounts.all)
    amounts = ("balance", "held", "added", "spent")
    rows = [{"key": one.lineage, "product": one.product} | {name: dollars(getattr(one, name)) for name in amounts} for one in accounts]
    show(rows, as_json=as_json)


@app.command
def statement(
    key: AnyKey = "",
    /,
    *,
    as_csv_file: Annotated[bool, Parameter(name="--csv", negative="", help="Print CSV instead of a table.")] = False,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Show by day what changed the balance of a key, or of all: what was bought and corrected, and the calls of each tool."""
    entries = anyio.run(_read, config, key, Accounts.statement)
    if as_csv_file:
        print(as_csv(entries), end="")
    else:
        show([one._asdict() for one in entries], as_json=as_json)


async def _read(config: ConfigFile, key: str, what: Callable[[Accounts, str | None], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
    place = read_place(config)
    async with open_core(place, reading=True) as core:
        lineage = (await core.keys.named(key)).lineage if key else None
        return await what(Accounts(core.storage, place.meters, now=core.now), lineage)


@app.command
def correct(
    key: KeyName,
    amount: Annotated[
        str, Parameter(allow_leading_hyphen=True, help='US dollars to add, such as "2.50"; with a minus sign they are subtracted.')
    ],
    /,
    *,
    why: Annotated[str, Parameter(help="The reason, for the statement of the key and for whoever reads it later.")],
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Add to a key's balance, or subtract from it; the statement says so, and by whom."""
    sign, digits = (-1, amount[1:]) if amount.startswith("-") else (1, amount)
    if not why.strip():
        raise ConfigError("--why is empty: say why, for whoever reads the statement")
    try:
        change = sign * Price.parse(digits).atomic
    except ValueError:
        raise ConfigError(f'{amount!r} is not an amount; write US dollars, such as "2.50" or "-1"') from None

    async def corrected() -> dict[str, Any]:
        place = read_place(config)
        async with open_core(place) as core:
            found = await core.keys.correct(key, change, why=why.strip())
            standing = await Accounts(core.storage, place.meters, now=core.now).standing(found)
            return {"key": found.id, "corrected_by": dollars(change), "balance": standing and standing.balance}

    show([anyio.run(corrected)], as_json=as_json)
