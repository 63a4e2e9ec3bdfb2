"""Addresses of the full list's feeds: the owner of a key makes, lists, keeps and revokes them; a reader that has one needs no key."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.models import Result, ResultPart
from buildings.cve.ranking.latest import CveSite
from buildings.cve.tables import FeedUrl
from campus import Caller, Problem
from campus.keys.makers import MadeBy
from campus.secrets import Entropy, digest_of, random_base62, random_id
from campus.storage import Storage

SECRET_LENGTH = 32
MOST_PER_KEY = 20

Label = Annotated[str, Field(max_length=80, description="Your name for it, such as the reader that uses it.", examples=["news reader"])]
FeedId = Annotated[str, Field(description="Id of the feed's address, from create_feed_url or list_feed_urls.", examples=["feed_4fJ2x0"])]


class FeedUrls(ResultPart):
    """The addresses of one feed in three formats. They hold a secret: whoever has one may read the full list."""

    json_feed: str = Field(description="Address of the full list as JSON Feed 1.1.")
    atom: str = Field(description="Address of the full list as Atom.")
    csv: str = Field(description="Address of the full list as CSV.")


class FeedEntry(ResultPart):
    """One feed's address, without its secret."""

    feed_id: str = Field(description="Id, for revoke_feed_url.")
    label: str = Field(description="Your name for it; empty if you gave none.")
    made_at: datetime = Field(description="When it was made (UTC).")


class ListedFeed(FeedEntry):
    """One feed's address with who made it."""

    made_by: MadeBy = Field(description="The key or connected client that made it, or kept it last.")
    state: Literal["active", "stopped"] = Field(
        description="active: its readers get the list. stopped: they get 404, because `made_by` has ended; call keep_feed_url if you made"
        " it or still need it, else revoke_feed_url."
    )


class FeedKept(Result):
    """A feed's address that goes on."""

    feed_id: str = Field(description="Id of the address.")


class FeedMade(FeedEntry, Result):
    """A new feed's addresses. They are not shown again."""

    urls: FeedUrls = Field(description="Addresses to subscribe to. Store them: they are not shown again.")


class FeedList(Result):
    """The feeds' addresses that a key owns."""

    count: int = Field(description="Number of addresses.")
    feeds: tuple[ListedFeed, ...] = Field(description="The addresses, the oldest first, without their secrets.")


class FeedRevoked(Result):
    """A feed's address that is not valid any more."""

    feed_id: str = Field(description="Id of the revoked address.")


def lineage_in(caller: Caller) -> str:
    assert caller.key is not None, "the paywall admits keys only"
    return caller.key.lineage


def maker_of(caller: Caller) -> str:
    assert caller.maker is not None, "the paywall admits keys only"
    return caller.maker


async def make_feed_url(site: CveSite, caller: Caller, label: str, *, entropy: Entropy) -> FeedMade:
    """A new address for the owner of a key; raises Problem 409 if it has 20."""
    secret = random_base62(SECRET_LENGTH, entropy)
    lineage = lineage_in(caller)
    row = FeedUrl(
        id=random_id("feed", entropy), digest=digest_of(secret), lineage=lineage, made_by=maker_of(caller), label=label, made_at=site.now()
    )
    async with site.storage.write() as session:
        mine = select(func.count()).select_from(FeedUrl).where(col(FeedUrl.lineage) == lineage)
        if (await session.exec(mine)).one() >= MOST_PER_KEY:
            raise Problem(
                409, "feed_limit_reached", f"your key has {MOST_PER_KEY} feed addresses, the maximum; revoke one with revoke_feed_url"
            )
        session.add(row)
    there = f"{site.url}/v1/feeds/{secret}"
    urls = FeedUrls(json_feed=f"{there}/brief.json", atom=f"{there}/brief.atom", csv=f"{there}/brief.csv")
    return FeedMade(ok=True, feed_id=row.id, label=label, made_at=row.made_at, urls=urls)


async def list_feed_urls(site: CveSite, *, lineage: str) -> FeedList:
    feeds = await _entries(site, await feeds_of(site.storage, lineage))
    return FeedList(ok=True, count=len(feeds), feeds=feeds)


async def feeds_of(storage: Storage, lineage: str) -> Sequence[FeedUrl]:
    chosen = select(FeedUrl).where(col(FeedUrl.lineage) == lineage).order_by(col(FeedUrl.made_at), col(FeedUrl.id))
    async with storage.read() as session:
        return (await session.exec(chosen)).all()


async def keep_feed_url(site: CveSite, caller: Caller, feed_id: str) -> FeedKept:
    """Make the caller the maker of an address whose maker has ended; raises Problem 404 if the owner of the key has none with this id."""
    async with site.storage.read() as session:
        row = await _owned(session, feed_id, lineage_in(caller))
    (entry,) = await _entries(site, [row])
    if entry.state == "stopped":
        async with site.storage.write() as session:
            row = await _owned(session, feed_id, lineage_in(caller))
            row.made_by = maker_of(caller)
    return FeedKept(ok=True, feed_id=feed_id)


async def revoke_feed_url(storage: Storage, *, lineage: str, feed_id: str) -> FeedRevoked:
    """End an address; raises Problem 404 if the owner of the key has none with this id."""
    async with storage.write() as session:
        await session.delete(await _owned(session, feed_id, lineage))
    return FeedRevoked(ok=True, feed_id=feed_id)


async def maker_at(storage: Storage, secret: str) -> str | None:
    async with storage.read() as session:
        return (await session.exec(select(FeedUrl.made_by).where(col(FeedUrl.digest) == digest_of(secret)))).first()


async def _owned(session: AsyncSession, feed_id: str, lineage: str) -> FeedUrl:
    row = await session.get(FeedUrl, feed_id)
    if row is None or row.lineage != lineage:
        raise Problem(404, "no_such_feed", "your key has no feed address with this id; list_feed_urls lists them")
    return row


async def _entries(site: CveSite, rows: Sequence[FeedUrl]) -> tuple[ListedFeed, ...]:
    makers = await site.keys.makers({row.made_by for row in rows})
    shown = [(row, makers[row.made_by].shown) for row in rows]
    return tuple(
        ListedFeed(feed_id=row.id, label=row.label, made_at=row.made_at, made_by=by, state="stopped" if by.ended else "active")
        for row, by in shown
    )
