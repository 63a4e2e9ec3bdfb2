"""A primary of PostgreSQL that is killed or hangs under a mixed load, and the standby that Patroni promotes.

Run by `make faults`, and not by `make test`. FAILOVER_KILLS and FAILOVER_HANGS say how many faults there are where campus is given all
hosts; behind HAProxy, and behind PgBouncer and HAProxy, there is one of each.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic

import anyio
import asyncpg
import pytest
from features.payments.seller import PAY_TO, PRICE
from lab.faults.mixed_load import WRITES, MixedLoad, config_of
from lab.faults.patroni_cluster import Cluster, Node, patroni_cluster
from lab.faults.pgbouncer import pgbouncer
from patience import patience
from serving import serving
from sqlmodel import select

from buildings.recorder.tables import CAPSULES, MONITORS, Tables
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.keys.tables import KeyRow
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(7200), pytest.mark.faults("failed over")]
KILLS, HANGS = int(os.environ.get("FAILOVER_KILLS", "2")), int(os.environ.get("FAILOVER_HANGS", "1"))
SERVED_SECONDS = 10.0
"""From the promotion to the first write."""
PROMOTED_SECONDS = 60.0
LOOK_SECONDS, LONGEST_LOOK = 0.05, 1.0
PURSE = 1_000_000_000
REFUSALS = {"503", "409", "402", "failed"}
"""No call hangs or fails otherwise. 402 and 409 say to send the same payment again, which the callers do until it is answered."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One for all tests, each of which has its own database, in a folder with a short path, as its sockets need it."""
    with (
        TemporaryDirectory(prefix="campus-ha-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        patroni_cluster(Path(folder)) as running,
    ):
        yield running


@dataclass
class Fault:
    """What is done to the primary, and the seconds until a standby was promoted, and from then on until each kind of write succeeded."""

    kind: str
    promoted: float = 0.0
    writes: dict[str, list[float]] = field(default_factory=dict)
    """By kind, in each process."""

    @property
    def first(self) -> float:
        """Until anything was written."""
        return min(map(min, self.writes.values()))


async def takes_writes(port: int) -> bool:
    """Whether this server does; run it on its own event loop, where what a lost connection leaves behind disturbs nobody."""
    with suppress(OSError, asyncpg.PostgresError):
        connection = await asyncpg.connect(user="postgres", host="127.0.0.1", port=port, timeout=LONGEST_LOOK)
        in_recovery = await connection.fetchval("SELECT pg_is_in_recovery()")
        await connection.close()
        return not in_recovery
    return False


@dataclass
class Failovers:
    """A cluster under a load, and the faults so far."""

    cluster: Cluster
    load: MixedLoad
    faults: list[Fault] = field(default_factory=list)

    async def kill(self, *, with_patroni: bool) -> None:
        node = await anyio.to_thread.run_sync(self.cluster.primary)
        async with self._failed_over(Fault("node killed" if with_patroni else "PostgreSQL killed"), node):
            node.send(signal.SIGKILL, with_patroni=with_patroni)
        if with_patroni:
            node.stop()
            node.start()

    async def hang(self) -> None:
        node = await anyio.to_thread.run_sync(self.cluster.primary)
        try:
            async with self._failed_over(Fault("node stopped"), node):
                node.send(signal.SIGSTOP)
        finally:
            node.send(signal.SIGCONT)

    @asynccontextmanager
    async def _failed_over(self, fault: Fault, node: Node) -> AsyncIterator[None]:
        await self.load.answered_since(monotonic())
        began = monotonic()
        yield
        promoted = await self._promotion([other for other in self.cluster.nodes.values() if other is not node])
        answers = await self.load.answered_since(promoted)
        fault.promoted = promoted - began
        fault.writes = {kind: [at - promoted for (each, _), at in answers.items() if each == kind] for kind in WRITES}
        self.faults.append(fault)

    async def _promotion(self, standbys: list[Node]) -> float:
        with anyio.fail_after(patience(PROMOTED_SECONDS)):
            while True:
                for node in standbys:
                    if await anyio.to_thread.run_sync(anyio.run, takes_writes, node.port):
                        return monotonic()
                await anyio.sleep(LOOK_SECONDS)

    def figures(self) -> str:
        lines = []
        for kind in dict.fromkeys(fault.kind for fault in self.faults):
            faults = [fault for fault in self.faults if fault.kind == kind]
            promoted, first = [fault.promoted for fault in faults], [fault.first for fault in faults]
            in_all = [fault.promoted + fault.first for fault in faults]
            each = [f"{write} {_seconds([max(fault.writes[write]) for fault in faults])}" for write in WRITES]
            lines.append(
                f"{len(faults)} × {kind}: promoted {_seconds(promoted)} after it, the first write"
                f" {_seconds(in_all)} after it and {_seconds(first)} after the promotion;"
                f" in both processes {', '.join(each)} after the promotion"
            )
        done = self.load.acknowledged
        counts = (
            f"{done.beats.total()} beats, {len(done.monitors)} registrations, {len(done.keys)} keys, {len(done.revoked)} revocations,"
            f" {len(done.payments)} payments acknowledged, none lost or charged twice"
        )
        refused = ", ".join(f"{count} × {kind} {reason}" for (kind, reason), count in sorted(self.load.refusals.items()))
        slowest = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self.load.slowest.items())
        return "; ".join([*lines, counts, f"refused: {refused or 'none'}", f"slowest: {slowest}"])


