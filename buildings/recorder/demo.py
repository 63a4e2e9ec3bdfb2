"""The recorder's part of the start page: a monitor that it beats itself, and what the owner of an agent that died would be sent and do.

Nobody owns the dead agent, and no row of it is stored: its alert and its way back are what the recorder makes of any.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from buildings.recorder.alerts.texts import MonitorAlert, event_of, headline
from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.rules import BEATS_IN_HISTORY, past_beats
from buildings.recorder.monitors.credentials import new_secret
from buildings.recorder.monitors.registration import new_row
from buildings.recorder.monitors.state_machine import Schedule, initial_state, state_in_a_word, stored_state
from buildings.recorder.monitors.takeover import resume_of
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import DEMO, MONITORS
from campus import Request
from campus.secrets import Entropy
from campus.storage import in_snapshot, in_transaction

EVERY = timedelta(minutes=1)
SCHEDULE = Schedule(EVERY, EVERY)
DIED_BEFORE = timedelta(hours=3)
CAPSULE: Mapping[str, Any] = {"step": 41, "of": 60, "done": "read 41 of 60 orders", "next": "write the invoice of order 42"}


async def beat_demo(site: RecorderSite) -> bool:
    """Beat the monitor on the start page, which has no owner and no secret and alerts nobody, as any beat arrives.

    One process of all does; what it finds is no news for the log.
    """
    now = site.state.time.now()
    row = await in_snapshot(site.storage, _demo)
    if row is None:
        row = await in_transaction(site.storage, partial(_registered, now=now, entropy=site.state.entropy))
    await site.state.beat(Beat(DEMO, row.secret_digest, now, "ok"))
    return False


async def demo_card(request: Request, site: RecorderSite) -> str:
    row = await in_snapshot(site.storage, _demo)
    now = site.state.time.now()
    beats = tuple(beat.at for beat in past_beats(row.history)) if row else ()
    word = state_in_a_word(stored_state(row), now) if row else "waiting"
    died = (now - DIED_BEFORE).replace(minute=14, second=0, microsecond=0)
    has_mail = site.feature("mail") is not None
    return site.part("demo.html", has_mail=has_mail, beats=beats, most=BEATS_IN_HISTORY, word=word, **dead_agent(died, site.url))


def dead_agent(died: datetime, url: str) -> Mapping[str, str]:
    """An agent that sent its last beat then: the alert's headline, its capsule, and how a replacement goes on."""
    since = died + 2 * EVERY
    row: Any = SimpleNamespace(
        **new_row("mon_invoices", "invoice-agent", SCHEDULE, initial_state(SCHEDULE, died), now=died) | {"mode": "down", "since": since},
        **{"monitor_id": "mon_invoices", "kind": "dead", "reason": "timeout", "at": since, "until": None, "last_beat_at": died},
        **{"owner": "demo", "options": None, "secret_digest": None, "omitted": 0, "ends_at": None, "last_seq": 41},
    )
    body = json.dumps(CAPSULE, indent=2)
    event = event_of(MonitorAlert(row, SimpleNamespace(at=died, body=body.encode()), None), url=url)
    return {"said": headline(event), "capsule": body, "resume": resume_of(row, "dead", url).words}


def _demo(connection: Connection) -> Row[Any] | None:
    return connection.execute(select(MONITORS).where(MONITORS.c.id == DEMO)).one_or_none()


def _registered(connection: Connection, *, now: datetime, entropy: Entropy) -> Row[Any]:
    """The monitor once it is there. The digest of its secret is random: no secret fits it."""
    connection.execute(
        insert(MONITORS).values(
            **new_row(DEMO, "demo", SCHEDULE, initial_state(SCHEDULE, now), now=now),
            **{"badge_id": new_secret(entropy), "plain": True, "tags": "", "secret_digest": entropy(32), "ping_digest": entropy(32)},
        )
    )
    row = _demo(connection)
    assert row is not None, "it was inserted"
    return row
