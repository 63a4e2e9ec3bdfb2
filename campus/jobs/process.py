"""A job in a process of its own, whose work delays no call and ends no server.

It has a low priority, is the first to be ended where memory is short, and ends with its run and with this process.

The two sides are connected by two pipes. Nothing is written to the child's standard input: when it ends, because the run was cancelled
or because this process was killed, the child cancels its job, and is killed if the job does not end. Its standard output is one
Report; what the job prints goes to standard error, as the log does.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread

from campus.errors import JobFailed

STOP_SECONDS = 5.0  # How long a job that is cancelled may take to end.
LARGEST_PART = 1 << 16
FIRST_TO_END = 900
"""Of 1,000: the kernel, when memory is short, ends this process before the server, which goes on with what it has."""
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Has glibc return memory as soon as it is freed: columns of megabytes come and go. It saves some 10 MB of the refresh's peak."""


@dataclass(frozen=True)
class Report:
    """How a job ended: why it failed, None if it did not; and what it counted, as the arguments of Metrics.add."""

    error: str | None = None
    counted: Sequence[tuple[str, str, Mapping[str, str], int]] = field(default_factory=list)


async def run_in_process(command: Sequence[str], *, niceness: int = 0) -> Report:
    """Run a command that calls `report_to_parent`, and return its report; JobFailed when it ends without one.

    `niceness` is the child's, 0 to 19; a higher one leaves more of the processor to others. The child stays in this session: Linux
    divides the processor among sessions first, and by priority only within each.
    """
    environment = MALLOC | os.environ
    # not anyio.open_process: uvloop forks, which copies the page tables, and no call is answered for 10 ms; Popen does so in 0.4
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: ASYNC220, S603  # our own command
    try:
        with suppress(OSError):  # it has ended, or may not be changed
            os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        with suppress(OSError):  # the same, or this is not Linux
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(FIRST_TO_END))  # noqa: ASYNC240  # it is no disk
        said = await _read(process)
        status = await _wait(process)
    finally:
        await _end(process)
    if status:
        raise JobFailed(f"its process {_end_of(status)}")
    try:
        return Report(**json.loads(said))
    except (ValueError, TypeError):
        raise JobFailed("its process ended without a report; the log has the reason") from None


async def _read(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    parts: list[bytes] = []
    while not parts or parts[-1]:
        await anyio.wait_readable(process.stdout)
        parts.append(os.read(process.stdout.fileno(), LARGEST_PART))
    return b"".join(parts)


async def _wait(process: subprocess.Popen[bytes]) -> int:
    return await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


async def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with anyio.CancelScope(shield=True):
        process.stdin.close()
        process.terminate()  # ends a child that still imports; later it ignores this
        with anyio.move_on_after(STOP_SECONDS):
            await _wait(process)
        process.kill()
        await _wait(process)
        process.stdout.close()


def _end_of(status: int) -> str:
    if status > 0:
        return f"ended with status {status}; the log has the reason"
    return f"was ended by {signal.Signals(-status).name}" + ("; it may have needed too much memory" if status == -signal.SIGKILL else "")


def report_to_parent(work: Callable[[], Awaitable[Report]]) -> None:
    """The child's side: do the work until it is done or the parent wants or is no more, then report."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of its standard input is what tells it to stop
    report_file = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    report = anyio.run(_until_parent_ends, work)
    with os.fdopen(report_file, "w") as file:
        json.dump(asdict(report), file)


async def _until_parent_ends(work: Callable[[], Awaitable[Report]]) -> Report:
    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    with anyio.CancelScope() as scope:
        Thread(target=_cancel_with_parent, args=(call_soon, scope.cancel), daemon=True).start()
        return await work()
    return Report("it was cancelled")


def _cancel_with_parent(call_soon: Callable[[Callable[[], Any]], Any], cancel: Callable[[], Any]) -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written to this pipe, so it returns when the parent has closed it
    call_soon(cancel)
    time.sleep(STOP_SECONDS)
    os._exit(1)
