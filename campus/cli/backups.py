"""campus backup, restore and copy: SQLite databases into one file or object of an S3-compatible store, and back; or into PostgreSQL."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import anyio
from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import read_place
from campus.cli.running import ask, report, tables_of
from campus.config import Config
from campus.core import database_password, open_databases
from campus.errors import StorageError
from campus.observability import utc_text
from campus.storage import Databases
from campus.storage.backups import Manifest
from campus.storage.copying import CopiedTable, copy_databases


def backup(
    path: Annotated[str, Parameter(help="A new file; or s3://BUCKET/KEY, with AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and the like.")],
    /,
    *,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write every SQLite database into one file, all as of one moment, also while the server runs; for PostgreSQL use pg_dump.

    Secrets of the environment and campus.toml are not in it.
    """

    async def write() -> None:
        settings = read_place(config)
        async with open_databases(settings, reading=True) as databases:  # of any version: a backup comes before an upgrade
            await databases.refuse_lost("campus", others=settings.buildings)
            await databases.backup(path, release=version("mcp-campus"))

    anyio.run(write)
    print(path)


def restore(
    path: Annotated[str, Parameter(help="A file that `campus backup` wrote, or s3://BUCKET/KEY.")],
    /,
    *,
    force: Annotated[bool, Parameter(negative="", help="Move databases that are there to a folder before-… beside them.")] = False,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Put the databases of a backup in place, then audit them; exit code 1 when anything is inconsistent. Stop the server first.

    A backup of an older release is migrated. Nothing is changed if the file was damaged or is of a newer release.
    """
    settings = read_place(config)

    async def put_back() -> Manifest:
        async with open_databases(settings, exclusive=True, migrates=True) as databases:
            return await databases.restore(path, await tables_of(settings), replace=force)

    manifest = anyio.run(put_back)
    at = utc_text(manifest.at)
    print(f"restored {', '.join(manifest.parts)} as of {at}", file=sys.stderr)
    print(f"revoke again what was revoked since {at}, and issue again what was issued; then start the server", file=sys.stderr)
    if settings.payments:
        since = f"campus ledger reconcile --since {manifest.at:%Y-%m-%d}"
        print(f"`{since}` lists what was paid since and is not in the backup; make up for it with `campus key issue`", file=sys.stderr)
    report(anyio.run(ask, config, "audit"), as_json=False)


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
