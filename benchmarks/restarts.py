"""Calls that are lost while a loaded server is told to stop and another starts: at one address, with systemd's socket, and one of two."""

import asyncio
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from benchmarks.figures import Line, line_of_costs
from benchmarks.processes import FIRST, HOST, LAST, on_cpu, seconds_to_first_answer, spawn, stop
from benchmarks.wire import get
from tests.serving import CAMPUS, free_port, write_config

CONFIG = """
[buildings.cve]
sample = true
kev_url = "file:///nowhere"
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
"""
PATH = "/v1/brief/teaser"
CONNECTIONS = 64
PAUSE = 0.02
"""Seconds between an answer and the next call on a connection."""
RETRY = 0.01
LOADED_SECONDS = 1.0
"""Of load before and after a restart."""
FIRST_INHERITED = 3
"""The descriptor of the first socket that systemd hands over."""
WITH_SOCKET = f'exec {FIRST_INHERITED}<&"$1"; shift; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'


@dataclass
class Calls:
    """What became of the calls: answered; lost, which were sent and had no answer; or refused, which no connection could be had for."""

    answered: int = 0
    lost: int = 0
    refused: int = 0
    longest_wait: float = 0.0
    """Seconds from the wish to call to the answer, at most."""


@dataclass
class Caller:
    """One caller: a connection at a time to one of the ports, to another where that is refused."""

    ports: Sequence[int]
    calls: Calls
    turn: int = 0
    _connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None, init=False)

    async def run(self) -> None:
        """Call until cancelled."""
        while True:
            began = perf_counter()
            while not await self._call():
                pass
            self.calls.longest_wait = max(self.calls.longest_wait, perf_counter() - began)
            self.calls.answered += 1
            await asyncio.sleep(PAUSE)

    async def _call(self) -> bool:
        """Whether a call was answered."""
        port = self.ports[self.turn % len(self.ports)]
        try:
            reader, writer = self._connection = self._connection or await asyncio.open_connection(HOST, port)
        except OSError:
            self.calls.refused += 1
            self.turn += 1
            await asyncio.sleep(RETRY)
            return False
        if reader.at_eof():  # it was closed while it was idle, and no call is sent
            return self._left()
        writer.write(get(PATH, port=port))
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError):
            self.calls.lost += 1
            return self._left()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"port {port} answered {head!r}")
        if b"connection: close" in head:
            self._left()
        return True

    def _left(self) -> bool:
        assert self._connection is not None
        self._connection[1].close()
        self._connection = None
        return False


async def calls_during(restart: Callable[[], None], ports: Sequence[int]) -> Calls:
    """Call the ports while servers are restarted, for a second before and after too."""
    calls = Calls()
    async with anyio.create_task_group() as tasks:
        for number in range(CONNECTIONS):
            tasks.start_soon(Caller(ports, calls, number).run)
        await anyio.sleep(LOADED_SECONDS)
        await anyio.to_thread.run_sync(restart)
        await anyio.sleep(LOADED_SECONDS)
        tasks.cancel_scope.cancel()
    return calls


class Restarted:
    """A campus that is started again and again, with the same port and data; with `listener` it finds that socket open."""

    def __init__(self, folder: Path, *, listener: socket.socket | None = None) -> None:
        folder.mkdir(parents=True)
        self.port: int = listener.getsockname()[1] if listener else free_port()
        self._config = write_config(folder, CONFIG, port=self.port)
        self._listener = listener
        self.start()

    def start(self) -> None:
        """Start it, and wait for its first answer."""
        command: list[str | Path] = [CAMPUS, "serve", "--config", self._config]
        with on_cpu(FIRST):
            if self._listener is None:
                self._process = spawn(command)
            else:
                handed = self._listener.fileno()
                command = ["sh", "-c", WITH_SOCKET, "sh", str(handed), *command]
                self._process = subprocess.Popen(command, pass_fds=[handed], stderr=subprocess.DEVNULL)
        seconds_to_first_answer(self._process, self.port, "/healthz")

    def stop(self) -> None:
        """Tell it to stop, and wait for its end."""
        stop(self._process)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()


def restart_lines(folder: Path, *, times: int) -> Iterator[Line]:
    """Calls that are lost or refused, and the longest wait of a call, in each kind of restart."""
    for name, restarted in (
        ("restart at one address", one_address),
        ("restart with systemd's socket", with_socket),
        ("two servers, each restarted", one_of_two),
    ):
        found = [restarted(folder / f"{name.replace(' ', '-')}-{number}") for number in range(times)]
        answered = median(calls.answered for calls in found)
        yield line_of_costs(f"{name}: calls lost, of {answered:,.0f}", unit="calls", costs=[calls.lost for calls in found], goal=0)
        is_goal = restarted is with_socket
        refused = [calls.refused for calls in found]
        yield line_of_costs(f"{name}: connections refused", unit="", costs=refused, goal=0 if is_goal else None)
        yield line_of_costs(f"{name}: longest wait of a call", unit="s", costs=[calls.longest_wait for calls in found])


def one_address(folder: Path) -> Calls:
    """One server, which takes its address anew."""
    return _measured([Restarted(folder)])


def with_socket(folder: Path) -> Calls:
    """One server, whose socket stays open."""
    with socket.create_server((HOST, 0), backlog=2048) as listener:
        return _measured([Restarted(folder, listener=listener)])


def one_of_two(folder: Path) -> Calls:
    """Two servers with data of their own, one restarted after the other; callers whose connection is refused go to the other."""
    return _measured([Restarted(folder / name) for name in ("first", "second")])


def _measured(servers: Sequence[Restarted]) -> Calls:
    def restart() -> None:
        for server in servers:
            server.restart()

    with ExitStack() as stack, on_cpu(LAST):
        for server in servers:
            stack.callback(server.stop)
        work = partial(calls_during, restart, [server.port for server in servers])
        return anyio.run(work, backend_options={"use_uvloop": True})
