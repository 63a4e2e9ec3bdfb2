"""Feeds for readers as JSON Feed 1.1, Atom and CSV, and their routes.

The teaser and KEV's additions are for everyone, the full list is at addresses that a key's owner makes.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as Xml

from buildings.cve.models import UNREADABLE_DAY, Brief, Entry, Teaser
from buildings.cve.pages.feed_urls import maker_at
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.latest import CveSite
from buildings.cve.ranking.methodology import NOTICES
from buildings.cve.server import brief_teaser, top_cves_today
from buildings.cve.text_tables import csv_of
from campus import Problem, Request, Response
from campus.layout import unless_known
from campus.observability import utc_text

KEV_DAYS = 30
KEV_COLUMNS = ("cve_id", "vendor", "product", "name", "date_added", "due_date", "ransomware", "required_action", "description")
PUBLIC_FEEDS = ("teaser.json", "teaser.atom", "kev.json", "kev.atom", "kev.csv")
ATOM = "http://www.w3.org/2005/Atom"
JSON_FEED = "https://jsonfeed.org/version/1.1"
NVD_PAGE = "https://nvd.nist.gov/vuln/detail/{cve_id}"
MEDIA_TYPES = {"json": "application/feed+json", "atom": "application/atom+xml; charset=utf-8", "csv": "text/csv; charset=utf-8"}
NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PUBLIC = "public, max-age=300, stale-if-error=86400"
PRIVATE = "private, max-age=300"


@dataclass(frozen=True)
class Item:
    """One item of a feed. Its id changes only when its content changes."""

    id: str
    title: str
    text: str
    url: str
    published: datetime
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class Syndication:
    """A feed: `home` is the URL of what the feed describes, `address` the URL of the feed itself."""

    title: str
    about: str
    home: str
    address: str
    updated: datetime
    items: Sequence[Item]

    def as_json(self) -> bytes:
        items = [
            {
                "id": item.id,
                "url": item.url,
                "title": item.title,
                "content_text": item.text,
                "date_published": _instant(item.published),
                **({"tags": list(item.tags)} if item.tags else {}),
            }
            for item in self.items
        ]
        feed: dict[str, Any] = {"version": JSON_FEED, "title": self.title, "home_page_url": self.home, "feed_url": self.address}
        return json.dumps({**feed, "description": self.about, "language": "en", "items": items}, ensure_ascii=False).encode()

    def as_atom(self) -> bytes:
        Xml.register_namespace("", ATOM)
        feed = Xml.Element(f"{{{ATOM}}}feed")
        _add(feed, "id", self.address)
        _add(feed, "title", self.title)
        _add(feed, "subtitle", self.about)
        _add(feed, "updated", _instant(self.updated))
        _add(_add(feed, "author"), "name", urlsplit(self.home).hostname or self.title)
        _add(feed, "link", rel="self", href=self.address)
        _add(feed, "link", rel="alternate", href=self.home)
        for item in self.items:
            entry = _add(feed, "entry")
            _add(entry, "id", item.id)
            _add(entry, "title", item.title)
            _add(entry, "updated", _instant(item.published))
            _add(entry, "published", _instant(item.published))
            _add(entry, "link", rel="alternate", href=item.url)
            _add(entry, "content", item.text, type="text")
            for tag in item.tags:
                _add(entry, "category", term=tag)
        body: bytes = Xml.tostring(feed, encoding="utf-8", xml_declaration=True)
        return body


def teaser_feed(teaser: Teaser, *, made_at: datetime, url: str, address: str) -> Syndication:
    items = [
        Item(
            id=f"{url}/v1/brief/teaser#{teaser.day}-{entry.cve_id}",
            title=f"{entry.cve_id}: {entry.vendor} {entry.product} (rank {entry.rank} on {teaser.day})",
            text=f"Rank {entry.rank} of the CVEs to fix first on {teaser.day}. Severity: {entry.severity}. {teaser.full_list}",
            url=NVD_PAGE.format(cve_id=entry.cve_id),
            published=made_at,
            tags=[entry.severity],
        )
        for entry in teaser.teaser
    ]
    return Syndication("CVEs to fix first: today's top 3", teaser.source, f"{url}/v1/brief/teaser", address, made_at, items)


def kev_feed(edition: Edition, *, url: str, address: str) -> Syndication:
    """What CISA added to KEV in the last 30 days, the newest first: CISA's own facts, without ranks."""
    first = edition.day - timedelta(days=KEV_DAYS - 1)
    added = sorted(
        (one for one in edition.facts.kev.values() if first <= one.listed_by <= edition.day),
        key=lambda one: (one.listed_by, one.cve_id),
        reverse=True,
    )
    items = [
        Item(
            id=f"{url}/v1/kev/fresh#{one.listed_by}-{one.cve_id}",
            title=f"{one.cve_id}: {one.vendor} {one.product}",
            text=f"CISA added it to KEV on {one.date_added or UNREADABLE_DAY}."
            + (f" CISA's due date is {one.due_date}." if one.due_date else "")
            + (" CISA reports its use in ransomware campaigns." if one.ransomware else ""),
            url=NVD_PAGE.format(cve_id=one.cve_id),
            published=_midnight(one.listed_by),
            tags=["ransomware"] if one.ransomware else [],
        )
        for one in added
    ]
    return Syndication("CVEs added to KEV", NOTICES[2], f"{url}/v1/kev/fresh", address, edition.made_at, items)


