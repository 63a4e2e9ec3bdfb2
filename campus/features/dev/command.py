"""campus dev: serves what its author edits. A save is loaded by a new process, which takes over the listening socket.

This process holds the socket, the lock of the data and the key; each version of the author's code has a process of its own (see
campus.features.dev.version). A version is served as soon as it is open, and only then the one before it stops: its running calls are
finished, new ones go to the next version. One that cannot be opened changes nothing.
"""

import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Annotated

import anyio
from anyio.abc import TaskGroup, UNIXSocketStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from cyclopts import Parameter
from watchfiles import PythonFilter, awatch

from campus.addresses import Listen
from campus.catalog.loader import installed_buildings
from campus.cli.options import CAMPUS_TOML, ConfigFile
from campus.cli.places import Place, read_place
from campus.cli.processes import ServingProcess, own_group
from campus.config import Config, read_file_target
from campus.core import Core, open_core
from campus.errors import ServeError, unwrapped_errors
from campus.http.server import bind
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.observability.logs import LogLevel, log_to_stderr

WATCHED = (".toml", ".html", ".css")  # Besides Python's files. What a tool writes, such as JSON or a database, is no new version.
KEY = Product("dev", "all", "0", Term(1, "day"))
MODULE_SOUGHT_SECONDS = 1.0
INSPECTOR = "@modelcontextprotocol/inspector@2"


def dev(
    place: Place = None,
    /,
    *,
    host: Annotated[str | None, Parameter(help="The address to listen on; default: that of campus.toml.")] = None,
    port: Annotated[int | None, Parameter(help="The port to listen on; default: that of campus.toml.")] = None,
    config: ConfigFile = CAMPUS_TOML,
    inspector: Annotated[bool, Parameter(negative="", help="Start the MCP Inspector on it, with npx.")] = False,
    log_level: Annotated[LogLevel, Parameter(help="The least important lines to log.")] = "warning",
) -> None:
    """Serve what you edit: load each saved file at once, show each call, and print a key for every scope, until interrupted.

    No call is refused meanwhile. What cannot be loaded is one sentence, and the last good version is served on.
    """
    log_to_stderr(log_level)
    place = place or config
    settings = read_place(place).serving_at(host, port, admin="off")
    words = ("--log-level", log_level)
    with unwrapped_errors():
        anyio.run(_develop, place, settings, words, inspector)


async def _develop(place: Path, settings: Config, words: Sequence[str], inspector: bool) -> None:
    with bind(settings.server.host, settings.server.port) as listener, _forking(place, settings, listener, words) as orders:
        address = Listen(*listener.getsockname()[:2])
        async with open_core(settings, exclusive=True) as core, _key(core) as token, anyio.create_task_group() as tasks:
            tasks.start_soon(_until_a_signal, tasks)
            print(f"http://{address} serves {place}; a saved file is loaded at once, Ctrl-C ends it", flush=True)
            print(f"key for every scope, until it ends: {token}", flush=True)
            with _inspector(f"http://{address}/{next(iter(settings.buildings))}/mcp", token) if inspector else nullcontext():
                saved, watched = anyio.create_memory_object_stream[None](1)
                tasks.start_soon(_watch, folders_of(settings), saved)
                await Versions(orders, tasks).follow(watched)


@contextmanager
def _forking(place: Path, settings: Config, listener: socket.socket, words: Sequence[str]) -> Iterator[socket.socket]:
    """The process that forks for each version; what it is sent on the socket is the new version's own socket."""
    orders, its = socket.socketpair()
    with orders:
        with its:
            at = ("--host", settings.server.host, "--port", str(listener.getsockname()[1]))
            fds = ("--orders", str(its.fileno()), "--listener", str(listener.fileno()))
            command = own_group("dev-versions", str(place), *fds, *at, *words)
            process = Popen(command, stdin=DEVNULL, pass_fds=(its.fileno(), listener.fileno()))  # noqa: S603  # our own command
        try:
            yield orders
        finally:
            orders.close()
            process.wait()


