"""A served recorder that is killed with SIGKILL at named points, and what happened to its alerts and beats.

A point is reached by blocking there: a trigger in the database stalls the transaction that makes a monitor dead, fills the
outbox, claims a message or deletes delivered alerts; for `send` the receiver does not answer.
"""

import json
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx
from recorder.receivers import Authority
from recorder.recorders import SECRET, monitor_row
from serving import Served, serving
from sqlalchemy import Connection, insert, select, text, update

from buildings.recorder.monitors.state_machine import Schedule
from buildings.recorder.tables import ALERTS, CAPSULES, MONITOR_TARGETS, MONITORS, OWNERS, TARGETS, TICKS, Tables
from campus.secrets import digest_of
from campus.storage import in_transaction
from campus.storage.databases import Databases
from tests import patient
from tests.patience import patience

CONFIG = """
openapi = "recorder"
[storage]
url = "{storage}"
[web]
allowed_hosts = ["localhost"]
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"
[buildings.recorder]
shared_hosts = ["localhost"]
alerts_per_target = 1000
"""
POINTS = {
    "death": "AFTER UPDATE OF mode ON monitor",
    "outbox": "AFTER INSERT ON alert",
    "claim": "AFTER UPDATE OF leased_until ON target",
    "send": None,
    "mark": "AFTER DELETE ON alert",
}
SCHEDULE = Schedule(timedelta(hours=1), timedelta(minutes=5))
PATIENCE = 60.0


class WebhookReceiver(ThreadingHTTPServer):
    """An HTTPS receiver that counts the events of each death, and answers no request while `open` is not set."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), WebhookRequest)
        self.tls = authority.server
        self.ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.deliveries: Counter[tuple[str, str]] = Counter()
        self.open = threading.Event()
        self.open.set()
        self.held = threading.Event()

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        return self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed leaves broken connections."""

    def url(self, path: str) -> str:
        return f"https://localhost:{self.server_port}{path}"


class WebhookRequest(BaseHTTPRequestHandler):
    """One request."""

    server: WebhookReceiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.server.open.is_set():
            self.server.held.set()
            self.server.open.wait(PATIENCE)
        for event in body.get("events", [body]):
            if event["type"] == "monitor.dead":
                death = (event["monitor"]["id"], event["since"])
                self.server.ids[death].add(self.headers["webhook-id"])
                self.server.deliveries[death] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


@contextmanager
def webhook_receiver(authority: Authority) -> Iterator[WebhookReceiver]:
    with WebhookReceiver(authority) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.open.set()
        server.shutdown()


