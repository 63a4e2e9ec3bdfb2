"""The monitor on the start page, which the recorder registers and beats itself. It has no owner and no secret, and alerts nobody."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from buildings.recorder.beats.rules import BEATS_IN_HISTORY, Beat, past_beats
from buildings.recorder.monitors.credentials import new_secret
from buildings.recorder.monitors.rows import stored_state
from buildings.recorder.monitors.state_machine import Schedule, initial_state, state_in_a_word
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import DEMO, MONITORS
from campus.secrets import Entropy
from campus.storage import in_snapshot, in_transaction

EVERY = timedelta(minutes=1)
SCHEDULE = Schedule(period=EVERY, grace=EVERY)


async def beat_demo(site: RecorderSite) -> bool:
    """Beat the demo monitor as any beat arrives. One process of all does; what it finds is no news for the log."""
    now = site.state.time.now()
    row = await in_snapshot(site.storage, _demo)
    if row is None:
        row = await in_transaction(site.storage, partial(_registered, now=now, entropy=site.state.entropy))
    await site.state.beat(Beat(DEMO, row.secret_digest, now, "ok"))
    return False


async def demo_card(site: RecorderSite) -> str:
    row = await in_snapshot(site.storage, _demo)
    beats = tuple(beat.at for beat in past_beats(row.history)) if row else ()
    word = state_in_a_word(stored_state(row), site.state.time.now()) if row else "waiting"
    return site.part("demo.html", beats=beats, most=BEATS_IN_HISTORY, word=word)


def _demo(connection: Connection) -> Row[Any] | None:
    return connection.execute(select(MONITORS).where(MONITORS.c.id == DEMO)).one_or_none()


def _registered(connection: Connection, *, now: datetime, entropy: Entropy) -> Row[Any]:
    """The monitor once it is there. The digest of its secret is random: no secret fits it."""
    connection.execute(
        insert(MONITORS).values(
            **{"id": DEMO, "secret_digest": entropy(32), "badge_id": new_secret(entropy), "name": "demo", "registered_at": now},
            **{**SCHEDULE._asdict(), **initial_state(SCHEDULE, now)._asdict()},
            **{"unverified": False, "beats": 0, "history": b"", "minute": 0, "minute_beats": 0, "capsules": 0, "fence": 0},
        )
    )
    row = _demo(connection)
    assert row is not None, "it was inserted"
    return row
