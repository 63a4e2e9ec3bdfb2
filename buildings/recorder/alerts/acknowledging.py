"""How people act on a trouble: they acknowledge it, by a tool or the page that an alert links to, or snooze its monitor."""

import hmac
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Row, case, literal, select, update

from buildings.recorder.alerts.raising import withdraw_reminders
from buildings.recorder.models import Acknowledged, Snoozed
from buildings.recorder.monitors.credentials import NO_DIGEST, Credentials, acknowledge_token
from buildings.recorder.monitors.muting import REMINDER
from buildings.recorder.monitors.rows import authorized_monitor
from buildings.recorder.monitors.state_machine import TROUBLES
from buildings.recorder.problems import fixed_problem
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import MONITORS
from campus import Problem, Request, Response
from campus.storage import Moment, in_snapshot, in_transaction

PRIVATE = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex"}


def acknowledge(connection: Connection, credentials: Credentials, *, now: datetime) -> Acknowledged:
    """Note that somebody acts on the trouble of a monitor. Problem 409 `nothing_wrong` if it has none."""
    row = authorized_monitor(connection, credentials)
    return Acknowledged(monitor_id=row.id, acknowledged_at=_acknowledge_row(connection, row, now=now))


def _acknowledge_row(connection: Connection, row: Row[tuple[object, ...]], *, now: datetime) -> datetime:
    """End the reminders and escalations of a monitor's present trouble; returns when it was first acknowledged."""
    if row.mode not in TROUBLES:
        raise fixed_problem("nothing_wrong")
    new = (MONITORS.c.id == row.id) & (MONITORS.c.epoch == row.epoch) & MONITORS.c.acknowledged_at.is_(None)
    connection.execute(update(MONITORS).where(new).values(acknowledged_at=now))
    withdraw_reminders(connection, [row.id])
    at: datetime = row.acknowledged_at or now
    return at


def snooze(connection: Connection, credentials: Credentials, *, until: datetime | None, now: datetime) -> Snoozed:
    """Hold the alerts of a monitor until a time; None: raise them again.

    People who know of a trouble are reminded of it at the end, if it still holds then and nobody acknowledged it.
    """
    row = authorized_monitor(connection, credentials)
    in_trouble = MONITORS.c.mode.in_(sorted(TROUBLES))
    held = MONITORS.c.held if until is None else case((MONITORS.c.held.is_(None) & in_trouble, literal(REMINDER)), else_=MONITORS.c.held)
    due = case((MONITORS.c.held.is_not(None) | in_trouble, literal(now, Moment())), else_=MONITORS.c.due_at)
    connection.execute(update(MONITORS).where(MONITORS.c.id == row.id).values(muted_until=until, held=held, due_at=due))
    if until is not None:
        withdraw_reminders(connection, [row.id])
    return Snoozed(monitor_id=row.id, muted_until=until)


async def acknowledging(request: Request, site: RecorderSite) -> Response:
    """The page that an alert links to. It asks on GET, because mail programs open links by themselves; it acknowledges on POST."""
    row = await in_snapshot(site.storage, partial(_linked, request=request))
    is_over = row.mode not in TROUBLES or str(row.epoch) != request.path_params["epoch"]
    at = None if is_over else row.acknowledged_at
    if request.method == "POST" and not is_over:
        at = await in_transaction(site.storage, partial(_acknowledge_row, row=row, now=site.state.time.now()))
    data = {"monitor_id": row.id, "is_over": is_over, "acknowledged_at": at}
    return site.page("acknowledge.html", request, data=data, headers=PRIVATE, monitor=row, now=site.state.time.now(), answer=data)


def _linked(connection: Connection, request: Request) -> Row[tuple[object, ...]]:
    """The monitor of a link. Problem 404, the same for every reason, if the link is none."""
    epoch, token = request.path_params["epoch"], request.path_params["token"]
    row = connection.execute(select(MONITORS).where(MONITORS.c.id == request.path_params["monitor_id"])).one_or_none()
    number = int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 10 else 0
    expected = acknowledge_token(NO_DIGEST if row is None else row.secret_digest, number)
    if not hmac.compare_digest(expected.encode(), token.encode()) or row is None:
        raise Problem(
            404, "link_not_found", "this link is not valid: check that it was copied completely; a new secret or a takeover ends it"
        )
    return row
