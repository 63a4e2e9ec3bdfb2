"""Killing a campus that sells with SIGKILL at named points of a paid call, and looking what became of the payment.

A point is reached by blocking there: the facilitator holds a request, the tool stands still, a trigger in the database stalls the
transaction that stores the answer or notes the charge, the caller does not read its reply.

    verify ─1─ reserve and run ─2─ store ─3─ settle ─4─ note ─5─ deliver
"""

import json
import socket
import sqlite3
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
from features.payments.seller import PAY_TO, PRICE, made_storage
from patience import patience
from serving import Served, serving
from sqlalchemy import Connection, text
from sqlmodel import select

from campus.features.chain import Chain, Facilitator, Payer, headers_of
from campus.features.payments.ledger import CHARGED
from campus.features.payments.tables import LedgerRow, PaymentRow
from campus.storage.databases import Databases
from tests import patient

# one public address for all starts: what is paid for is a call at an address
CONFIG = """
openapi = "slow"
public_url = "https://campus.example"
[storage]
url = "{storage}"
[payments]
network = "{network}"
pay_to = "{pay_to}"
facilitators = ["{facilitators[0]}"]
rpc_url = "{rpc_url}"
[buildings.slow]
server = "features.payments.slow_tool:mcp"
tools = {{ "*" = {{ price = "0.02" }} }}
"""
POINTS = ("checking", "running", "storing", "sent", "sent_in_vain", "charged", "noting", "delivering")
"""sent: the facilitator has it, and charges after the kill; in vain: it never does. charged: and its reply is lost."""
AT_FACILITATOR: Mapping[str, Any] = {
    "checking": "verify",
    "sent": "settle",
    "sent_in_vain": "settle",
    "charged": "settled",
}
STALLED = {"storing": "settling", "noting": "settled"}
"""Points within a transaction, and the state that it gives the payment."""
RECONCILED_WITHIN = 480.0
"""An authorization may be used for five minutes; the job of a process that was killed while it ran is leased for a minute more."""
STALLING_ROWS = 200


@dataclass
class Sent:
    """A payment at whose call the campus was killed."""

    number: int
    point: str
    headers: Mapping[str, str]
    nonce: str


@dataclass
class Scene:
    """A campus with one slow tool, killed again and again; every payment is of one wallet."""

    folder: Path
    storage: str
    chain: Chain
    facilitator: Facilitator
    payer: Payer
    pay_to: str = PAY_TO
    sent: list[Sent] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def served(self) -> Iterator[Served]:
        environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "SLOW_TOOL_FOLDER": str(self.folder)}
        text = CONFIG.format(storage=self.storage, **self.facilitator.table(self.pay_to))
        with serving(self.folder, text, environ=environ) as campus:
            yield campus

    def prepare(self) -> None:
        self.do(_add_rows)

    def kill_at(self, point: str) -> Sent:
        with ExitStack() as stack:
            reached = stack.enter_context(self.blocked(point))
            campus = stack.enter_context(self.served())
            sent = self.sign(campus, point)
            call = threading.Thread(target=partial(self.present, campus, sent, is_read=point != "delivering"), daemon=True)
            call.start()
            self.wait_for(reached, point)
            self.hits[point] += 1
            campus.process.kill()
            campus.process.wait()
            call.join(patience(90))
        self.sent.append(sent)
        return sent

    def sign(self, campus: Served, point: str) -> Sent:
        number = len(self.sent) + 1
        answer = patient.get(url_of(campus, number))
        assert answer.status_code == 402, answer.text
        signed = self.payer.payload(json.loads(b64decode(answer.headers["PAYMENT-REQUIRED"])))
        return Sent(number, point, headers_of(signed), signed["payload"]["authorization"]["nonce"])

    def present(self, campus: Served, sent: Sent, *, is_read: bool) -> None:
        if is_read:
            try:
                patient.get(url_of(campus, sent.number), headers=dict(sent.headers), timeout=patience(90))
            except httpx.TransportError:
                return
            raise AssertionError(f"the campus answered before it came to {sent.point}")
        parts = urlsplit(url_of(campus, sent.number))
        head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **sent.headers}.items())
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
            connection.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\n{head}\r\n".encode())
            connection.recv(1)
            (self.folder / "replied").touch()
            campus.process.wait(patience(90))

    @contextmanager
    def blocked(self, point: str) -> Iterator[Callable[[], bool]]:
        if point in AT_FACILITATOR:
            with self.facilitator.hold(AT_FACILITATOR[point]) as hold:
                yield lambda: hold.hits > 0
                if point == "sent_in_vain":
                    hold.drop()
        elif point in STALLED:
            self.do(partial(_stall, state=STALLED[point]))
            yield self.is_stalled
            if not self.storage.startswith("sqlite"):
                self.do(lambda connection: _sleepers(connection, "pg_terminate_backend(pid)"), reading=True)
            self.do(_flow)
        elif point == "running":
            (self.folder / "held").unlink(missing_ok=True)
            (self.folder / "hold").touch()
            yield (self.folder / "held").exists
            (self.folder / "hold").unlink()
        else:
            (self.folder / "replied").unlink(missing_ok=True)
            yield (self.folder / "replied").exists

    def is_stalled(self) -> bool:
        if self.storage.startswith("sqlite"):
            return all(self._is_locked() for _ in range(round(patience(8))))
        return bool(self.do(lambda connection: _sleepers(connection, "pid"), reading=True))

    def _is_locked(self) -> bool:
        time.sleep(0.05)
        path = Path(self.storage.removeprefix("sqlite:")) / "campus.db"
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def resend(self, campus: Served, sent: Sent) -> None:
        deadline = time.monotonic() + patience(90)
        while True:
            answer = patient.get(url_of(campus, sent.number), headers=dict(sent.headers), timeout=patience(90))
            if answer.status_code == 200:
                break
            assert answer.status_code == 409, (sent, answer.text)
            assert answer.json()["code"] == "payment_in_flight"
            assert time.monotonic() < deadline, sent
            time.sleep(int(answer.headers["Retry-After"]))
        assert answer.json() == {"number": sent.number}
        receipt = json.loads(b64decode(answer.headers["PAYMENT-RESPONSE"]))
        assert receipt["success"]

    def reconcile(self, campus: Served) -> None:
        deadline = time.monotonic() + RECONCILED_WITHIN
        while not set(self.states().values()) <= {"settled", "released"}:
            assert time.monotonic() < deadline, self.states()
            campus.command("run", "payments.reconcile_payments")
            time.sleep(1)

    def runs(self) -> Counter[int]:
        return Counter(int(line) for line in (self.folder / "runs").read_text().split())

    def states(self) -> Mapping[str, str]:
        """The state of every payment by its nonce."""
        asked = select(PaymentRow.nonce, PaymentRow.state)
        return {row.nonce: row.state for row in self.do(lambda connection: connection.execute(asked).all(), reading=True)}

    def claimed(self) -> int:
        entries = self.do(lambda connection: connection.execute(select(LedgerRow.event, LedgerRow.amount)).all(), reading=True)
        return sum(CHARGED.get(event, 0) * (amount or 0) for event, amount in entries)

    def do(self, work: Callable[[Connection], Any], *, reading: bool = False) -> Any:
        async def worked() -> Any:
            async with Databases.open(self.storage) as databases:
                storage = await made_storage(databases)
                async with storage.read() if reading else storage.write() as session:
                    return await (await session.connection()).run_sync(work)

        return anyio.run(worked)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + patience(90)
        while not condition():
            assert time.monotonic() < deadline, f"{what} was not reached; so far: {dict(self.hits)}"
            time.sleep(0.02)


