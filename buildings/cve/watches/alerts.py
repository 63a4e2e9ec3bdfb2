"""What the messages of watches say, and the dispatcher that sends them: the JSON of webhooks, the text of Discord and e-mail."""

import zlib
from collections.abc import Sequence
from datetime import date, datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, FromClause, Row

from buildings.cve.models import UNREADABLE_DAY, ResultPart
from buildings.cve.settings import CveSettings
from buildings.cve.tables import ALERTS, OUTBOX, TARGETS, WATCH_NEWS, WATCH_OWNERS, WATCHES
from buildings.cve.watches.models import SHOWN_ENTRIES, NewsEntry
from campus import Site
from campus.features.alerts import CONFIRM, AlertContents, AlertText, Content, Dispatcher, Question, Registrations, open_channels
from campus.observability import utc_text

NEWS, PAUSED = "news", "paused"
EMAIL_PAGES = "/v1/watches/email"
LONGEST_WAIT = 5.0  # Most seconds between two readings of the outbox: the refresh, which fills it, is another process.
LINES = 20  # CVEs in the text of a message for people.
PACKAGES = 3  # Packages of a stored report in one line of a message.
QUESTION = 'Someone, probably you, asked for news of the watch "{name}" at this address: CVEs that newly fit it, after each daily list.'
ENTRIES: TypeAdapter[tuple[NewsEntry, ...]] = TypeAdapter(tuple[NewsEntry, ...])


def pack_entries(entries: Sequence[NewsEntry]) -> bytes:
    return zlib.compress(ENTRIES.dump_json(tuple(entries)), 9)


def unpack_entries(block: bytes) -> tuple[NewsEntry, ...]:
    return ENTRIES.validate_json(zlib.decompress(block))


class WatchPart(ResultPart):
    """The watch that an event is about."""

    id: str = Field(description="Id of the watch.")
    name: str = Field(description="Name of the watch.")


class NewsEvent(ResultPart):
    """What newly fits a watch on the list of a day."""

    type: Literal["watch.news"] = "watch.news"
    timestamp: datetime = Field(description="When it was found (UTC).")
    watch: WatchPart = Field(description="The watch.")
    day: date = Field(description="Day of the list (UTC).")
    count: int = Field(description="Number of CVEs that newly fit.")
    entries: tuple[NewsEntry, ...] = Field(description="The first 50 of them, in rank order.")
    omitted: int = Field(description="How many earlier messages were left out, because more than 100 of the watch waited.")
    news_url: str = Field(description="Address of all of them and of the watch's later news, for the owning key. It contains no secret.")


class PausedEvent(ResultPart):
    """The key of watches has ended."""

    type: Literal["watch.paused"] = "watch.paused"
    timestamp: datetime = Field(description="When it was noticed (UTC).")
    key_ended_at: datetime = Field(description="When the key ended (UTC).")
    notice: str = Field(description="What it means, and what to do.")


class WatchDigest(ResultPart):
    """Many events in one message, because more than five waited for one target."""

    type: Literal["watch.digest"] = "watch.digest"
    timestamp: datetime = Field(description="When the latest event was noticed (UTC).")
    count: int = Field(description="Number of events.")
    events: tuple[NewsEvent | PausedEvent, ...] = Field(description="The events in their order.")


class WatchAlerts(AlertContents):
    columns: ClassVar[Sequence[ColumnElement[Any]]] = (
        WATCHES.c.name,
        WATCH_NEWS.c.day,
        WATCH_NEWS.c.found,
        WATCH_NEWS.c.entries,
        WATCH_OWNERS.c.ends_at,
    )

    def __init__(self, url: str) -> None:
        self._url = url

    def joined(self, waiting: FromClause) -> FromClause:
        owned = waiting.join(WATCH_OWNERS, TARGETS.c.owner == WATCH_OWNERS.c.lineage)
        return owned.outerjoin(WATCHES, ALERTS.c.watch_id == WATCHES.c.id).outerjoin(WATCH_NEWS, ALERTS.c.news == WATCH_NEWS.c.number)

    def compose(self, alerts: Sequence[Row[Any]]) -> Content | Question:
        if alerts[0].kind == CONFIRM:
            return Question(QUESTION.format(name=alerts[0].name or "of your key"))
        events = [event_of(row, url=self._url) for row in alerts]
        texts = tuple(_text(event) for event in events)
        if len(events) == 1:
            return Content(events[0], texts[0].headline, texts)
        digest = WatchDigest(timestamp=events[-1].timestamp, count=len(events), events=tuple(events))
        return Content(digest, f"News of {len(events)} watches", texts)


