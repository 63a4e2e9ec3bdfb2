"""What becomes of monitors when the key that owns them ends, and when it is renewed."""

import logging
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, select, update

from buildings.recorder.changes import set_asleep
from buildings.recorder.delivery.event import WATCHED_ON
from buildings.recorder.live import Here
from buildings.recorder.tables import OWNERS
from buildings.recorder.transactions import in_snapshot, in_transaction

log = logging.getLogger(__name__)


async def follow_keys(site: Here) -> None:
    """Note when each owner's key ends; a week after its end its monitors sleep, and a renewal wakes them."""
    for lineage, known in await in_snapshot(site.storage, _owners):
        end = await site.keys.end_of(lineage)
        ends_at = end if end is not None else min(known, site.now())  # all revoked: it ends now, or has before
        if ends_at == known and site.now() < ends_at + WATCHED_ON:
            continue
        changed = await in_transaction(site.storage, partial(_follow, lineage=lineage, ends_at=ends_at, now=site.now()))
        if changed:
            log.info("monitors followed their key", extra={"lineage": lineage, "count": changed})


def _owners(connection: Connection) -> list[tuple[str, datetime]]:
    rows = connection.execute(select(OWNERS.c.lineage, OWNERS.c.ends_at).where(OWNERS.c.monitors > 0))
    return [(lineage, ends_at) for lineage, ends_at in rows]


def _follow(connection: Connection, lineage: str, ends_at: datetime, now: datetime) -> int:
    connection.execute(update(OWNERS).where(OWNERS.c.lineage == lineage).values(ends_at=ends_at))
    if now < ends_at:
        return set_asleep(connection, lineage, "key_renewed", now=now)
    return set_asleep(connection, lineage, "key_ended", now=now) if now >= ends_at + WATCHED_ON else 0