def url_of(campus: Served, number: int) -> str:
    return f"{campus.url}/v1/slow/count?number={number}"


def _add_rows(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE IF NOT EXISTS kills (number INTEGER)"))
    connection.execute(text("INSERT INTO kills (number) VALUES (:number)"), [{"number": number} for number in range(STALLING_ROWS)])


def _stall(connection: Connection, *, state: str) -> None:
    """Let the transaction that gives a payment this state take for ever."""
    event = f"AFTER UPDATE OF state ON payments FOR EACH ROW WHEN (NEW.state = '{state}')"
    if connection.dialect.name == "postgresql":
        body = "BEGIN PERFORM pg_sleep(600); RETURN NULL; END"
        connection.execute(text(f"CREATE OR REPLACE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"))
        connection.execute(text(f"CREATE TRIGGER stall {event} EXECUTE FUNCTION stall()"))
    else:
        many = ", ".join(f"kills AS k{number}" for number in range(6))
        connection.execute(text(f"CREATE TRIGGER stall {event} BEGIN SELECT count(*) FROM {many}; END"))


def _flow(connection: Connection) -> None:
    connection.execute(text(f"DROP TRIGGER stall{' ON payments' if connection.dialect.name == 'postgresql' else ''}"))


def _sleepers(connection: Connection, what: str) -> bool:
    return connection.execute(text(f"SELECT {what} FROM pg_stat_activity WHERE wait_event = 'PgSleep'")).first() is not None


async def verdict(scene: Scene, *, answered: int) -> Mapping[str, int]:
    """What the chain saw: every answered payment once, and of the others those that count as settled; the ledger says the same.

    Gives the figures to print.
    """
    states = await anyio.to_thread.run_sync(scene.states)
    assert set(states.values()) <= {"settled", "released"}, states
    charged = {nonce for nonce in states if await scene.chain.is_used(scene.payer.wallet.address, nonce)}
    assert charged == {nonce for nonce, state in states.items() if state == "settled"}
    assert await scene.chain.balance(scene.pay_to) == PRICE * len(charged) == await anyio.to_thread.run_sync(scene.claimed)
    assert len(charged) >= answered
    figures = {f"kills at {point}": hits for point, hits in scene.hits.items()}
    return {"payments": len(scene.sent), "charged and answered": len(charged), **figures}
