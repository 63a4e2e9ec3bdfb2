"""campus backup and restore: all SQLite databases in one file, or in one object of an S3-compatible store, and back."""

import sys
from importlib.metadata import version
from typing import Annotated

import anyio
from cyclopts import Parameter

from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import read_place
from campus.cli.running import ask, report, tables_of
from campus.core import open_databases
from campus.observability import utc_text
from campus.storage.backups import Manifest


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
    if settings.sells_calls:
        since = f"campus ledger reconcile --since {manifest.at:%Y-%m-%d}"
        print(f"`{since}` lists what was paid since and is not in the backup; make up for it with `campus key issue`", file=sys.stderr)
    report(anyio.run(ask, config, "audit"), as_json=False)
