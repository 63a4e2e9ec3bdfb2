"""Starts programs by forking a process that has already imported campus, since the import takes longer than most tests.

Each is a separate process with its own memory, signals, output and exit code. A test of Python's start runs the program
by `subprocess` instead. The server runs this file too: see its end.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, Literal

PIPE: Final = "pipe"
File = IO[bytes] | Literal["pipe"] | None
"""A process's input or output: a file, a pipe, or the same as this process's."""
CAMPUS = "from campus.__main__ import main\nmain()"
"""The program of the `campus` command."""
IMPORTED = (
    "campus.__main__",
    "campus.cli.keys",
    "campus.features.payments.command",
    "campus.cli.running",
    "buildings.checkout",
    "buildings.cve.building",
    "buildings.gateway",
    "buildings.recorder",
    "alembic.autogenerate",
    "anyio._backends._asyncio",
    "asyncpg",
    "uvicorn.lifespan.off",
    "uvloop",
)
"""The modules that most programs import; the campus command imports those that it needs."""
PAYMENTS = ("x402.http", "x402.mechanisms.evm.exact")
"""The modules of programs that accept payments."""
LONGEST_REQUEST = 1 << 20
NUMBER = 4
"""Bytes of a process's id, and of its exit code."""


@dataclass
class Forked:
    """A process with the methods of subprocess.Popen; as a context manager it is killed when the block ends."""

    pid: int
    args: tuple[str, ...]
    """Its command line."""
    stdin: IO[str] | None
    stdout: IO[str] | None
    stderr: IO[str] | None
    _ended: int = field(repr=False)
    """The descriptor where its exit code can be read once."""
    returncode: int | None = None
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        for each in filter(None, (self.stdin, self.stdout, self.stderr)):
            each.close()

    def __del__(self) -> None:
        os.close(self._ended)

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._look(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, sent: int) -> None:
        with suppress(ProcessLookupError):  # it has ended, but its exit code is not read yet
            if self.poll() is None:
                os.kill(self.pid, sent)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            with self._one_at_a_time:  # another thread may wait for it too
                if self.returncode is None:
                    self.returncode = number_from(self._ended)
        return self.returncode


class ForkServer:
    """A process that imports modules once and forks for each program."""

    def __init__(self, *prefix: str, path: Iterable[str] = (), first: str = "") -> None:
        """Start it; `prefix` is a command that runs the one after it, such as `nice`.

        It runs the source `first` before any program, and finds modules in `path` too.
        """
        self._requests, there = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        words = [*prefix, sys.executable, "-P", __file__, str(there.fileno()), first]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        with there:
            self._process = subprocess.Popen(words, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=environ)
        atexit.register(self.close)

    def start(
        self,
        code: str,
        *words: str,
        environ: Mapping[str, str] | None = None,
        imports: Iterable[str] = (),
        only: bool = False,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
    ) -> Forked:
        """Run a program's source with these arguments.

        `imports` are modules that the server imports once for all such programs, besides those of IMPORTED, or `only` these.
        """
        request = {
            "code": code,
            "words": ["campus", *words],
            "environ": {**os.environ, **(environ or {})},
            "folder": str(Path.cwd()),
            "imports": [*(() if only else IMPORTED), *imports],
        }
        with ExitStack() as theirs, self._one_at_a_time:
            ends = [ends_of(file, number, theirs) for number, file in enumerate((stdin, stdout, stderr))]
            ended, reports = os.pipe()
            theirs.callback(os.close, reports)
            socket.send_fds(self._requests, [json.dumps(request).encode() + b"\n"], [*(its for _, its in ends), reports])
            theirs.close()
            return Forked(number_from(ended), words, ends[0][0], ends[1][0], ends[2][0], ended)

    def run(self, code: str, *words: str, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.start(code, *words, stdout=PIPE, stderr=PIPE, **options) as process, ThreadPoolExecutor(2) as readers:
            said = [readers.submit(each.read) for each in (process.stdout, process.stderr) if each]
            try:
                code_of_exit = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(words, code_of_exit, *(each.result() for each in said))

    def close(self) -> None:
        atexit.unregister(self.close)
        self._requests.close()
        self._process.wait()


def ends_of(file: File, number: int, theirs: ExitStack) -> tuple[IO[str] | None, int]:
    if not isinstance(file, str):
        return None, number if file is None else file.fileno()
    ends = os.pipe()
    its, our = (ends[0], ends[1]) if number == 0 else (ends[1], ends[0])
    theirs.callback(os.close, its)
    return os.fdopen(our, "w" if number == 0 else "r"), its


@cache
def shared() -> ForkServer:
    return ForkServer()


def number_from(descriptor: int) -> int:
    data = os.read(descriptor, NUMBER)
    assert len(data) == NUMBER, "the fork server has ended"
    return int.from_bytes(data, signed=True)


def write_number(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the reader has ended
        os.write(descriptor, number.to_bytes(NUMBER, signed=True))


# What follows runs in the server.


def fork_for(requests: socket.socket) -> dict[str, Any]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted test run ends it by closing the socket
    while True:
        data, descriptors, *_ = socket.recv_fds(requests, LONGEST_REQUEST, 4)
        while data and not data.endswith(b"\n"):
            data += requests.recv(LONGEST_REQUEST)
        with suppress(ChildProcessError):  # the CPU of ended ones is counted as the server's, and so as the tests'
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if not data:
            sys.exit()
        request: dict[str, Any] = json.loads(data)
        import_all(request["imports"])
        if os.fork() == 0:
            requests.close()
            keep(*descriptors)
            return request
        for each in descriptors:
            os.close(each)


def import_all(names: Iterable[str]) -> None:
    if missing := [name for name in names if name not in sys.modules]:
        limit = sys.getrecursionlimit()  # a blockchain library raises it
        gc.disable()
        for name in missing:
            import_module(name)
        gc.freeze()
        gc.enable()
        sys.setrecursionlimit(limit)
    assert threading.active_count() == 1, "a process with threads cannot be forked"


def keep(stdin: int, stdout: int, stderr: int, reports: int) -> None:
    if pid := os.fork():
        for each in (stdin, stdout, stderr):
            os.close(each)
        write_number(reports, pid)
        write_number(reports, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.close(reports)
    for number, each in enumerate((stdin, stdout, stderr)):
        os.dup2(each, number)
        os.close(each)


def become(request: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)  # under nohup, or in the background, the server ignores some
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["folder"])
    sys.argv[:] = request["words"]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    program = sys.modules["__main__"] = ModuleType("__main__")
    exec(request["code"], vars(program))


if __name__ == "__main__":
    exec(sys.argv[2], {})
    gc.freeze()
    become(fork_for(socket.socket(fileno=int(sys.argv[1]))))
