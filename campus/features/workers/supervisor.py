"""campus serve --workers: this process holds the listening sockets, and has a number of processes serve on them.

They accept from one queue, which outlives each of them: while a worker is replaced, callers are answered by the others. SIGHUP replaces
all, one after the other, each by a new process that has read campus.toml and imported the buildings' code anew; a worker is stopped
once its successor serves. Uvicorn's own supervisor restarts without a pause what dies, and takes no SIGTERM while it replaces workers.
"""

import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
from anyio.abc import UNIXSocketStream
from anyio.streams.memory import MemoryObjectReceiveStream

from campus.backoff import Backoff
from campus.cli.processes import ServingProcess, own_group
from campus.config import Config
from campus.errors import CampusError, ConfigError, ServeError, unwrapped_errors
from campus.http.server import bind, inherited_listener

log = logging.getLogger(__name__)

STARTS = 5  # How often in a row workers may end before one serves; or while none serves, soon after they began to.
SETTLED_SECONDS = 10.0  # A worker that ends after this long is started again at once, whatever was before.
RESTARTS = Backoff.doubling(0.1, longest=30)


def supervise(count: int, file: Path, read: Callable[[], Config], words: Sequence[str]) -> None:
    """Serve what the file names with so many workers until SIGTERM or SIGINT; `words` are further options of each worker."""
    server = (served := read()).server
    if served.storage.url.startswith("sqlite:"):
        raise ConfigError(
            "--workers needs PostgreSQL, and [storage] url names a folder of SQLite files, which one process serves:"
            " leave --workers out, or move the data with `campus copy`"
        )

    def reread() -> None:
        asked = read()
        if (asked.server.host, asked.server.port, asked.server.admin) != (server.host, server.port, server.admin):
            raise ConfigError("[server] host, port or admin has changed, which takes a restart: the sockets are kept open")

    with unwrapped_errors(), ExitStack() as stack:
        listener = stack.enter_context(inherited_listener() or bind(server.host, server.port))
        operators = stack.enter_context(bind(*server.admin, key="admin")) if server.admin else None
        folder = stack.enter_context(_folder())
        shared = ("--config", str(file), "--folder", folder, "--host", server.host, "--port", str(server.port), *words)
        launch = partial(Worker.started, listener, operators, str(server.admin), shared)
        anyio.run(Workers(count, launch, reread).run)


def _folder() -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="campus-")
    except OSError as error:
        raise ServeError(f"--workers needs a folder for temporary files: {error.strerror}; set TMPDIR, or mount a tmpfs at /tmp") from None


class Worker(ServingProcess):
    def __init__(self, process: Popen[bytes], reports: UNIXSocketStream) -> None:
        super().__init__(reports, process.pid)
        self._process = process
        self._began_at = anyio.current_time()

    @classmethod
    async def started(
        cls, listener: socket.socket, operators: socket.socket | None, admin: str, words: Sequence[str], number: int, *more: str
    ) -> "Worker":
        ours, its = socket.socketpair()
        with its:
            passed = {"--listener": listener, "--reports": its} | ({"--operators": operators} if operators and number == 1 else {})
            files = [word for name, each in passed.items() for word in (name, str(each.fileno()))]
            command = own_group("worker", str(number), "--admin", admin if "--operators" in passed else "off", *files, *words, *more)
            process = Popen(command, stdin=DEVNULL, pass_fds=[each.fileno() for each in passed.values()])  # noqa: ASYNC220, S603
        return cls(process, await UNIXSocketStream.from_socket(ours))

    async def ended(self) -> None:
        await super().ended()
        await anyio.to_thread.run_sync(self._process.wait)

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"

    @property
    def has_settled(self) -> bool:
        return anyio.current_time() - self._began_at > SETTLED_SECONDS


class Workers:
    def __init__(self, count: int, launch: Callable[..., Awaitable[Worker]], reread: Callable[[], None]) -> None:
        self._launch = launch
        self._reread = reread
        self._turns = {number: anyio.Lock() for number in range(1, count + 1)}
        self._serving: dict[int, Worker] = {}
        self._running: set[Worker] = set()
        self._first_serves = anyio.Event()

    async def run(self) -> None:
        """Serve until a signal; CampusError if that cannot be begun, or if it ends and cannot be begun again."""
        asked, reloads = anyio.create_memory_object_stream[None](1)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._keep_all, reloads)
                    async for sent in signals:
                        if sent != signal.SIGHUP:
                            tasks.cancel_scope.cancel()
                        with suppress(anyio.WouldBlock):  # the reload that waits will do
                            asked.send_nowait(None)
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as tasks:
                        for worker in self._running:
                            tasks.start_soon(worker.stop)

    async def _keep_all(self, reloads: MemoryObjectReceiveStream[None]) -> None:
        """The first worker migrates the databases, and says what is wrong with the configuration; the others start when it serves."""
        first, *others = self._turns
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, first)
            await self._first_serves.wait()
            for number in others:
                tasks.start_soon(self._keep, number)
            async for _ in reloads:
                await self._reload()

    async def _keep(self, number: int) -> None:
        failures = 0
        while True:
            async with self._turns[number]:
                if number not in self._serving and (reason := await self._start(number)):
                    failures += 1
                    self._give_up(failures, reason)
            while worker := self._serving.get(number):
                await worker.ended()
                if self._serving[number] is worker:  # no reload has replaced it
                    del self._serving[number]
                    self._running.discard(worker)
                    failures = 0 if worker.has_settled else failures + 1
                    log.error("worker ended", extra={"worker": number, "pid": worker.pid, "reason": worker.how_it_ended})
                    self._give_up(failures, worker.how_it_ended)
            if failures:
                await RESTARTS.sleep(failures)

    def _give_up(self, failures: int, reason: str) -> None:
        """Raise ServeError if nothing serves and trying again does not help."""
        if failures >= STARTS and not self._serving:
            raise ServeError(f"{failures} workers in a row ended soon after their start, the last because {reason}; nothing is served")

    async def _start(self, number: int, *words: str) -> str | None:
        """Have a new worker serve under this number; returns the reason if it cannot."""
        worker = await self._launch(number, *words)
        self._running.add(worker)
        report = await worker.report()
        if report is not None and "error" not in report:
            self._serving[number] = worker
            self._first_serves.set()
            log.info("worker serves", extra={"worker": number, "pid": worker.pid})
            return None
        await worker.ended()
        self._running.discard(worker)
        if report is not None and not self._first_serves.is_set():
            raise CampusError(report["error"])  # as `campus serve` ends
        reason = report["error"] if report else f"{worker.how_it_ended}; the lines above may say why"
        log.error("worker cannot start", extra={"worker": number, "pid": worker.pid, "reason": reason})
        return str(reason)

    async def _reload(self) -> None:
        """Replace each worker by one with the configuration of now; the first that cannot start ends it, and the others serve on."""
        try:
            self._reread()
        except CampusError as error:
            log.error("not reloaded; the workers serve on with the configuration before", extra={"reason": str(error)})
            return
        for number, turn in self._turns.items():
            async with turn:
                before = self._serving.get(number)
                if reason := await self._start(number, "--serve-all"):  # rather the code before than a building less
                    log.error("not reloaded; the other workers serve on as they are", extra={"worker": number, "reason": reason})
                    return
            if before:
                await before.stop()
                self._running.discard(before)
        log.info("reloaded", extra={"workers": len(self._serving)})
