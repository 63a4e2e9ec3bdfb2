"""What a key owns in this building that goes on after its calls: addresses of feeds, and watches."""

from functools import partial

from buildings.cve.pages.feed_urls import feeds_of
from buildings.cve.ranking.latest import CveSite
from buildings.cve.watches.store import list_watches
from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.storage import in_snapshot


async def feeds_and_watches(site: CveSite, key: Key) -> list[Holding]:
    feeds = [
        Holding(
            id=row.id,
            kind="feed address",
            name=row.label or row.id,
            made_at=row.made_at,
            made_by=row.made_by,
            end=ToolCall("revoke_feed_url", {"feed_id": row.id}),
            keep=ToolCall("keep_feed_url", {"feed_id": row.id}),
        )
        for row in await feeds_of(site.storage, key.lineage)
    ]
    watches = [
        Holding(
            id=watch.watch_id,
            kind=", ".join(["watch", *(f"{target.kind} {target.address}" for target in watch.targets)]),
            name=watch.name,
            made_at=watch.made_at,
            made_by=watch.made_by.id,
            end=ToolCall("delete_watch", {"watch_id": watch.watch_id}),
            keep=ToolCall("update_watch", {"watch_id": watch.watch_id}),
        )
        for watch in (await in_snapshot(site.storage, partial(list_watches, lineage=key.lineage))).watches
    ]
    return [*feeds, *watches]
