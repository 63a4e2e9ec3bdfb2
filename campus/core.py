"""What every command opens first: the databases, campus's own tables, and the keys."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from sqlmodel import SQLModel

from campus.config import Config, read_config
from campus.feature import named
from campus.installed import installed_features, place_of
from campus.keys.keyring import KeyRing
from campus.keys.makers import Delegates
from campus.keys.sales import Product, Term
from campus.keys.sessions import Sessions
from campus.storage import Storage
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables

__all__ = ["open_storage"]

PASSWORD = "CAMPUS_DATABASE_PASSWORD"  # noqa: S105  # the variable's name, not a password


@dataclass(frozen=True)
class Core:
    databases: Databases
    storage: Storage
    keys: KeyRing
    sessions: Sessions
    now: Callable[[], datetime]
    elapsed: Callable[[], float]


def utc_now() -> datetime:
    return datetime.now(UTC)


def open_databases(
    config: Config, *, exclusive: bool = False, reading: bool = False, migrates: bool = False, contracts: bool = False
) -> AbstractAsyncContextManager[Databases]:
    return Databases.open(
        config.storage.url,
        folder=config.folder,
        password=database_password(config),
        exclusive=exclusive and not config.is_locked,
        reading=reading,
        migrates=migrates,
        contracts=contracts,
    )


@asynccontextmanager
async def open_core(
    config: Config,
    *,
    exclusive: bool = False,
    reading: bool = False,
    now: Callable[[], datetime] = utc_now,
    elapsed: Callable[[], float] = monotonic,
    tables: Mapping[str, type[SQLModel]] | None = None,
    made: bool = False,
) -> AsyncIterator[Core]:
    """Open the database that campus.toml names with campus's own tables and those of features, which are made if there are none.

    `exclusive` is for serving: it claims embedded files for this process, and migrates databases of an older version, which others
    refuse. `reading` is for commands that only read. `tables` are the tables of everything that will be opened on it, so that a
    database of another version is found before anything is written; with `made`, one that is empty is refused too.
    """
    async with open_databases(config, exclusive=exclusive, reading=reading, migrates=exclusive) as databases:
        await databases.check({"campus": CoreTables, **feature_tables(), **(tables or {})}, made=made)
        await databases.refuse_lost("campus", others=config.buildings)
        storage = await databases.storage_of("campus", CoreTables)
        for name, base in feature_tables().items():  # also of those that are not opened: their commands read what was noted
            await databases.storage_of(name, base)
        keys = KeyRing(storage, products_of(config), now=now, delegates=delegates())
        yield Core(databases, storage, keys, Sessions(storage, now=now), now, elapsed)


@asynccontextmanager
async def open_storage(file: Path, *, reading: bool = False) -> AsyncIterator[Storage]:
    """The storage of campus's own tables and of features, as the campus.toml names it: for the commands of a feature."""
    async with open_core(read_config(file), reading=reading) as core:
        yield core.storage


def feature_tables() -> dict[str, type[SQLModel]]:
    return {place_of(name): feature.table_base for name, feature in installed_features().items() if feature.tables}


def delegates() -> list[Delegates]:
    """What finds the clients that features let call with a key."""
    return [named(feature.delegates) for feature in installed_features().values() if feature.delegates]


def database_password(config: Config) -> str | None:
    password = config.secrets.get(PASSWORD)
    return password.get_secret_value() if password else None


def products_of(config: Config) -> dict[str, Product]:
    return {
        name: Product(name, table.scope, table.price, Term.parse(table.term), table.url, table.credits)
        for name, table in config.products.items()
    }
