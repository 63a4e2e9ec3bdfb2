"""SQLite's files: how one is opened for reading, at which step of its migrations it is, to whom it belongs, and that it is on disk."""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from campus.storage.errors import BUSY_SECONDS
from campus.storage.migrations import VERSION_TABLE, Version


def readable(path: Path) -> str:
    """The URI under which SQLite can read a database, even on a full or read-only disk.

    SQLite writes an index of the log into a file beside it, which such a disk refuses. Without a log the file is complete and is
    read as immutable, because no process writes it then.
    """
    address = path.absolute().as_uri()
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return f"{address}?immutable=1"
    return address


def versions_of(path: Path) -> Mapping[str, Version]:
    """The newest step of each history that was run on a file, by the tables that note them; none for a missing or empty one."""
    if not path.exists():
        return {}
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        return versions_at(path, "immutable=1")  # without a log the file is opened as immutable; otherwise SQLite would create a log
    try:
        return versions_at(path, "mode=ro")
    except sqlite3.OperationalError:
        if log.stat().st_size:
            raise
        return versions_at(path, "immutable=1")  # the log is empty and its index cannot be created: the disk is full or read-only


def versions_at(path: Path, mode: str) -> Mapping[str, Version]:
    found = {}
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?", [f"{VERSION_TABLE}*"]).fetchall()
        connection.row_factory = sqlite3.Row
        for (table,) in tables:
            if row := connection.execute(f'SELECT * FROM "{table}"').fetchone():  # noqa: S608  # a name that campus gave
                found[table] = Version(row["version_num"], dict(row).get("usable_from"))
    return found


def give_to_owner(path: Path) -> None:
    """Give a file that root made to the owner of its directory: the service, which has a user of its own, must write it."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
