"""Keys by the hundred thousand: a call with any of them, the start of the server, and the first lines of `campus key list`."""

import random
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from sqlalchemy import insert

from benchmarks.comparisons import Comparison, in_turns, lines_of
from benchmarks.costs import Start
from benchmarks.figures import Line, line_of_costs
from benchmarks.load import Target, ask
from benchmarks.processes import campus
from benchmarks.wire import get
from campus.keys.repository import new_row
from campus.keys.tables import KeyRow
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from tests.serving import CAMPUS, free_port, write_config

MANY, FEW = 100_000, 10
USED = 20_000
"""Keys that a load goes round: twice as many as there were places in a cache."""
TERM = timedelta(days=30)
PATH = "/v1/brief/today"
CONFIG = """
[storage]
url = "sqlite:data"

[products.cve]
scope = "cve"
price = "19"
term = "30 days"

[buildings.cve]
sample = true
kev_url = "file:///nowhere"
osv_ecosystems = []
kev_mirror_url = "file:///nowhere"
epss_url = "file:///nowhere"
nvd_url = "file:///nowhere"
"""
LOADED_SECONDS = 5.0
"""A server has read its keys by then."""


def key_lines(folder: Path, *, rounds: int, seconds: float, times: int) -> Iterator[Line]:
    """Everything about many keys."""
    folder.mkdir()

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        place = folder / f"calls{number}"
        place.mkdir()
        tokens = anyio.run(fill, place, MANY)
        with campus(place, CONFIG) as (server, _):
            time.sleep(LOADED_SECONDS)
            (exchange,) = ask(server, [get(PATH, port=server.port, key=tokens[0])])
            used = [get(PATH, port=server.port, key=token) for token in random.sample(tokens, USED)]
            any_key = Target(server, [replace(exchange, request=request) for request in used])
            yield [Comparison(f"a call with any of {MANY:,} keys ÷ with the same key again", 0.5, any_key, Target(server, [exchange]))]

    yield from lines_of(in_turns(opened, rounds=rounds, seconds=seconds))
    yield from start_lines(folder, times=times)
    for count in (FEW, MANY):
        waits = [first_line_seconds(folder / f"keys{count}" / "campus.toml") for _ in range(times)]
        yield line_of_costs(f"campus key list of {count:,} keys: first line", unit="s", costs=waits, goal=1.0)


def start_lines(folder: Path, *, times: int) -> Iterator[Line]:
    """The start of the server with many keys, as a share of that with few."""
    starts = []
    for count in (FEW, MANY):
        place = folder / f"keys{count}"
        place.mkdir()
        anyio.run(fill, place, count)
        config = write_config(place, CONFIG, port=(port := free_port()))
        starts.append(Start(f"with {count:,} keys", [CAMPUS, "serve", "--config", config], port, "/v1/brief/teaser"))
        starts[-1].spent()
    shares = [starts[1].spent()[0] / starts[0].spent()[0] for _ in range(times)]
    yield line_of_costs(f"campus serve, exec to first 200, with {MANY:,} keys ÷ with {FEW}", unit="", costs=shares, goal=1.2)


def first_line_seconds(config: Path) -> float:
    """Seconds from exec to the first byte of the list."""
    began = time.perf_counter()
    with subprocess.Popen([CAMPUS, "key", "list", "--config", config], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        waited = time.perf_counter() - began
        process.stdout.read()
    return waited


async def fill(folder: Path, count: int) -> list[str]:
    """Make campus's database below a folder, with as many keys; returns their tokens."""
    issued_at = datetime.now(UTC)
    made = [
        new_row("cve", "cve", issued_at=issued_at, expires_at=issued_at + TERM, note="", entropy=secrets.token_bytes) for _ in range(count)
    ]
    async with Databases.open("sqlite:data", folder=folder) as databases:
        storage = await databases.storage_of("campus", CoreTables)
        async with storage.write() as session:
            await (await session.connection()).execute(insert(KeyRow), [row.model_dump() for row, _ in made])
    return [token for _, token in made]
