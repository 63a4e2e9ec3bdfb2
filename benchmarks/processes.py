"""Starts servers as processes, each pinned to one CPU while the load runs on another, and measures their CPU and memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection

from tests.serving import CAMPUS, Served, free_port, serving

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[1]
PAGE = os.sysconf("SC_PAGE_SIZE")
FIRST, LAST = 0, -1
START_SECONDS = 90
NO_LIMITS = '\n[limits]\nfree = "off"\nkeyed = "off"\nunpaid = "off"\n'
"""For one caller that makes as many calls as it can."""
PATIENCE = 0.002
CPUS = sorted(os.sched_getaffinity(0))
"""All CPUs, even inside `on_cpu`."""


@dataclass(frozen=True)
class Server:
    """A process that listens on a port of this machine."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """CPU seconds of all its threads so far, user and system: the kernel's clock of the process, in nanoseconds."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory(self) -> float:
        """Its resident memory, in MB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE / 1e6


@dataclass(frozen=True)
class Spent:
    """The cost of a process that has ended: CPU seconds, user and system, and peak memory in MB."""

    cpu: float
    peak: float


@contextmanager
def on_cpu(which: int) -> Iterator[None]:
    """Pin this thread, and what it starts in the block, to one CPU: servers to the first, the load to the last."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CPUS[which : which + 1 or None])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def environment() -> dict[str, str]:
    """The environment of a child process that imports this package."""
    return {"PYTHONPATH": str(ROOT)}


@contextmanager
def campus(
    folder: Path, text: str, *, environ: Mapping[str, str] | None = None, limits: str = NO_LIMITS
) -> Iterator[tuple[Server, Served]]:
    """`campus serve` on one CPU; `text` and `limits` are campus.toml after its first table, `environ` is added to its environment."""
    with ExitStack() as stack:
        with on_cpu(FIRST):
            served = stack.enter_context(serving(folder, f"{text}{limits}", environ={**environment(), **(environ or {})}, fresh=True))
        yield Server(int(served.url.rpartition(":")[2]), served.process.pid), served


@contextmanager
def baseline(module: str, *words: str, environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    """`python -m benchmarks.<module> PORT …` on one CPU; `environ` is added to its environment."""
    with running(module, *words, cpu=FIRST, environ=environ) as (process, port):
        seconds_to_first_answer(process, port, "/healthz")
        yield Server(port, process.pid)


@contextmanager
def running(
    module: str, *words: str, cpu: int, environ: Mapping[str, str] | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run a module of this package as a server process; yields the process and its port."""
    port = free_port()
    with on_cpu(cpu):
        process = spawn(own_module(module, str(port), *words), environ=environ)
    try:
        yield process, port
    finally:
        stop(process)


def own_module(module: str, *words: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-m", f"benchmarks.{module}", *words]


def spawn(command: Sequence[str | Path], *, environ: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a process without output."""
    return subprocess.Popen(command, env={**os.environ, **environment(), **(environ or {})}, stderr=subprocess.DEVNULL)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a process and wait for it."""
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def seconds_to_first_answer(process: "subprocess.Popen[bytes]", port: int, path: str) -> float:
    """Wait until GET `path` answers 200; returns the seconds since the call. Call it right after starting the process."""
    began = time.perf_counter()
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode()
    while time.perf_counter() - began < START_SECONDS:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode} instead of serving")
        try:
            with create_connection((HOST, port), timeout=START_SECONDS) as connection:
                connection.sendall(request)
                if connection.recv(64).startswith(b"HTTP/1.1 200"):
                    return time.perf_counter() - began
        except ConnectionError:
            pass
        time.sleep(PATIENCE)
    raise RuntimeError(f"{process.args!r} did not answer within {START_SECONDS} s")


def run_campus(*words: str | Path) -> Spent:
    """Run `campus …` to its end and return the cost of the process. Raises RuntimeError when it fails."""
    process = subprocess.Popen([CAMPUS, *words], env={**os.environ, **environment()}, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{process.args!r} failed: {said.decode()[-500:]}")
    return Spent(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)  # the kernel counts memory in kilobytes
