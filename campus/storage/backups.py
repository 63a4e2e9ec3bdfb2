"""A backup: one zip archive with every SQLite file as of one moment, and a manifest that it is held against when it is restored.

The files are read while others write. No lock is taken: snapshots of all files are opened one after the other, and again if any file
was written meanwhile. So the archive holds what a loss of power at that moment would have left.
"""

import os
import shutil
import sqlite3
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import IO, Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from campus.errors import StorageError, StorageUnavailable
from campus.storage.errors import BUSY_SECONDS, translate_errors
from campus.storage.migrations import VERSION_TABLE, Place
from campus.storage.sqlite_files import give_to_owner, readable, sync, versions_at

MANIFEST = "manifest.json"
MANIFEST_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
MOMENT_SECONDS = 60.0
"""How long a moment is looked for in which no file is written. It is found at once: it need last no longer than opening the snapshots."""
UNPACKED = "unpacked"
RESTORING = "restoring"
"""A file that is there while the databases of a directory are replaced: none of them is opened meanwhile."""


class Part(BaseModel):
    """A database in a backup: the newest step of its migrations, and of those of features in it; its size in bytes, and its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    step: str | None
    features: dict[str, str] = {}
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """What is in a backup: written by which release, as of which time, and each file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    release: str
    at: AwareDatetime
    parts: dict[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,47}\.db$")], Part]

    def step_of(self, place: Place) -> str | None:
        """The newest step of a building or a feature; None if nothing of it is in the backup."""
        part = self.parts.get(f"{place.database}.db")
        if part is None:
            return None
        return part.features.get(place.feature) if place.feature else part.step


def write_backup(folder: Path, target: Path, *, release: str, now: Callable[[], datetime]) -> None:
    """Write every database of a directory into a new file, which has its name only when it is complete and on disk."""
    if not (files := sorted(folder.glob("*.db"))):
        raise StorageError(f"there is no database in {folder}: nothing was backed up")
    refuse_existing(target)
    with _written(f"the backup {target}"), TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        archive = Path(scratch) / target.name
        with open(archive, "xb", opener=_private) as file:
            _write_archive(file, files, Path(scratch), release, now)
            os.fsync(file.fileno())
        refuse_existing(target)
        archive.rename(target)
        sync(target.parent)


