"""All databases of one campus: opened once per process, each migrated and handed to its building."""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import anyio
from sqlmodel import SQLModel

from campus.errors import StorageError
from campus.storage.backups import Manifest
from campus.storage.database import Connections, Database, Storage
from campus.storage.migrations import History, Version, history_of, place_of, refuse_unusable
from campus.storage.sqlite import SqliteBackend, open_directory

GROUP = "campus.storage"
"""The entry points of other databases, by the scheme of their addresses: "module:function", which makes a Backend of url and password."""
log = logging.getLogger(__name__)


class Backend(Protocol):
    """A directory of SQLite files, or what an entry point of GROUP makes: one database per name."""

    is_single_process: bool

    def describe(self, name: str) -> str:
        """What to call the database of this name in a sentence."""

    def place_of(self, name: str) -> str:
        """Where the database of this name is: its file, or its database, server and schema."""

    async def versions_of(self, names: Sequence[str]) -> Mapping[str, Version | None]:
        """The newest migration that was run of each history; changes nothing. None where there are no tables."""

    async def upgrade(self, name: str, history: History) -> None:
        """Run the steps that are due, creating the database when it is missing."""

    def connections(self, name: str) -> Connections:
        """Its connections, which are opened at the first use."""

    @property
    def has_several_servers(self) -> bool:
        """Whether `watch` is to run for as long as the databases are open."""

    async def watch(self) -> None:
        """Follow the servers: which of them takes writes."""

    async def findings(self) -> Sequence[str]:
        """Why nothing can be written, or what was written may be lost, a sentence each."""

    async def backup(self, target: str, *, release: str) -> None:
        """Write everything into one file or object."""

    async def restore(self, source: str, *, accept: Callable[[Manifest], None], replace: bool) -> Manifest:
        """Put back what a backup holds; `accept` raises StorageError for one that is not to be restored."""

    def backup_note(self) -> str | None:
        """A sentence when the last backup is missing or old, as far as that is known."""


