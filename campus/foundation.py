"""What every command stands on: the database, the house's own room in it, and the keys."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import SQLModel

from campus.config import Config
from campus.keys.keyring import KeyRing
from campus.keys.product import Product
from campus.keys.term import Term
from campus.storage import House, Storage, Vault

PASSWORD = "CAMPUS_DATABASE_PASSWORD"  # noqa: S105  # the variable's name, not a password


@dataclass(frozen=True)
class Foundation:
    """An open database; `storage` is the room of campus's own tables."""

    vault: Vault
    storage: Storage
    keys: KeyRing


def utc_now() -> datetime:
    """The time, aware, in UTC."""
    return datetime.now(UTC)


@asynccontextmanager
async def lay_foundation(
    config: Config,
    *,
    exclusive: bool = False,
    reading: bool = False,
    now: Callable[[], datetime] = utc_now,
    rooms: Mapping[str, type[SQLModel]] | None = None,
) -> AsyncIterator[Foundation]:
    """Open the database that campus.toml names, its own tables migrated; `exclusive` claims embedded files for this process.
    `reading` is for commands that only read.

    `rooms` are the tables of all that will be opened on it: what is of a newer version is found before anything is written.
    """
    password = config.secrets.get(PASSWORD)
    async with Vault.open(
        config.storage.url,
        folder=config.folder,
        password=password.get_secret_value() if password else None,
        exclusive=exclusive,
        reading=reading,
    ) as vault:
        await vault.check({"campus": House, **(rooms or {})})
        await vault.refuse_lost("campus", beside=config.buildings)
        storage = await vault.room("campus", House)
        yield Foundation(vault, storage, KeyRing(storage, products_of(config), now=now))


def products_of(config: Config) -> dict[str, Product]:
    """What campus.toml sells."""
    return {name: Product(name, table.scope, table.price, Term.parse(table.term), table.url) for name, table in config.products.items()}
