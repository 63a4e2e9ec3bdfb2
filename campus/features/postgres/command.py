"""campus copy: from SQLite files to an empty PostgreSQL database."""

from collections.abc import Sequence
from typing import Annotated

import anyio
from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import read_place
from campus.cli.running import tables_of
from campus.config import Config
from campus.core import database_password, open_databases
from campus.errors import StorageError
from campus.features.postgres.copying import CopiedTable, copy_databases
from campus.storage.databases import Databases


def copy(
    url: Annotated[
        str, Parameter(help="The empty database, as postgresql://user@host/database; its password is CAMPUS_DATABASE_PASSWORD.")
    ],
    /,
    *,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """Copy everything that is stored in SQLite to an empty PostgreSQL database; stop the server first.

    Nothing is changed in the SQLite files. Afterwards set [storage] url to that address.
    """
    if not url.startswith("postgresql:"):
        raise StorageError(f"{url!r} is no address of PostgreSQL, written as postgresql://user@host/database; `campus backup` copies files")
    copied = anyio.run(_copy_to, url, read_place(config))
    show([one._asdict() for one in copied], as_json=as_json)


async def _copy_to(url: str, config: Config) -> Sequence[CopiedTable]:
    tables = await tables_of(config)
    async with open_databases(config, exclusive=True) as source, Databases.open(url, password=database_password(config)) as target:
        if not source.is_single_process:
            raise StorageError("[storage] url names a PostgreSQL database already; copy it with pg_dump and pg_restore")
        await source.refuse_lost("campus", others=config.buildings)
        return await copy_databases(source, target, tables)