async def _until_a_signal(tasks: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _key(core: Core) -> AsyncIterator[str]:
    """A key that opens every tool, revoked at the end; if this process is killed it ends after a day."""
    keys = KeyRing(core.storage, {KEY.name: KEY}, now=core.now)
    issued = await keys.issue(KEY.name, note="campus dev")
    try:
        yield issued.token
    finally:
        with anyio.CancelScope(shield=True):
            await keys.revoke(issued.key.id)


@contextmanager
def _inspector(url: str, token: str) -> Iterator[None]:
    """The MCP Inspector beside the server, until the block ends; one sentence if it cannot be started."""
    npx = shutil.which("npx")
    if npx is None:
        print("campus: there is no npx for the MCP Inspector; install Node.js, or open the pages of the tools instead", file=sys.stderr)
        yield
        return
    command = [npx, "--yes", INSPECTOR, "--transport", "http", "--server-url", url, "--header", f"Authorization: Bearer {token}"]
    process = Popen(command, start_new_session=True)  # noqa: S603  # the program that was found, with our own arguments
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # what npx has started, too
        process.wait()


async def _watch(folders: Sequence[Path], saved: MemoryObjectSendStream[None]) -> None:
    """Tell of saved files; several before they are read are one. In a home directory, which has too many folders, of its own files only."""
    filtered = PythonFilter(extra_extensions=WATCHED)
    is_home = any(Path.home().is_relative_to(folder) for folder in folders)
    try:
        async for _ in awatch(*folders, watch_filter=filtered, ignore_permission_denied=True, recursive=not is_home):
            with suppress(anyio.WouldBlock):
                saved.send_nowait(None)
    except OSError as error:
        places = ", ".join(map(str, folders))
        raise ServeError(f"changes in {places} cannot be noticed: {error}; move the files into a folder of their own") from None


def folders_of(settings: Config) -> Sequence[Path]:
    """The folders whose files make a version: that of campus.toml, and those of its buildings' packages that are not installed files."""
    entry_points = {one.name: str(getattr(one, "value", "")) for one in installed_buildings()}
    folders = {settings.folder}
    for name, table in settings.buildings.items():
        target = entry_points.get(name) if table.server is None else table.server
        if not isinstance(target, str):
            continue
        if file := read_file_target(target, settings.folder):
            folders.add(file[0].parent)
            continue
        with suppress(ImportError, ValueError):  # the version says that it cannot be imported
            spec = find_spec(target.partition(":")[0].partition(".")[0])
            folders |= {Path(place) for place in (spec and spec.submodule_search_locations) or () if "site-packages" not in place}
    return sorted(one for one in folders if not any(one.is_relative_to(other) for other in folders if other != one))


def is_installed(module: str) -> bool:
    """Whether a module can be found; nothing is imported, neither it nor the packages that it is in."""
    invalidate_caches()
    places = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return False
        places = spec.submodule_search_locations
    return True


class Versions:
    def __init__(self, orders: socket.socket, tasks: TaskGroup) -> None:
        self._orders = orders
        self._tasks = tasks
        self._served: Version | None = None
        self._loading = anyio.CancelScope()
        self._running: set[Version] = set()

    async def follow(self, saved: MemoryObjectReceiveStream[None]) -> None:
        """Serve what there is, and then each new version, until cancelled; then end them all."""
        try:
            self._tasks.start_soon(self._load)
            async for _ in saved:
                self._loading.cancel()  # a later save takes its place
                self._tasks.start_soon(self._load)
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for version in self._running:
                        tasks.start_soon(version.stop)

    async def _load(self) -> None:
        self._loading = loading = anyio.CancelScope()
        version = await Version.forked(self._orders)
        self._running.add(version)
        report = None
        with loading:
            report = await version.report()
        if loading.cancelled_caught:
            self._tasks.start_soon(self._stop, version)
            return
        if report is None or "error" in report:
            why = report["error"].splitlines() if report else ["the process ended while it loaded; the lines above may say why"]
            kept = "the last good version is still served" if self._served else "calls wait until it can be served"
            print(*(f"campus: {sentence}" for sentence in (*why, kept)), sep="\n", flush=True)
            self._tasks.start_soon(self._stop, version)
            if report and (module := report["missing"]):
                await self._load_with(module)
            return
        print("served:", *report["served"], sep="\n  ", flush=True)
        before, self._served = self._served, version
        self._tasks.start_soon(self._watch, version)
        if before:
            self._tasks.start_soon(self._stop, before)

    async def _load_with(self, module: str) -> None:
        """Load it again as soon as the module that was missing can be found, unless a file is saved first."""
        with anyio.CancelScope() as self._loading:
            while not is_installed(module):  # noqa: ASYNC110  # a package may be installed in any way: nothing tells of it
                await anyio.sleep(MODULE_SOUGHT_SECONDS)
            print(f"campus: {module} is there now", flush=True)
            self._tasks.start_soon(self._load)

    async def _stop(self, version: "Version") -> None:
        await version.stop()
        self._running.discard(version)

    async def _watch(self, version: "Version") -> None:
        await version.ended()
        if version is self._served:
            self._served = None
            print("campus: the server's process has ended; save a file to start it again", flush=True)


class Version(ServingProcess):
    @classmethod
    async def forked(cls, orders: socket.socket) -> "Version":
        ours, its = socket.socketpair()
        with its:
            socket.send_fds(orders, [b"."], [its.fileno()])
        version = cls(await UNIXSocketStream.from_socket(ours))
        hello = await version.report()
        if hello is None:
            raise ServeError("the process that starts the versions has ended; start campus dev again")
        version.pid = hello["pid"]
        return version
