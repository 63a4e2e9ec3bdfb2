"""What becomes of monitors when the key that owns them ends, and when it is renewed."""

import logging
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, exists, select, update

from buildings.recorder.events import WATCHED_ON
from buildings.recorder.monitors import apply_key_event
from buildings.recorder.runtime import Here
from buildings.recorder.tables import MONITORS, OWNERS
from campus import in_snapshot, in_transaction

log = logging.getLogger(__name__)


async def follow_keys(site: Here) -> None:
    """Note when each owner's key ends; a week after its end its monitors sleep, and a renewal wakes them.

    So does a clock that was ahead and shows again that the week is not over.
    """
    for lineage, known, asleep in await in_snapshot(site.storage, _owners):
        end = await site.keys.end_of(lineage)
        ends_at = end if end is not None else min(known, site.state.time.now())  # all revoked: it ends now, or has before
        if ends_at == known and site.state.time.now() < ends_at + WATCHED_ON and not asleep:
            continue
        changed = await in_transaction(site.storage, partial(_follow, lineage=lineage, ends_at=ends_at, now=site.state.time.now()))
        if changed:
            log.info("monitors followed their key", extra={"lineage": lineage, "count": changed})


def _owners(connection: Connection) -> list[tuple[str, datetime, bool]]:
    asleep = exists().where(MONITORS.c.owner == OWNERS.c.lineage, MONITORS.c.mode == "asleep")
    rows = connection.execute(select(OWNERS.c.lineage, OWNERS.c.ends_at, asleep).where(OWNERS.c.monitors > 0))
    return [(lineage, ends_at, bool(sleeps)) for lineage, ends_at, sleeps in rows]


def _follow(connection: Connection, lineage: str, ends_at: datetime, now: datetime) -> int:
    connection.execute(update(OWNERS).where(OWNERS.c.lineage == lineage).values(ends_at=ends_at))
    return apply_key_event(connection, lineage, "key_renewed" if now < ends_at + WATCHED_ON else "key_ended", now=now)
