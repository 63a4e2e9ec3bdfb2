"""Alerts are raised here: stored in the outbox, in the transaction of the change that they report."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, case, exists, insert, literal, or_, select, update

from buildings.recorder.problems import fixed_problem
from buildings.recorder.tables import ALERTS, ALERTS_PER_MONITOR, DELIVERIES, MONITOR_TARGETS, MONITORS, OUTBOX, TARGETS
from campus.storage import Moment, among

TEST = "test"  # The kind of an alert that was asked for: nothing happened.


TROUBLE_KINDS = frozenset(("dead", "failed", "stuck"))
LATER_KINDS = frozenset(("recovered", "reminder"))
"""Kinds of alerts that go only to targets that were told of the trouble."""


class Notice(NamedTuple):
    """An alert to each of `targets`, or to the monitor's own targets if None. `since` is when the downtime began, `until` when it ended.

    `kind` is a state_machine.Kind, `expiring` for a monitor that will be deleted, `test`, or `blind` for an outage of the recorder.
    """

    monitor_id: str | None
    epoch: int
    kind: str
    at: datetime
    since: datetime
    until: datetime | None
    reason: str
    last_beat_at: datetime | None
    targets: Sequence[str] | None = None


class Link(NamedTuple):
    """A target of a monitor with its conditions: see tables.MonitorTarget."""

    target_id: str
    kinds: frozenset[str] | None
    after: timedelta | None
    told: int | None

    def names(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds or kind not in TROUBLE_KINDS | LATER_KINDS

    def takes(self, notice: Notice) -> bool:
        """Whether an alert goes there at once, without an escalation."""
        if notice.kind in LATER_KINDS and self.told == 0:
            return False
        return self.names(notice.kind) and (self.after is None or notice.kind not in TROUBLE_KINDS)


def raise_alerts(connection: Connection, notices: Sequence[Notice], *, now: datetime) -> None:
    """Store alerts in the outbox, due at once for each target that is not failing, and which targets were told of a trouble."""
    if not notices:
        return
    chosen, told = _chosen(notices, links_of(connection, {notice.monitor_id for notice in notices if notice.monitor_id}))
    if later := {notice.monitor_id for notice in notices if notice.monitor_id and notice.kind in LATER_KINDS}:
        being_sent = withdraw_reminders(connection, later)
        chosen = [(notice, to) for notice, to in chosen if notice.kind != "reminder" or (notice.monitor_id, to) not in being_sent]
    OUTBOX.raise_alerts(connection, [{"target_id": target_id, **_columns(notice)} for notice, target_id in chosen], now=now)
    if told:
        rows = [{"monitor": name, "target": target_id, "epoch": epoch} for (name, target_id), epoch in told.items()]
        named = (MONITOR_TARGETS.c.monitor_id == bindparam("monitor")) & (MONITOR_TARGETS.c.target_id == bindparam("target"))
        connection.execute(update(MONITOR_TARGETS).where(named).values(told=bindparam("epoch")), rows)


def _chosen(
    notices: Sequence[Notice], links: Mapping[str, Sequence[Link]]
) -> tuple[list[tuple[Notice, str]], Mapping[tuple[str, str], int]]:
    """Each alert with each of its targets, and what changes of the trouble that a target was told of: one alert follows from another."""
    before = {(name, link.target_id): link.told for name, those in links.items() for link in those if link.told is not None}
    chosen, told, escalated = list[tuple[Notice, str]](), dict(before), dict[tuple[str, str], int]()
    for notice in notices:
        name = notice.monitor_id or ""
        those = [link._replace(told=told.get((name, link.target_id))) for link in links.get(name, ())]
        targets = [link.target_id for link in those if link.takes(notice)] if notice.targets is None else notice.targets
        chosen += [(notice, target_id) for target_id in targets]
        if notice.kind in TROUBLE_KINDS:
            news = told if notice.targets is None else escalated  # who is told of it now needs no reminder at once
            news |= {(name, target_id): notice.epoch for target_id in targets if (name, target_id) in told}
        elif notice.kind == "recovered":
            told |= {(name, link.target_id): 0 for link in those if link.told is not None}
    return chosen, {key: epoch for key, epoch in (told | escalated).items() if epoch != before[key]}


def forget_told(connection: Connection, monitor_id: str) -> None:
    """A trouble ended without an alert, by its owner: nobody is told of its end."""
    link = MONITOR_TARGETS.c
    connection.execute(update(MONITOR_TARGETS).where(link.monitor_id == monitor_id, link.told.is_not(None)).values(told=0))


def withdraw_reminders(connection: Connection, monitor_ids: Collection[str]) -> Collection[tuple[str, str]]:
    """Delete the reminders of monitors that wait, because newer news replace them; returns the monitor and target of those being sent."""
    reminders = among(connection, ALERTS.c.monitor_id, monitor_ids) & (ALERTS.c.kind == "reminder")
    connection.execute(ALERTS.delete().where(reminders, ALERTS.c.message_id.is_(None)))
    return {(row.monitor_id, row.target_id) for row in connection.execute(select(ALERTS.c.monitor_id, ALERTS.c.target_id).where(reminders))}


def links_of(connection: Connection, monitor_ids: Collection[str]) -> Mapping[str, Sequence[Link]]:
    """The targets of monitors, those of each in their order."""
    if not monitor_ids:
        return {}
    found: dict[str, list[Link]] = {}
    link = MONITOR_TARGETS.c
    columns = (link.monitor_id, link.target_id, link.kinds, link.after, link.told)
    chosen = select(*columns).where(among(connection, link.monitor_id, monitor_ids)).order_by(link.place)
    for monitor_id, target_id, kinds, after, told in connection.execute(chosen):
        found.setdefault(monitor_id, []).append(Link(target_id, None if kinds is None else frozenset(kinds.split()), after, told))
    return found


def raise_test(connection: Connection, row: Row[Any], *, now: datetime) -> int:
    """Store a test alert for each target of a monitor that accepts alerts, and enable a key's disabled ones; returns their number.

    Problem 409 if there is none, or while an earlier test alert waits for one of them.
    """
    linked = MONITOR_TARGETS.join(TARGETS, TARGETS.c.id == MONITOR_TARGETS.c.target_id)
    usable = or_(TARGETS.c.disabled_at.is_(None), TARGETS.c.owner.is_not(None)) & TARGETS.c.verified_at.is_not(None)
    chosen = select(TARGETS).select_from(linked).where(MONITOR_TARGETS.c.monitor_id == row.id, usable)
    targets = connection.execute(chosen.order_by(MONITOR_TARGETS.c.place)).all()
    if not targets:
        raise fixed_problem("no_target_ready")
    ready = [target.id for target in targets]
    tests = (ALERTS.c.monitor_id == row.id) & (ALERTS.c.kind == TEST)
    for target in targets:
        if target.disabled_at is not None:
            connection.execute(ALERTS.delete().where(tests, ALERTS.c.target_id == target.id))
            OUTBOX.enable(connection, target, verified_at=target.verified_at, now=now)
    if connection.scalar(select(ALERTS.c.id).where(tests, ALERTS.c.target_id.in_(ready)).limit(1)) is not None:
        raise fixed_problem("test_alert_waits")
    raise_alerts(connection, [Notice(row.id, row.epoch, TEST, now, now, None, TEST, row.last_beat_at, ready)], now=now)
    return len(ready)


def delivered_to(connection: Connection, monitor_id: str, *, limit: int) -> Sequence[Row[Any]]:
    joined = DELIVERIES.join(TARGETS, TARGETS.c.id == DELIVERIES.c.target_id)
    shown = select(DELIVERIES, TARGETS.c.kind.label("channel"), TARGETS.c.address).select_from(joined)
    mine = shown.where(DELIVERIES.c.monitor_id == monitor_id).order_by(DELIVERIES.c.delivered_at.desc(), DELIVERIES.c.id.desc())
    return connection.execute(mine.limit(limit)).all()


def raise_deaths(connection: Connection, ids: Sequence[str], *, now: datetime) -> None:
    """Store the alerts of monitors that missed their deadline, with one statement for any number of monitors, none of them followed up."""
    link = MONITOR_TARGETS.c
    monitor = MONITORS.c
    named = among(connection, MONITOR_TARGETS.c.monitor_id, ids)
    values = {
        "target_id": link.target_id,
        "monitor_id": monitor.id,
        "epoch": monitor.epoch,
        "kind": literal("dead"),
        "at": literal(now, Moment()),
        "since": monitor.since,
        "reason": case((monitor.run_since.is_not(None), literal("run")), else_=literal("timeout")),
        "last_beat_at": monitor.last_beat_at,
    }
    dead = select(*values.values()).select_from(MONITOR_TARGETS.join(MONITORS, monitor.id == link.monitor_id)).where(named)
    connection.execute(insert(ALERTS).from_select(list(values), dead))
    # of a thousand monitors few have so many: to look at the alerts of all would double the work of a sweep
    more = select(ALERTS.c.id).where(ALERTS.c.monitor_id == monitor.id).offset(ALERTS_PER_MONITOR - 1).correlate(MONITORS)
    if crowded := connection.scalars(select(monitor.id).where(among(connection, monitor.id, ids), exists(more))).all():
        OUTBOX.thin(connection, among(connection, ALERTS.c.monitor_id, crowded))
    OUTBOX.wake(connection, TARGETS.c.id.in_(select(link.target_id).where(named)), now=now)


def _columns(notice: Notice) -> dict[str, object]:
    columns = notice._asdict()
    del columns["targets"]
    return columns