def kev_csv(edition: Edition) -> str:
    """The whole of KEV, the newest first: CISA's own facts, without ranks."""
    listed = sorted(edition.facts.kev.values(), key=lambda one: (one.listed_by, one.cve_id), reverse=True)
    rows = ([(getattr(one, name) or None) if name == "ransomware" else getattr(one, name) for name in KEV_COLUMNS] for one in listed)
    return csv_of(KEV_COLUMNS, rows)


def brief_feed(brief: Brief, *, url: str, address: str) -> Syndication:
    items = [
        Item(
            id=f"{url}/v1/archive/{brief.day}#{entry.cve_id}",
            title=f"{entry.rank}. {entry.cve_id}: {entry.vendor or 'unknown vendor'} {entry.product or ''}".rstrip(),
            text=_text_of(entry),
            url=NVD_PAGE.format(cve_id=entry.cve_id),
            published=brief.generated_at,
            tags=[entry.severity, *(["ransomware"] if entry.ransomware else [])],
        )
        for entry in brief.entries
    ]
    return Syndication(f"CVEs to fix first on {brief.day}", brief.source, f"{url}/v1/brief/today", address, brief.generated_at, items)


def _text_of(entry: Entry) -> str:
    epss = "no EPSS yet" if entry.epss is None else f"EPSS {entry.epss}"
    due = f", due {entry.kev_due_date} by CISA" if entry.kev_due_date else ""
    ransomware = " Used in ransomware campaigns." if entry.ransomware else ""
    return (
        f"Score {entry.score}: in KEV since {entry.kev_date_added or UNREADABLE_DAY}{due}; {epss}; severity {entry.severity};"
        f" patch: {entry.patch_status.replace('_', ' ')}.{ransomware}"
    )


def _add(parent: Xml.Element, name: str, text: str | None = None, **attributes: str) -> Xml.Element:
    child = Xml.SubElement(parent, f"{{{ATOM}}}{name}", {key: _printable(value) for key, value in attributes.items()})
    child.text = None if text is None else _printable(text)
    return child


def _printable(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return NOT_IN_XML.sub("\ufffd", text)


def _instant(moment: datetime) -> str:
    return utc_text(moment.astimezone(UTC))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


WRITERS: Mapping[str, Callable[[Syndication], bytes]] = {"json": Syndication.as_json, "atom": Syndication.as_atom}


async def public_feed(request: Request, site: CveSite) -> Response:
    name = request.path_params["name"]
    subject, _, kind = name.rpartition(".")
    if name not in PUBLIC_FEEDS:
        raise Problem(404, "no_such_feed", f"there is no feed with that name; the feeds are: {', '.join(PUBLIC_FEEDS)}")
    if subject == "teaser" and not is_free(site, "brief_teaser"):
        raise Problem(404, "no_such_feed", "the teaser is not free here, so it has no feed")
    edition = site.state.shown()
    if (body := site.state.feeds.get(name)) is None:
        body = site.state.feeds[name] = await _public_body(site, edition, name)
    return unless_known(Response(body, media_type=MEDIA_TYPES[kind], headers={"Cache-Control": PUBLIC}), request)


async def _public_body(site: CveSite, edition: Edition, name: str) -> bytes:
    subject, _, kind = name.rpartition(".")
    address = f"{site.url}/v1/feeds/{name}"
    if kind == "csv":
        return kev_csv(edition).encode()
    if subject == "kev":
        return WRITERS[kind](kev_feed(edition, url=site.url, address=address))
    return WRITERS[kind](teaser_feed(await brief_teaser(site=site), made_at=edition.made_at, url=site.url, address=address))


async def full_feed(request: Request, site: CveSite) -> Response:
    """The full list at an address that the owner of a key made: brief.json, brief.atom and brief.csv, for as long as the key lasts."""
    secret = request.path_params["secret"]
    name = request.path_params["name"]
    made_by = await maker_at(site.storage, secret)
    if made_by is None or (await site.keys.maker(made_by)).has_ended(site.now()) or not _opens_list(site):
        detail = "there is no feed at this address: it is wrong or revoked, or the key or client that made it has ended; make a new one"
        raise Problem(404, "no_such_feed", detail)
    kind = name.removeprefix("brief.")
    if kind not in MEDIA_TYPES or name == kind:
        raise Problem(404, "no_such_feed", "there is no feed with that name; the feeds are: brief.json, brief.atom, brief.csv")
    brief = await top_cves_today(site=site)
    if kind == "csv":
        body = brief.as_csv().encode()
    else:
        body = WRITERS[kind](brief_feed(brief, url=site.url, address=f"{site.url}/v1/feeds/{secret}/{name}"))
    return unless_known(Response(body, media_type=MEDIA_TYPES[kind], headers={"Cache-Control": PRIVATE}), request)


def is_free(site: CveSite, tool: str) -> bool:
    """Whether everyone may call a tool here: the operator may have set a price, or hidden the tool."""
    entry = site.directory.tool(site.name, tool)
    return entry is not None and entry.free


def _opens_list(site: CveSite) -> bool:
    """Whether the full list is free here, or opened by the keys that may make a feed's address: the operator sets both scopes."""
    brief, maker = (site.directory.tool(site.name, name) for name in ("top_cves_today", "create_feed_url"))
    return brief is not None and (brief.free or (maker is not None and brief.key_scope == maker.key_scope))
