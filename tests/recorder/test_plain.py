"""Beats that the database enters by itself: they come to what they would come to one by one, on both databases."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from recorder.kills import SECRET
from sqlalchemy import Connection, insert, select

from buildings.recorder.beats import BEATS_A_MINUTE, Taken, enter, take_beats
from buildings.recorder.plain import enter_plain
from buildings.recorder.secrets import digest_of
from buildings.recorder.signal import ENTRY, KEPT_BEATS, Beat
from buildings.recorder.status import Terms, registered
from buildings.recorder.tables import MONITORS
from buildings.recorder.transactions import in_transaction
from campus import Problem

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
TERMS = Terms(60 * MINUTE, 5 * MINUTE)
STATES = tuple(
    product(
        ("up", "missed", "failed", "paused", "asleep"),
        (None, 2 * MINUTE),  # since when a run is timed
        (0, BEATS_A_MINUTE - 1, BEATS_A_MINUTE),  # beats in the current minute
        (b"", bytes(ENTRY.size), bytes(ENTRY.size * KEPT_BEATS)),
    )
)
SAID = tuple(product(("ok", 0, "start", "fail", 1), (None, 7 * MINUTE), (None, b"{}"), (SECRET, "wrong")))


def fill(connection: Connection, prefix: str, now: Any) -> list[Beat]:
    """A monitor of every kind, for every kind of beat; gives the beats."""
    rows, beats = [], []
    for number, ((mode, run, minute_beats, history), (status, next_in, capsule, secret)) in enumerate(product(STATES, SAID)):
        name = f"{prefix}_{number:05}"
        standing = registered(TERMS, now - 20 * MINUTE)._replace(mode=mode, failures=2, epoch=3, run_since=run and now - run)
        rows.append(
            {"id": name, "badge_id": name, "name": "m", "secret_digest": digest_of(SECRET), "registered_at": now - 20 * MINUTE}
            | {**TERMS._asdict(), **standing._asdict(), "history": history, "beats": 7, "unverified": True, "fence": 0, "capsules": 0}
            | {"minute": int(now.timestamp()) // 60 - (minute_beats == 0), "minute_beats": minute_beats}
        )
        beats.append(Beat(name, digest_of(secret), now, status, next_in, capsule))
    connection.execute(insert(MONITORS), rows)
    return beats


def rows_of(connection: Connection, prefix: str) -> list[dict[str, Any]]:
    found = connection.execute(select(MONITORS).where(MONITORS.c.id.startswith(prefix, autoescape=True)).order_by(MONITORS.c.id))
    return [{name: value for name, value in row._mapping.items() if name not in ("id", "badge_id")} for row in found]


def told(results: Sequence[Taken | Exception]) -> list[object]:
    return [(result.code, str(result)) if isinstance(result, Problem) else result for result in results]


async def test_a_beat_comes_to_the_same_whichever_way_it_is_entered(anywhere: Any) -> None:
    now = anywhere.clock()

    def work(connection: Connection) -> None:
        together, one_by_one = fill(connection, "a", now), fill(connection, "b", now)
        assert told(take_beats(connection, together)) == told(enter(connection, one_by_one))
        assert rows_of(connection, "a") == rows_of(connection, "b")

    await in_transaction(anywhere.town.site.storage, work)


async def test_exactly_the_plain_ones_are_entered_by_the_database(anywhere: Any) -> None:
    now = anywhere.clock()

    def work(connection: Connection) -> set[str]:
        return set(enter_plain(connection, fill(connection, "a", now), most=BEATS_A_MINUTE))

    plain = await in_transaction(anywhere.town.site.storage, work)
    kinds = enumerate(product(STATES, SAID))
    assert plain == {
        f"a_{number:05}"
        for number, ((mode, run, minute_beats, _), (status, _, capsule, secret)) in kinds
        if (mode, run, capsule, secret) == ("up", None, None, SECRET) and status in ("ok", 0) and minute_beats < BEATS_A_MINUTE
    }


async def test_beats_of_one_monitor_in_one_group_keep_their_order(anywhere: Any) -> None:
    """The first is plain, the second not, the third would be: it comes last, and its run ends with it."""
    monitor = await anywhere.register()
    now, digest = anywhere.clock(), digest_of(monitor["secret"])
    statuses: Sequence[Any] = ("ok", "start", "ok", "fail", "ok")
    beats = [Beat(monitor["monitor_id"], digest, now + MINUTE * place, status) for place, status in enumerate(statuses)]

    results = await in_transaction(anywhere.town.site.storage, lambda connection: take_beats(connection, beats))

    assert [result.state for result in results if isinstance(result, Taken)] == ["alive", "alive", "alive", "dead", "alive"]
    entry = await anywhere.row(monitor)
    assert (entry.mode, entry.beats, entry.last_beat_at, entry.epoch) == ("up", 5, now + MINUTE * 4, 1)
