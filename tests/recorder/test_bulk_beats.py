"""Plain beats, which SQL records: it leads to the same rows as the state machine, on both databases."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from recorder.recorders import SECRET, Recorder, monitor_row
from sqlalchemy import Connection, Table, insert, select

from buildings.recorder.beats.beat import Beat, BeatOutcome
from buildings.recorder.beats.rules import BEATS_IN_HISTORY, BEATS_PER_MINUTE, ENTRY, past_beats
from buildings.recorder.beats.sql import record_beats, record_one_by_one, record_plain_beats
from buildings.recorder.monitors.state_machine import Schedule, initial_state
from buildings.recorder.tables import BEAT_PAGES, MONITORS, RUNS
from campus import Problem
from campus.secrets import digest_of
from campus.storage import in_transaction

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
SCHEDULE = Schedule(60 * MINUTE, 5 * MINUTE)
STATES = tuple(
    product(
        ("up", "idle", "missed", "failed", "paused", "asleep"),
        (False, True),  # whether it has beaten before
        (None, 2 * MINUTE),  # how long ago a run began
        (  # beats in the current minute, and the history
            (0, b""),
            (BEATS_PER_MINUTE - 1, bytes(ENTRY.size)),
            (BEATS_PER_MINUTE - 1, bytes(ENTRY.size * BEATS_IN_HISTORY)),
            (BEATS_PER_MINUTE, bytes(ENTRY.size * BEATS_IN_HISTORY)),
        ),
    )
)
SAID = tuple(product(("ok", 0, "start", "idle", "fail", 1), (None, 7 * MINUTE), (None, b"{}"), (SECRET, "wrong")))


def fill(connection: Connection, prefix: str, now: datetime) -> list[Beat]:
    rows, beats = [], []
    for number, ((mode, beaten, run, (minute_beats, history)), (status, next_in, capsule, secret)) in enumerate(product(STATES, SAID)):
        name = f"{prefix}_{number:05}"
        state = initial_state(SCHEDULE, now - 20 * MINUTE)._replace(mode=mode, failures=2, epoch=3, run_since=run and now - run)
        state = state._replace(first_beat_at=now - 19 * MINUTE if beaten else None, down=MINUTE)
        rows.append(
            monitor_row(name, SCHEDULE, now - 20 * MINUTE)
            | {**state._asdict(), "due_at": now, "history": history, "beats": BEATS_IN_HISTORY - 1, "unverified": True}
            | {"minute": int(now.timestamp()) // 60 - (minute_beats == 0), "minute_beats": minute_beats}
        )
        beats.append(Beat(name, digest_of(secret), now, status, next_in, capsule))
    connection.execute(insert(MONITORS), rows)
    return beats


def rows_of(connection: Connection, prefix: str) -> list[dict[str, Any]]:
    found = connection.execute(select(MONITORS).where(MONITORS.c.id.startswith(prefix, autoescape=True)).order_by(MONITORS.c.id))
    return [{name: value for name, value in row._mapping.items() if name not in ("id", "badge_id", "ping_digest")} for row in found]


def kept_of(connection: Connection, table: Table, prefix: str) -> list[tuple[Any, ...]]:
    """The rows of a table that has several of each monitor, without their prefix."""
    found = connection.execute(select(table).where(table.c.monitor_id.startswith(prefix, autoescape=True)))
    return sorted((row.monitor_id[1:], *row[1:]) for row in found)


def comparable(results: Sequence[BeatOutcome | Exception]) -> list[object]:
    return [(result.code, str(result)) if isinstance(result, Problem) else result for result in results]


@pytest.mark.both_databases
async def test_the_sql_and_the_state_machine_record_each_beat_alike(recorder: Recorder) -> None:
    now = recorder.clock()

    def work(connection: Connection) -> None:
        together, one_by_one = fill(connection, "a", now), fill(connection, "b", now)
        assert comparable(record_beats(connection, together)) == comparable(record_one_by_one(connection, one_by_one))
        assert rows_of(connection, "a") == rows_of(connection, "b")
        for table in (RUNS, BEAT_PAGES):
            assert kept_of(connection, table, "a") == kept_of(connection, table, "b") != []

    await in_transaction(recorder.campus.site.storage, work)


async def test_the_statement_records_exactly_the_plain_beats(recorder: Recorder) -> None:
    now = recorder.clock()

    def work(connection: Connection) -> set[str]:
        return set(record_plain_beats(connection, fill(connection, "a", now), limit=BEATS_PER_MINUTE))

    plain = await in_transaction(recorder.campus.site.storage, work)
    kinds = enumerate(product(STATES, SAID))
    assert plain == {
        f"a_{number:05}"
        for number, ((mode, beaten, run, (minute_beats, _)), (status, _, capsule, secret)) in kinds
        if (mode, beaten, run, capsule, secret) == ("up", True, None, None, SECRET) and status == "ok" and minute_beats < BEATS_PER_MINUTE
    }


ORDERS = [order for length in (1, 2, 3) for order in product(("ok", "start", "fail"), repeat=length)]


@pytest.mark.both_databases
async def test_beats_of_one_monitor_in_one_batch_keep_their_order(recorder: Recorder) -> None:
    now = recorder.clock()

    def work(connection: Connection) -> None:
        for number, order in enumerate(ORDERS):
            (_, together), (_, apart) = (fill_one(connection, f"{prefix}{number}", now, order) for prefix in "ab")
            results = comparable(record_beats(connection, together))
            assert results == comparable([record_one_by_one(connection, [beat])[0] for beat in apart]), order
            (one,), (other,) = rows_of(connection, f"a{number}_"), rows_of(connection, f"b{number}_")
            assert one == other, order
            assert (one["beats"], one["last_beat_at"]) == (len(order), together[-1].at)
            assert [beat.status for beat in past_beats(one["history"])] == list(reversed(order))
            told = [status for status in order if status != "start"]  # a start mends nothing
            assert one["mode"] == ("failed" if told[-1:] == ["fail"] else "up"), order
            assert one["epoch"] == sum(status == "fail" and told[:place][-1:] != ["fail"] for place, status in enumerate(told)), order

    await in_transaction(recorder.campus.site.storage, work)


def fill_one(connection: Connection, name: str, now: datetime, order: Sequence[Any]) -> tuple[str, list[Beat]]:
    connection.execute(insert(MONITORS), [monitor_row(f"{name}_", SCHEDULE, now)])
    return name, [Beat(f"{name}_", digest_of(SECRET), now + MINUTE * place, status) for place, status in enumerate(order)]