def event_of(row: Row[Any], *, url: str) -> NewsEvent | PausedEvent:
    """The event of one alert, a row with `WatchAlerts.columns`; it is the same at each try."""
    if row.kind == PAUSED or row.watch_id is None or row.day is None:
        return PausedEvent(timestamp=row.at, key_ended_at=row.ends_at, notice=_notice(row.ends_at))
    return NewsEvent(
        timestamp=row.at,
        watch=WatchPart(id=row.watch_id, name=row.name or ""),
        day=row.day,
        count=row.found,
        entries=unpack_entries(row.entries)[:SHOWN_ENTRIES],
        omitted=row.omitted,
        news_url=f"{url}/v1/watches/news?since={row.news - 1}&watch_id={row.watch_id}",
    )


def _notice(ended_at: datetime) -> str:
    return (
        f"Your key ended at {utc_text(ended_at)}, and its watches are paused. Renew it to resume them: the next list then also tells what"
        " began to fit meanwhile. Its stored reports are deleted: store them again with the renewed key."
    )


def _text(event: NewsEvent | PausedEvent) -> AlertText:
    if isinstance(event, PausedEvent):
        return AlertText("Your watches are paused: their key has ended", (event.notice,), event.timestamp, "problem")
    first = event.entries[0]
    what = "CVE newly fits" if event.count == 1 else "CVEs newly fit"
    headline = f"{event.watch.name}: {event.count:,} {what}, {'' if event.count == 1 else 'first '}{first.cve_id}"
    more = [f"and {event.count - LINES:,} more: {event.news_url}"] if event.count > LINES else []
    more += [f"not sent: {event.omitted} earlier messages, because too many waited"] if event.omitted else []
    return AlertText(headline, (*map(line_of, event.entries[:LINES]), *more), event.timestamp, "problem")


def line_of(entry: NewsEntry) -> str:
    name = f"{entry.vendor or ''} {entry.product or ''}".strip() or "unknown product"
    listed = f"in KEV since {entry.kev_date_added or UNREADABLE_DAY}" if entry.kev else "not in KEV"
    exposed = f", {entry.when_if_exposed} if exposed" if entry.when_if_exposed else ""
    facts = [f"fix {entry.when}{exposed}".replace("_", " "), f"rank {entry.rank:,}", f"score {entry.score:g}", listed]
    facts += [f"due in KEV {entry.kev_due_date}"] if entry.kev_due_date else []
    facts += ["used in ransomware campaigns"] if entry.ransomware else []
    more = f" and {len(entry.packages) - PACKAGES:,} more" if len(entry.packages) > PACKAGES else ""
    facts += [f"in {', '.join(entry.packages[:PACKAGES])}{more}"] if entry.packages else []
    return f"{entry.cve_id} {name}: {', '.join(facts)}"


class Watching:
    """What the tools for watches share in one process. The dispatcher is made at its first use: the refresh needs none."""

    def __init__(self, site: Site[CveSettings, Any]) -> None:
        self._site = site

    @cached_property
    def registrations(self) -> Registrations:
        return Registrations(self.dispatcher.channels, self._site.web, per_minute=self._site.settings.watches_per_minute)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        site = self._site
        return Dispatcher(OUTBOX, WatchAlerts(site.url), site, channels=open_channels(site, links=EMAIL_PAGES))


async def deliver(site: Site[CveSettings, Any]) -> None:
    await site.state.watching.dispatcher.run(every=LONGEST_WAIT)
