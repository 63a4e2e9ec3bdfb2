"""The daily tidying: monitors that nobody has beaten for a month, answers that need not be repeated, owners of nothing."""

import logging
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from buildings.recorder.changes import forget
from buildings.recorder.live import Here
from buildings.recorder.replies import KEPT
from buildings.recorder.tables import ALERTS, MONITORS, OWNERS, REPLIES, TARGETS
from buildings.recorder.transactions import in_transaction

log = logging.getLogger(__name__)

SILENT = timedelta(days=30)
UNDELIVERABLE = timedelta(days=30)
AT_ONCE = 200


async def tidy(site: Here) -> None:
    """Remove keyless monitors that are silent for 30 days, a few at a time, and what else has had its day."""
    removed = 0
    while found := await in_transaction(site.storage, lambda connection: _forget_silent(connection, site.now())):
        removed += found
    await in_transaction(site.storage, lambda connection: _remove_old(connection, site.now()))
    log.info("tidied", extra={"silent_monitors": removed})


def _forget_silent(connection: Connection, now: datetime) -> int:
    silent = MONITORS.c.owner.is_(None) & (MONITORS.c.alive_at <= now - SILENT)
    rows = connection.execute(select(MONITORS).where(silent).limit(AT_ONCE)).all()
    forget(connection, rows)
    return len(rows)


def _remove_old(connection: Connection, now: datetime) -> None:
    connection.execute(REPLIES.delete().where(REPLIES.c.at <= now - KEPT))
    connection.execute(ALERTS.delete().where(ALERTS.c.at <= now - UNDELIVERABLE))
    used = select(TARGETS.c.owner).where(TARGETS.c.owner.is_not(None))
    connection.execute(
        OWNERS.delete().where(OWNERS.c.monitors == 0, OWNERS.c.lineage.not_in(used), OWNERS.c.asked_on < now.date().toordinal())
    )
