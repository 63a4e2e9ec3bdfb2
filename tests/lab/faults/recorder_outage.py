"""Outages of the recorder: of one minute and of ten with 2,000 clients that retry, and of ten minutes among 400,000 monitors.

Run by `make faults`, and not by `make test`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import httpx
import pytest
from conftest import Postgres
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.kills import KilledRecorder, webhook_receiver
from recorder.outages import only_dead_agents_are_reported
from recorder.receivers import make_authority
from recorder.recorders import SECRET, OpenRecorder
from serving import Served
from sqlalchemy import Connection, text

from buildings.recorder.tables import Tables
from campus.secrets import digest_of
from campus.storage import EPOCH, MICROSECOND, in_snapshot
from campus.storage.databases import Databases
from tests import patient

MANY = 400_000
PART = 10_000
OUTAGE_LASTS = timedelta(minutes=10)
LONGEST = 1_700.0
"""Seconds, on a busy machine."""
NUMBERS = "FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n"
TIMES = "(SELECT CAST(:at AS bigint) AS at, CAST(:period AS bigint) AS period) AS times"
FILL = (
    "INSERT INTO target (id, kind, address, identity, secret, attempts, host, sender, disabled_at)"
    " SELECT 'tgt_' || n, 'webhook', 'https://localhost/' || n, sha256(n::text::bytea), 'k', 0, 'localhost', 'net:' || n,"
    f" CASE WHEN n % 10 > 0 THEN 1 END {NUMBERS}",
    "INSERT INTO monitor (id, secret_digest, badge_id, name, period, grace, registered_at, mode, since, alive_at, expected_at, deadline_at,"
    " due_at, epoch, failures, down, still, unverified, beats, history, minute, minute_beats, capsules, fence, plain, ping_digest, tags,"
    " runs, unchanged, followed_up) SELECT 'mon_' || n, :digest, 'badge_' || n, 'agent', period, 0, at, 'up', at, at, at + period,"
    f" at + period, at + period, 0, 0, 0, 0, false, 0, '', 0, 0, 0, 0, true, sha256(n::text::bytea), '', 0, 0, false {NUMBERS}, {TIMES}",
    f"INSERT INTO monitor_target (monitor_id, target_id, place) SELECT 'mon_' || n, 'tgt_' || n, 0 {NUMBERS}",
)
OUTAGE = (
    "UPDATE target SET verified_at = :at, address = :url, disabled_at = NULL WHERE id = 'tgt_1'",
    "UPDATE monitor SET period = 6000000 WHERE id = 'mon_1'",
    "UPDATE tick SET at = :at",
)
TOLD = "SELECT count(*), count(DISTINCT target_id) FROM alert WHERE kind = 'blind' AND target_id <> 'tgt_1'"
MOVED = "SELECT count(*) FROM monitor WHERE unverified"


@pytest.mark.anyio
@pytest.mark.timeout(900)
@pytest.mark.parametrize("outage", [60.0, 600.0])
@pytest.mark.faults("outage")
async def test_an_outage_leads_to_alerts_about_dead_agents_only(
    open_recorder: OpenRecorder,  # noqa: F811  # the fixture
    outage: float,
) -> None:
    async with open_recorder() as recorder:
        await only_dead_agents_are_reported(recorder, count=2_000, outage=outage)


@pytest.mark.timeout(3600)
@pytest.mark.faults("outage of many")
def test_many_monitors_are_watched_again_after_an_outage_although_the_recorder_is_killed_meanwhile(
    tmp_path: Path, postgres: Postgres, record_property: Callable[[str, object], None]
) -> None:
    """Only the target of the monitor that dies is confirmed: what is raised for the others stays in the outbox, where it is counted.

    Nine of ten are disabled, so that the test need not wait until each of them had its turn.
    """
    name = postgres.create_database()
    authority = make_authority(tmp_path)  # noqa: F811
    slowest = [0.0]
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, postgres.url(name), authority, receiver, MANY)
        with killed.served():
            pass
        for first in range(1, MANY, PART):  # no statement may take more than 30 s
            killed.do(partial(_fill, first=first))
        killed.do(partial(_begin_outage, url=receiver.url("/dies")))
        began = time.monotonic()
        with killed.served() as campus, _beating(campus, slowest):
            _wait_for(campus, lambda: _numbers(killed, TOLD)[0] > 0)
            told = time.monotonic() - began
            campus.process.kill()
            campus.process.wait()
        at_the_kill = _numbers(killed, TOLD)[0]
        assert 0 < at_the_kill < MANY - 1
        with killed.served() as campus, _beating(campus, slowest):
            _wait_for(campus, lambda: bool(receiver.deliveries))
            died = time.monotonic() - began
            _wait_for(campus, lambda: _numbers(killed, TOLD)[0] >= MANY - 1)
            in_all = time.monotonic() - began
    assert _numbers(killed, TOLD) == (MANY - 1, MANY - 1), "each target is told once"
    assert _numbers(killed, MOVED)[0] >= MANY - 200, "all that did not die or beat"
    record_property(
        "figures",
        f"deadlines moved and first targets told after {told:.0f} s, killed after {at_the_kill:,}, a death delivered after {died:.0f} s,"
        f" all told after {in_all:.0f} s; the slowest beat took {slowest[0]:.2f} s",
    )
    postgres.drop_database(name)


def _fill(connection: Connection, *, first: int) -> None:
    """Insert some monitors, each with its own target, that registered when the outage began."""
    values = {
        "digest": digest_of(SECRET),
        "period": OUTAGE_LASTS // MICROSECOND,
        "at": _began_at(),
        "first": first,
        "last": first + PART - 1,
    }
    for statement in FILL:
        connection.execute(text(statement), {name: value for name, value in values.items() if f":{name}" in statement})


def _begin_outage(connection: Connection, *, url: str) -> None:
    """Let the last tick be ten minutes old; one monitor has a confirmed target, and is to beat every six seconds."""
    values = {"at": _began_at(), "url": url}
    for statement in OUTAGE:
        connection.execute(text(statement), {name: value for name, value in values.items() if f":{name}" in statement})


def _began_at() -> int:
    return (datetime.now(UTC) - OUTAGE_LASTS - EPOCH) // MICROSECOND


def _numbers(killed: KilledRecorder, question: str) -> tuple[Any, ...]:
    async def read() -> tuple[Any, ...]:
        async with Databases.open(killed.storage) as databases:
            storage = await databases.storage_of("recorder", Tables)
            return tuple(await in_snapshot(storage, lambda connection: connection.execute(text(question)).one()))

    return anyio.run(read)


def _wait_for(campus: Served, condition: Any) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline, campus.log[-5_000:]
        time.sleep(0.5)


@contextmanager
def _beating(campus: Served, slowest: list[float]) -> Iterator[None]:
    refused: list[str] = []
    ended = False

    def beat() -> None:
        with patient.Client() as client:
            number = 0
            while not ended:
                number += 1
                began = time.monotonic()
                try:
                    answer = client.post(f"{campus.url}/v1/recorder/beat/mon_{2 + number % 100}/{SECRET}")
                except httpx.TransportError:
                    return
                slowest[0] = max(slowest[0], time.monotonic() - began)
                if answer.status_code != 200:
                    refused.append(answer.text)
                time.sleep(0.25)

    thread = Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended = True
        thread.join()
    assert not refused, refused[0]
