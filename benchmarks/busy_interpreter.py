"""How long a transaction of beats takes while another thread keeps the interpreter busy: `busy_interpreter FOLDER SECONDS`.

SECONDS is the interpreter's switch interval. Prints the milliseconds of each transaction as JSON, first alone, then beside the other
thread. The folder holds a recorder's database. It runs on all CPUs: on one alone a thread seldom finds the interpreter taken.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

import anyio

from benchmarks.monitors import MONITORS, SECRET, database_file, monitor_id
from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.sql import record_beats
from campus.secrets import digest_of
from campus.storage.sqlite_connections import SqliteConnections

TRANSACTIONS = 30
BEATS = 64


async def measured(file: Path) -> tuple[list[float], list[float]]:
    """Alone, and beside a thread that computes."""
    connections = SqliteConnections(file)
    try:
        alone = await transactions(connections)
        with computing():
            return alone, await transactions(connections)
    finally:
        await connections.close()


async def transactions(connections: SqliteConnections) -> list[float]:
    """The milliseconds of each."""
    digest = digest_of(SECRET)
    found = []
    for number in range(TRANSACTIONS):
        now = datetime.now(UTC)
        beats = [Beat(monitor_id((number * BEATS + place) % MONITORS), digest, now, "ok") for place in range(BEATS)]
        began = perf_counter()
        await connections.transact(partial(record_beats, beats=beats))
        found.append(1000 * (perf_counter() - began))
    return found


@contextmanager
def computing() -> Iterator[None]:
    """Compute in a thread."""
    ended = Event()

    def compute() -> None:
        while not ended.is_set():
            sum(number * number for number in range(1_000))

    thread = Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    sys.setswitchinterval(float(sys.argv[2]))
    print(json.dumps(anyio.run(measured, database_file(Path(sys.argv[1])))))
