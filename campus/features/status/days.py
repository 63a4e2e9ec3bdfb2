"""How the service did each day: measured once a minute by each process, and stored for all of them together.

A minute in which no process measures is one in which the service did not work, or could not store that it does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta

from sqlalchemy import bindparam, delete, text
from sqlmodel import col, select

from campus.features.status.tables import StatusDay
from campus.storage import Storage, UtcDateTime

SERVICE, ALERTS = "", "/alerts"
"""The names of what is no server: the service as a whole, and the alerts that it delivers."""
DAYS = 90
EVERY = timedelta(minutes=1)
LONGEST_GAP = timedelta(minutes=2, seconds=30)
"""After a longer time without a measurement the service counts as down for all of it."""
ADD = text(
    "INSERT INTO status_days (day, name, good, bad, until) VALUES (:day, :name, :good, :bad, :until) ON CONFLICT (day, name)"
    " DO UPDATE SET good = status_days.good + excluded.good, bad = status_days.bad + excluded.bad, until = excluded.until"
).bindparams(bindparam("until", type_=UtcDateTime()))


def seconds_by_day(start: datetime, end: datetime) -> dict[str, int]:
    """The whole seconds between two times, by day in UTC; none if the clock was set back."""
    found: dict[str, int] = {}
    while start < end:
        midnight = datetime.combine(start.date() + timedelta(days=1), time(), UTC)
        found[start.date().isoformat()] = round((min(midnight, end) - start).total_seconds())
        start = midnight
    return found


def added(
    rows: Sequence[StatusDay], now: datetime, works: Mapping[str, bool], alerts: Mapping[bool, int]
) -> list[tuple[str, str, int, int]]:
    """What one measurement adds to the `rows` of the last ones: day, name, good and bad.

    `works` says of each part whether it does now; `alerts` how many were delivered in time (True) and late since this process measured.
    """
    today = now.date().isoformat()
    counted = [(today, ALERTS, alerts.get(True, 0), alerts.get(False, 0))] if any(alerts.values()) else []
    last = max((row.until for row in rows if row.name == SERVICE), default=None)
    if last is None:
        return [*((today, name, 0, 0) for name in works), *counted]
    is_gap = now - last > LONGEST_GAP
    spans = seconds_by_day(max(last, now - timedelta(days=DAYS)), now) or {today: 0}
    known = {row.name for row in rows if row.until == last}  # a part that is new was not down before it was there
    return [
        (day, name, 0 if is_gap or not good else seconds, seconds if is_gap or not good else 0)
        for name, good in works.items()
        for day, seconds in (spans if name in known else {today: 0}).items()
    ] + counted


class StatusDays:
    """The measurements of one campus, as this process knows them: `rows` are those of 90 days, the oldest first."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.rows: Sequence[StatusDay] = ()
        self.measured_at: datetime | None = None

    async def measure(self, now: datetime, works: Mapping[str, bool], alerts: Counter[bool]) -> None:
        """Store whether each part works; `alerts` are subtracted from what they count once they are stored. Raises StorageError."""
        delivered = Counter(alerts)
        async with self._storage.write() as session:
            rows = (await session.exec(select(StatusDay).order_by(col(StatusDay.day)).with_for_update())).all()
            new = [dict(zip(("day", "name", "good", "bad"), each, strict=True)) for each in added(rows, now, works, delivered)]
            await (await session.connection()).execute(ADD, [each | {"until": now} for each in new])
            await session.exec(delete(StatusDay).where(col(StatusDay.day) <= (now.date() - timedelta(days=DAYS)).isoformat()))
        alerts.subtract(delivered)
        async with self._storage.read() as session:
            self.rows = (await session.exec(select(StatusDay).order_by(col(StatusDay.day)))).all()
        self.measured_at = now
