"""A job's process, `child.py KIND [FILE]` for one of the jobs below, and a process that runs it, `child.py parent KIND FILE`."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import anyio

from campus.jobs import process
from campus.jobs.process import Report, report_to_parent, run_in_process


async def reports() -> Report:
    print("what a job prints is no part of its report")
    return Report("the feed is closed", [("shop", "sales", {"kind": "pen"}, 2)])


async def dies() -> Report:
    os.kill(os.getpid(), signal.SIGKILL)
    return Report()


async def waits(file: Path) -> Report:
    note(file, os.getpid())
    try:
        await anyio.sleep_forever()
    finally:
        note(file, "cancelled")
    return Report()


async def stays(file: Path) -> Report:
    """A job that goes on when it is cancelled, in a process that waits less long for its end."""
    process.STOP_SECONDS = 0.1
    note(file, os.getpid())
    await anyio.to_thread.run_sync(time.sleep, 1_000)
    return Report()


def note(file: Path, text: object) -> None:
    file.write_text(str(text))


if __name__ == "__main__":
    kind, *files = sys.argv[1:]
    if kind == "parent":
        anyio.run(run_in_process, [sys.executable, __file__, *files])
    else:
        report_to_parent(partial({"reports": reports, "dies": dies, "waits": waits, "stays": stays}[kind], *map(Path, files)))
