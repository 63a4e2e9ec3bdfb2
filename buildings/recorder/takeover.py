"""Handing work over: the stored capsules, and how a replacement goes on, in words and as calls."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Row, select

from buildings.recorder.monitors import Credentials, TakenOver
from buildings.recorder.ownership import authorized_monitor, stored_state
from buildings.recorder.results import Call, CapsuleAnswer, CapsuleView, Resume
from buildings.recorder.results import Taken as TakenAnswer
from buildings.recorder.state_machine import ShownState, shown_state
from buildings.recorder.tables import CAPSULES
from buildings.recorder.urls import MonitorUrls

DEAD = (
    "The agent is dead. If you are its replacement: 1. Call takeover; it returns this capsule with a new secret, and the old secret"
    " becomes invalid. 2. Continue from the capsule; do not repeat what it lists as done. 3. Call heartbeat with the new secret at least"
    " every {period:g} minutes, each time with a capsule of your own and a seq above {seq}."
)
ALIVE = (
    "The agent is {state}. takeover works only when it is dead, so that no two agents do the same work. Try again when the state is dead,"
    " at {deadline} at the earliest, or wait for the alert."
)
TAKEN = (
    "You have taken over the work. Continue from the capsule; do not repeat what it lists as done. Call heartbeat with the new secret"
    " before deadline_at and then at least every {period:g} minutes, each time with a capsule of your own and a seq above {seq}. Calls with"
    " the old secret are refused with 409 taken_over."
)


def read_capsules(connection: Connection, credentials: Credentials, *, url: str, now: datetime) -> CapsuleAnswer:
    """The last capsules of a monitor, for its owner."""
    row = authorized_monitor(connection, credentials.monitor_id, lineage=credentials.lineage, secret=credentials.secret, key_only=True)
    views = _views(connection, row.id)
    state = shown_state(stored_state(row), now)
    return CapsuleAnswer(
        monitor_id=row.id,
        name=row.name,
        state=state,
        last_beat_at=row.last_beat_at,
        fence=row.fence,
        found=bool(views),
        last=views[0] if views else None,
        earlier=views[1:],
        resume=_resume(row, state, url),
    )


def taken_answer(connection: Connection, taken: TakenOver, *, url: str) -> TakenAnswer:
    """What the new holder needs."""
    row, at = taken.row, MonitorUrls(url, taken.row.id)
    views = _views(connection, row.id)
    return TakenAnswer(
        monitor_id=row.id,
        name=row.name,
        secret=taken.secret,
        fence=taken.fence,
        beat_url=at.beat(taken.secret),
        cron=at.cron(taken.secret),
        state="alive",
        deadline_at=taken.state.deadline_at,
        last=views[0] if views else None,
        words=TAKEN.format(period=_minutes(row), seq=row.last_seq or 0),
    )


def _views(connection: Connection, monitor_id: str) -> tuple[CapsuleView, ...]:
    found: Sequence[Row[Any]] = connection.execute(
        select(CAPSULES).where(CAPSULES.c.monitor_id == monitor_id).order_by(CAPSULES.c.number.desc())
    ).all()
    return tuple(CapsuleView(seq=one.seq, stored_at=one.at, size=len(one.body), capsule=from_json(one.body)) for one in found)


def _resume(row: Row[Any], state: ShownState, url: str) -> Resume:
    at = MonitorUrls(url, row.id)
    take = Call(why="Take over the work.", tool="takeover", arguments={"monitor_id": row.id}, http=f"POST {at.takeover}")
    beat = Call(
        why="Report that you are alive, with the secret that takeover returned.",
        tool="heartbeat",
        arguments={"monitor_id": row.id, "secret": "SECRET", "capsule": {}, "seq": (row.last_seq or 0) + 1},
        http=f"POST {at.beat('SECRET')}",
    )
    look = Call(why="Check the state again.", tool="fetch_capsule", arguments={"monitor_id": row.id}, http=f"GET {at.capsule}")
    if state == "dead":
        return Resume(words=DEAD.format(period=_minutes(row), seq=row.last_seq or 0), calls=(take, beat))
    return Resume(words=ALIVE.format(state=state, deadline=f"{row.deadline_at:%Y-%m-%dT%H:%M:%SZ}"), calls=(look,))


def _minutes(row: Row[Any]) -> float:
    return float(row.period.total_seconds() / 60)