@dataclass
class KilledRecorder:
    """A recorder with `count` monitors, each with its own target, that is served and killed repeatedly."""

    folder: Path
    storage: str
    authority: Authority
    webhook_receiver: WebhookReceiver
    count: int
    hits: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def served(self) -> Iterator[Served]:
        environ = {"SSL_CERT_FILE": str(self.authority.file)}
        with serving(self.folder, CONFIG.format(storage=self.storage), environ=environ) as campus:
            yield campus

    def do(self, work: Callable[[Connection], Any]) -> Any:
        async def worked() -> Any:
            async with Databases.open(self.storage) as databases:
                return await in_transaction(await databases.storage_of("recorder", Tables), work)

        return anyio.run(worked)

    def fill(self) -> None:
        """Create the databases by starting the recorder, and the monitors."""
        with self.served():
            pass
        self.do(partial(fill, count=self.count, url=self.webhook_receiver.url))

    def give_key(self) -> None:
        with self.served() as campus:
            issued = json.loads(campus.command("key", "issue", "recorder", "--json").stdout)[0]
        self.do(partial(_give_key, lineage=issued["id"]))

    def round(self, point: str) -> None:
        due = datetime.now(UTC) - timedelta(seconds=2)
        self.do(partial(_make_due, due=due))
        since = f"{due:%Y-%m-%dT%H:%M:%S.%f}Z"
        with self.stalled(point), self.served() as campus:
            self.wait_for(lambda: self.is_stalled(point), campus, due=due)
            campus.process.kill()
            campus.process.wait()
            self.hits[point] += 1
        self.do(_let_leases_lapse)
        with self.served() as campus:
            self.wait_for(lambda: self.reported(since) == self.count and self.do(_waiting) == 0, campus, due=due)
            campus.process.kill()

    def reported(self, since: str) -> int:
        return sum(death == since for _, death in list(self.webhook_receiver.ids))

    @contextmanager
    def stalled(self, point: str) -> Iterator[None]:
        event = POINTS[point]
        if event is None:
            self.webhook_receiver.held.clear()
            self.webhook_receiver.open.clear()
            yield
            self.webhook_receiver.open.set()
            return
        self.do(partial(_stall, event=event))
        yield
        if self.storage.startswith("postgresql"):
            self._sleepers("pg_terminate_backend(pid)")
        self.do(partial(_unstall, table=event.rpartition(" ")[2]))

    def is_stalled(self, point: str) -> bool:
        if POINTS[point] is None:
            return self.webhook_receiver.held.is_set()
        if self.storage.startswith("postgresql"):
            return self._sleepers()
        return all(self._is_locked() for _ in range(4))

    def _sleepers(self, select: str = "pid") -> bool:
        async def asked() -> bool:
            async with Databases.open(self.storage) as databases, (await databases.storage_of("recorder", Tables)).read() as session:
                question = text(f"SELECT {select} FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
                return (await (await session.connection()).execute(question)).first() is not None

        return anyio.run(asked)

    def _is_locked(self) -> bool:
        time.sleep(0.05)
        path = Path(self.storage.removeprefix("sqlite:")) / "recorder.db"
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def wait_for(self, condition: Callable[[], bool], campus: Served, *, due: datetime) -> None:
        deadline, outages = time.monotonic() + patience(PATIENCE), 0
        while not condition():
            assert time.monotonic() < deadline, f"not reached; so far: {dict(self.hits)}\n{campus.log}"
            if (seen := campus.log.count("was not watching")) > outages:
                outages = seen
                self.do(partial(_set_back, due=due))
            time.sleep(0.02)

    def figures(self) -> Mapping[str, int]:
        assert all(len(ids) == 1 for ids in self.webhook_receiver.ids.values())
        deliveries = self.webhook_receiver.deliveries.values()
        return {
            "deaths": len(self.webhook_receiver.ids),
            "deliveries": sum(deliveries),
            **{f"kills at {point}": hits for point, hits in self.hits.items()},
        }


def fill(connection: Connection, *, count: int, url: Callable[[str], str]) -> None:
    """Insert monitors mon_0, mon_1, … with SECRET, each with its own target at /0, /1, …."""
    now = datetime.now(UTC)
    targets = [
        {"id": f"tgt_{number}", "kind": "webhook", "address": url(f"/{number}"), "identity": digest_of(str(number))}
        for number in range(count)
    ]
    fresh = {"secret": b"k" * 32, "attempts": 0, "verified_at": now, "host": "localhost"}
    connection.execute(insert(TARGETS), [{**one, **fresh, "sender": f"net:{one['id']}"} for one in targets])
    connection.execute(insert(MONITORS), [monitor_row(f"mon_{number}", SCHEDULE, now) for number in range(count)])
    links = [{"monitor_id": f"mon_{number}", "target_id": f"tgt_{number}", "place": 0} for number in range(count)]
    connection.execute(insert(MONITOR_TARGETS), links)


def _make_due(connection: Connection, *, due: datetime) -> None:
    """Make all monitors due, with a tick of now, so that it is no outage."""
    connection.execute(update(MONITORS).values(mode="up", deadline_at=due, due_at=due))
    _keep_time(connection)


def _set_back(connection: Connection, *, due: datetime) -> None:
    """Make the monitors that are not dead yet due again."""
    connection.execute(update(MONITORS).where(MONITORS.c.mode == "up").values(deadline_at=due, due_at=due))
    _keep_time(connection)


def _keep_time(connection: Connection) -> None:
    if not connection.execute(update(TICKS).values(at=datetime.now(UTC)).returning(TICKS.c.id)).all():
        connection.execute(insert(TICKS).values(id=1, at=datetime.now(UTC)))


def _let_leases_lapse(connection: Connection) -> None:
    """Let the leases end, as after 45 s: on PostgreSQL a starting recorder cannot know that their holder is dead."""
    if connection.dialect.name == "postgresql":
        connection.execute(update(TARGETS).where(TARGETS.c.leased_until.is_not(None)).values(leased_until=datetime.now(UTC)))


def _waiting(connection: Connection) -> int:
    return len(connection.execute(select(ALERTS.c.id)).all())


def _stall(connection: Connection, *, event: str) -> None:
    if connection.dialect.name == "postgresql":
        body = "BEGIN PERFORM pg_sleep(600); RETURN NULL; END"
        connection.execute(text(f"CREATE OR REPLACE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"))
        connection.execute(text(f"CREATE TRIGGER stall {event} FOR EACH ROW EXECUTE FUNCTION stall()"))
    else:
        many = ", ".join(f"monitor AS m{number}" for number in range(9))
        connection.execute(text(f"CREATE TRIGGER stall {event} BEGIN SELECT count(*) FROM {many}; END"))


def _unstall(connection: Connection, *, table: str) -> None:
    on = f" ON {table}" if connection.dialect.name == "postgresql" else ""
    connection.execute(text(f"DROP TRIGGER stall{on}"))


def beat_until_killed(killed: KilledRecorder, *, first: int, seconds: float, rate: float) -> tuple[int, int]:
    """Send beats with capsules for the monitors in turn until the recorder is killed; acknowledged beats must be on disk.

    Returns how many beats were acknowledged, and the number of the next one.
    """
    acknowledged, number = dict[str, int](), first
    with killed.served() as campus, patient.Client() as client:
        timer = threading.Timer(seconds, campus.process.kill)
        timer.start()
        try:
            began = time.monotonic()
            for number in count(first):
                time.sleep(max(0.0, began + (number - first) / rate - time.monotonic()))
                monitor = f"mon_{number % killed.count}"
                answer = client.post(f"{campus.url}/v1/recorder/beat/{monitor}/{SECRET}", json={"capsule": {"n": number}, "seq": number})
                assert answer.status_code == 200, answer.text  # a refused beat would test no write
                acknowledged[monitor] = number
        except httpx.TransportError:
            timer.join()
            campus.process.wait()
    stored = killed.do(_last_capsules)
    lost = {monitor: last for monitor, last in acknowledged.items() if stored[monitor] < last}
    assert not lost, f"acknowledged but not on disk: {lost}; on disk: {stored}"
    return number - first, number + 1


def _last_capsules(connection: Connection) -> dict[str, int]:
    """The seq of each monitor's last capsule, which must be stored."""
    stored = {(row.monitor_id, row.seq) for row in connection.execute(select(CAPSULES.c.monitor_id, CAPSULES.c.seq))}
    rows = connection.execute(select(MONITORS.c.id, MONITORS.c.last_seq).where(MONITORS.c.last_seq.is_not(None)))
    last = {row.id: row.last_seq for row in rows}
    assert stored.issuperset(last.items())
    return last


def _give_key(connection: Connection, *, lineage: str) -> None:
    """Let a key own the monitors, so that their capsules are stored."""
    ends_at = datetime.now(UTC) + timedelta(days=30)
    monitors = connection.execute(select(MONITORS.c.id)).all()
    connection.execute(insert(OWNERS).values(lineage=lineage, monitors=len(monitors), ends_at=ends_at, badge_id="", badge_secret=b""))
    connection.execute(update(MONITORS).values(owner=lineage))