def refuse_existing(target: Path) -> None:
    """Raises StorageError if a backup would overwrite something."""
    if target.exists():
        what = "is a folder; name a file in it" if target.is_dir() else "exists already; name a new file"
        raise StorageError(f"{target} {what}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_archive(file: IO[bytes], files: Sequence[Path], scratch: Path, release: str, now: Callable[[], datetime]) -> None:
    with _snapshots_of(files) as snapshots, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        at = now()
        parts = {path.name: _add(archive, path, snapshot, scratch / path.name) for path, snapshot in snapshots.items()}
        archive.writestr(MANIFEST, Manifest(release=release, at=at, parts=parts).model_dump_json(indent=1))


@contextmanager
def _snapshots_of(files: Sequence[Path]) -> Iterator[Mapping[Path, sqlite3.Connection]]:
    """Connections that read all files as of one moment."""
    with ExitStack() as stack:
        readers = {path: stack.enter_context(_reading(path)) for path in files}
        watchers = [stack.enter_context(_reading(path)) for path in files]
        give_up_at = monotonic() + MOMENT_SECONDS
        while not _open_together(list(readers.values()), watchers):
            for reader in readers.values():
                reader.rollback()
            if monotonic() > give_up_at:
                raise StorageUnavailable(
                    f"the databases were written without a pause for {MOMENT_SECONDS:g} s; back them up at another time"
                )
        yield readers


def _open_together(readers: Sequence[sqlite3.Connection], watchers: Sequence[sqlite3.Connection]) -> bool:
    """Open a snapshot of each file. False if one was written meanwhile: SQLite's data_version changes when another connection commits."""
    before = [watcher.execute("PRAGMA data_version").fetchone() for watcher in watchers]
    for reader in readers:
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
    return before == [watcher.execute("PRAGMA data_version").fetchone() for watcher in watchers]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with translate_errors(f"the database {path}"):
        address = readable(path)
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
            yield connection


def _add(archive: zipfile.ZipFile, path: Path, snapshot: sqlite3.Connection, copy: Path) -> Part:
    """Add what the snapshot shows to the archive, by way of a copy, which is read to its end for damage and then deleted."""
    with translate_errors(f"the backup of {path}"):
        with closing(sqlite3.connect(copy)) as target:
            target.execute("PRAGMA synchronous = OFF")
            snapshot.backup(target)
        snapshot.rollback()  # the log of the original may be emptied again
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?immutable=1", uri=True)) as target:
            if (damage := target.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise StorageError(f"the database {path} is damaged ({damage}): nothing was backed up; restore an earlier backup")
        steps = {table: version.step for table, version in versions_at(copy, "immutable=1").items()}
    digest = sha256()
    with copy.open("rb") as source, archive.open(path.name, "w", force_zip64=True) as part:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            part.write(chunk)
    size = copy.stat().st_size
    copy.unlink()
    step = steps.pop(VERSION_TABLE, None)
    features = {table.removeprefix(f"{VERSION_TABLE}_"): each for table, each in steps.items()}
    return Part(step=step, features=features, bytes=size, sha256=digest.hexdigest())


def restore_backup(file: Path, folder: Path, *, name: str, accept: Callable[[Manifest], None], replace: bool, now: datetime) -> Manifest:
    """Unpack a backup into a directory that no server uses; `name` is what the file is called in errors.

    `accept` raises StorageError if its migrations are unknown here. The databases that are there are refused, or with `replace` moved
    to a folder `before-…` beside them. Everything is unpacked and compared with the manifest before anything is moved.
    """
    there = sorted(path for path in folder.glob("*.db*") if path.is_file())
    if there and not replace:
        kept = "moves what is there to a folder before-… in it"
        raise StorageError(f"{folder} holds {there[0].name} already; name an empty folder in [storage] url, or add --force, which {kept}")
    unpacked = folder / UNPACKED
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        with _written(f"the databases in {folder}"):
            unpacked.mkdir(mode=0o700)
            manifest = _unpack(file, unpacked, name, accept)
            _move(there, folder / f"before-{now:%Y%m%dT%H%M%SZ}", unpacked, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return manifest


def _move(there: Sequence[Path], kept: Path, unpacked: Path, folder: Path) -> None:
    if there:
        kept.mkdir(mode=0o700)
        give_to_owner(kept)
    mark = folder / RESTORING
    mark.touch()
    sync(folder)
    for path in there:
        path.rename(kept / path.name)
    for path in unpacked.iterdir():
        path.rename(folder / path.name)
        give_to_owner(folder / path.name)
    sync(folder)
    mark.unlink()


def _unpack(file: Path, into: Path, name: str, accept: Callable[[Manifest], None]) -> Manifest:
    """Write the parts that the manifest names, each up to its size, under those names only."""
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _read_manifest(archive)
            _compare_names(archive, manifest, name)
            accept(manifest)
            for part_name, part in manifest.parts.items():
                _extract(archive, part_name, part, into / part_name, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, ValidationError) as error:
        raise StorageError(f"{name} is no backup that `campus backup` wrote, or it is damaged; restore another") from error
    sync(into)
    return manifest


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    with archive.open(MANIFEST) as part:
        return Manifest.model_validate_json(part.read(MANIFEST_BYTES))


def _compare_names(archive: zipfile.ZipFile, manifest: Manifest, name: str) -> None:
    there, named = Counter(archive.namelist()), Counter([MANIFEST, *manifest.parts])
    if strange := next(iter((there - named) | (named - there)), None):
        raise StorageError(f"{name} and its manifest differ in {strange!r}: it was changed or is incomplete; restore another backup")


def _extract(archive: zipfile.ZipFile, part_name: str, part: Part, target: Path, name: str) -> None:
    digest, left = sha256(), part.bytes
    with archive.open(part_name) as source, open(target, "xb", opener=_private) as file:
        while left > 0 and (chunk := source.read(min(left, CHUNK_BYTES))):
            digest.update(chunk)
            file.write(chunk)
            left -= len(chunk)
        if left or source.read(1) or digest.hexdigest() != part.sha256:
            raise StorageError(f"{part_name} in {name} is not what its manifest says: it was changed or damaged; restore another backup")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _written(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror}{f' ({error.filename})' if error.filename else ''}") from error