class Databases:
    """`async with Databases.open(url) as databases`, then `await databases.storage_of(name, tables)`."""

    def __init__(self, backend: Backend, stack: AsyncExitStack, *, migrates: bool, contracts: bool) -> None:
        self._backend = backend
        self._stack = stack
        self._migrates = migrates
        self._contracts = contracts
        self._migrated: set[str] = set()
        self._opened: dict[str, Database] = {}
        self._versions: dict[str, Version | None] = {}

    @staticmethod
    @asynccontextmanager
    async def open(
        url: str,
        *,
        folder: Path = Path(),
        password: str | None = None,
        exclusive: bool = False,
        reading: bool = False,
        migrates: bool = True,
        contracts: bool = False,
    ) -> "AsyncIterator[Databases]":
        """Open `sqlite:DIRECTORY`, relative to `folder`, or the address of another database; StorageError says what is wrong.

        `exclusive` locks a SQLite directory for this process, as serving does; other processes can open it without `exclusive`. On
        others any number of processes may serve. `reading` is for commands that only read: they work on a full or read-only disk.
        Without `migrates`, a database of an older version is refused, which a server of that version may be serving; a new one is made.
        With `contracts`, a database is migrated also by the steps that servers of the release before cannot serve with.
        """
        async with AsyncExitStack() as stack:
            backend = _backend_at(url, folder, password, exclusive=exclusive, reading=reading, stack=stack)
            if backend.has_several_servers:
                await run_until_left(backend.watch, stack)
            yield Databases(backend, stack, migrates=migrates, contracts=contracts)

    @property
    def is_single_process(self) -> bool:
        """Whether at most one process can serve what is stored here."""
        return self._backend.is_single_process

    async def check(self, building_tables: Mapping[str, type[SQLModel]], *, made: bool = False) -> None:
        """Raises StorageError if a database is at a step that its migrations do not contain, or if it has none. Changes nothing.

        Without `migrates` also if it is not at the newest step, and with `made` if it has not been made yet.
        """
        histories = {name: history_of(tables, name) for name, tables in building_tables.items()}
        for name, history in histories.items():
            refuse_unusable(name, building_tables[name], history)
        await self._ask(*histories)
        for name, history in histories.items():
            self._refuse_other(name, history)
            if made and self._versions[name] is None:
                raise StorageError(f"{self.describe(name)} is missing or empty: restart the server, which makes it")

    async def refuse_lost(self, name: str, *, others: Iterable[str]) -> None:
        """Raises StorageError if a database has no tables while others have some: it was lost, and is no new one. Changes nothing."""
        if not await self.is_empty(name):
            return
        if full := [other for other in others if not await self.is_empty(other)]:
            raise StorageError(
                f"{self.describe(name)} is missing or empty, while there is data of {', '.join(full)}: restore all of it from"
                " one backup, or move that data away to begin with nothing"
            )

    async def is_empty(self, name: str) -> bool:
        if name not in self._versions:
            await self._ask(name)
        return self._versions[name] is None

    def describe(self, name: str) -> str:
        database, feature = place_of(name)
        whole = self._backend.describe(database)
        return f"the part {feature} of {whole}" if feature else whole

    def place_of(self, name: str) -> str:
        return self._backend.place_of(name)

    async def findings(self) -> Sequence[str]:
        """Why nothing can be written, or what was written may be lost, a sentence each; empty while all is well."""
        return await self._backend.findings()

    def waiting(self) -> Mapping[str, int]:
        """How many writes of this process wait for those before them, by database."""
        return {name: database.lock.statistics().tasks_waiting for name, database in self._opened.items()}

    def reading(self) -> Mapping[str, int]:
        """On how many connections of its pool this process reads, by database."""
        return {name: database.reading() for name, database in self._opened.items()}

    async def storage_of(self, name: str, tables: type[SQLModel]) -> Storage:
        """A building's storage, migrated by the steps of the nearest folder `migrations` beside or above the module of its tables.

        The same name returns the same object. That of `campus.limits`, a feature, is that of `campus`: one write() holds both tables.
        """
        if name not in self._migrated:
            await self._migrate(name, tables)
            self._migrated.add(name)
        place = place_of(name).database
        if place not in self._opened:
            database = Database(self._backend.connections(place), description=self._backend.describe(place))
            self._stack.push_async_callback(database.close)
            self._opened[place] = database
        return self._opened[place]

    async def backup(self, target: str, *, release: str) -> None:
        """Write every database into a new file, or an object `s3://bucket/key`, while others read and write; SQLite only."""
        await self._backend.backup(target, release=release)

    async def restore(self, source: str, building_tables: Mapping[str, type[SQLModel]], *, replace: bool) -> Manifest:
        """Put the databases of a backup in place and migrate them; SQLite only, opened with `exclusive` and `migrates`.

        Raises StorageError, before anything is changed, for a file that is no backup, or of another version; without `replace` also if
        there are databases, which are kept in a folder beside the new ones.
        """
        histories = {name: history_of(tables, name) for name, tables in building_tables.items()}

        def accept(manifest: Manifest) -> None:
            for name, history in histories.items():
                step = manifest.step_of(place_of(name))
                if step is not None and step not in history.steps:
                    file = f"{place_of(name).database}.db"
                    raise StorageError(f"in {source} the database {file} is at step {step}, {_advice(name, step, history)}")

        manifest = await self._backend.restore(source, accept=accept, replace=replace)
        self._versions.clear()
        for name, tables in building_tables.items():
            await self.storage_of(name, tables)
        return manifest

    def backup_note(self) -> str | None:
        """A sentence when the last backup is missing or old; None also where that is not known."""
        return self._backend.backup_note()

    async def _migrate(self, name: str, tables: type[SQLModel]) -> None:
        history = history_of(tables, name)
        refuse_unusable(name, tables, history)
        if name not in self._versions:
            await self._ask(name)
        self._refuse_other(name, history)
        version = self._versions.pop(name)  # it may change from here on
        step = version.step if version else None
        if step is not None and step not in history.steps:
            log.info("database is of a newer release, with which this one can serve", extra={"building": name, "step": step})
            return
        due = self._due(step, history)
        if step != due.head:
            about = {"building": name, "from_step": step, "to_step": due.head}
            if step is not None:
                log.info("migrating; nothing is served until it has ended", extra=about)
            await self._backend.upgrade(place_of(name).database, due)
            log.info("migrated", extra=about)
        if due != history:
            log.info("steps wait for `campus migrate --contract`", extra={"building": name, "at_step": due.head, "last_step": history.head})

    def _due(self, step: str | None, history: History) -> History:
        return history if self._contracts or step == history.head else history.due(step)

    async def _ask(self, *names: str) -> None:
        """Remember at which steps the databases are, all asked at once, until they are opened."""
        self._versions |= await self._backend.versions_of(names)

    def _refuse_other(self, name: str, history: History) -> None:
        """Refuse a database of a version that the installed one cannot use, unless it may be migrated."""
        version = self._versions[name]
        if version is None or history.admits(version):
            return
        step = version.step
        if step not in history.steps:
            raise StorageError(f"{self.describe(name)} is at step {step}, {_advice(name, step, history)}")
        if step != (needed := self._due(step, history).head) and not self._migrates:
            raise StorageError(
                f"{self.describe(name)} is at step {step}, and the installed version of {name} needs step {needed}:"
                " restart the server, which migrates it"
            )


def _advice(name: str, version: str, history: History) -> str:
    if history.head is not None and version < history.head:
        return (
            f"from which the installed version of {name} has no upgrade: its first step is {history.steps[0]}. Upgrade with a version of"
            f" {name} that has step {version}, or move this database away to begin with an empty one"
        )
    return f"and the installed version of {name} knows the steps up to {history.head}: install the newer version again, or restore a backup"


async def run_until_left(work: Callable[[], Coroutine[Any, Any, None]], stack: AsyncExitStack) -> None:
    """Run work until the stack is left, whose error the task group does not get: it would wrap it."""
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    stack.push_async_callback(tasks.__aexit__, None, None, None)
    stack.callback(tasks.cancel_scope.cancel)
    tasks.start_soon(work)


def _backend_at(url: str, folder: Path, password: str | None, *, exclusive: bool, reading: bool, stack: AsyncExitStack) -> Backend:
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        return SqliteBackend(stack.enter_context(open_directory((folder / rest).absolute(), exclusive=exclusive)), reading=reading)
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind in others:
        backend: Backend = others[kind].load()(url, password)
        return backend
    known = " or ".join(['"sqlite:DIRECTORY"', *(f'"{name}://…"' for name in sorted(others))])
    raise StorageError(f"[storage] url begins with {kind!r}; write {known}")