@pytest.mark.parametrize("way", ["all hosts", "HAProxy", "PgBouncer and HAProxy"])
async def test_a_failover_loses_nothing_acknowledged_charges_nothing_twice_and_is_followed_by_itself(
    cluster: Cluster, tmp_path: Path, way: str, record_property: Callable[[str, object], None]
) -> None:
    wallet = new_wallet()
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(wallet.address, PURSE)
        with ExitStack() as stack:
            url = stack.enter_context(_database(cluster, way))
            campuses = []
            for name in ("first", "second"):
                (tmp_path / name).mkdir()
                environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "SLOW_TOOL_FOLDER": str(tmp_path)}
                campuses.append(stack.enter_context(serving(tmp_path / name, config_of(url, facilitator), environ=environ)))
            load = MixedLoad(campuses, Payer(wallet))
            failovers = Failovers(cluster, load)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.run)
                kills, hangs = (KILLS, HANGS) if way == "all hosts" else (1, 1)
                for number in range(kills):
                    await failovers.kill(with_patroni=number % 2 == 0)
                for _ in range(hangs):
                    await failovers.hang()
                load.stopping = True
            await anyio.to_thread.run_sync(cluster.primary)
            audits = [await anyio.to_thread.run_sync(campus.command, "audit") for campus in campuses]
            record_property("figures", f"{way}: {failovers.figures()}")
            await nothing_acknowledged_is_lost(load, url)
        charged = [await chain.is_used(wallet.address, nonce) for nonce in load.acknowledged.payments]
        assert all(charged), "an answer was given without a charge"
        assert await chain.balance(PAY_TO) == PRICE * len(charged)
        assert [audit.returncode for audit in audits] == [0, 0], audits
        assert {reason for _, reason in load.refusals} <= REFUSALS, load.refusals
        assert not [fault for fault in failovers.faults if fault.first > patience(SERVED_SECONDS)]


@contextmanager
def _database(cluster: Cluster, way: str) -> Iterator[str]:
    name = "".join(filter(str.isalpha, way.lower()))
    cluster.create_database(name)
    if way == "all hosts":
        yield f"postgresql://postgres@{','.join(f'127.0.0.1:{node.port}' for node in cluster.nodes.values())}/{name}"
    elif way == "HAProxy":
        yield f"postgresql://postgres@127.0.0.1:{cluster.haproxy}/{name}"
    else:
        with pgbouncer(cluster.folder, f"host=127.0.0.1 port={cluster.haproxy}", servers=30) as port:
            yield f"postgresql://postgres@127.0.0.1:{port}/{name}?pgbouncer=true"


async def nothing_acknowledged_is_lost(load: MixedLoad, url: str) -> None:
    async with Databases.open(url) as databases:
        async with (await databases.storage_of("recorder", Tables)).read() as session:
            connection = await session.connection()
            columns = (MONITORS.c.id, MONITORS.c.capsules, MONITORS.c.last_seq, MONITORS.c.beats)
            monitors = {row.id: row for row in (await connection.execute(select(*columns))).all()}
            last_five = (await connection.execute(select(CAPSULES.c.monitor_id, CAPSULES.c.seq))).all()
        async with (await databases.storage_of("campus", CoreTables)).read() as session:
            keys = {key.id: key.revoked_at for key in await session.exec(select(KeyRow))}
    done = load.acknowledged
    assert not done.monitors - monitors.keys()
    assert not done.keys - keys.keys()
    assert not [key for key in done.revoked if keys[key] is None]
    for name, seq in done.last_seq.items():
        row = monitors[name]
        assert row.capsules == row.last_seq >= seq, (name, seq, row)
        assert row.beats >= done.beats[name], (name, done.beats[name], row)
        assert {(name, number) for number in range(max(row.last_seq - 4, 1), row.last_seq + 1)} <= {tuple(one) for one in last_five}


def _seconds(values: Sequence[float]) -> str:
    return f"{values[0]:.1f} s" if len(values) == 1 else f"p50 {median(values):.1f} s, max {max(values):.1f} s"
