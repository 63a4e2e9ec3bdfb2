"""Routes of feeds for feed readers: the teaser and KEV's additions for everyone, the full list at addresses that a key's owner makes."""

from collections.abc import Callable, Mapping

from buildings.cve.pages.feed_urls import maker_at
from buildings.cve.pages.syndication import MEDIA_TYPES, Syndication, brief_feed, kev_feed, teaser_feed
from buildings.cve.ranking.latest import CveSite
from buildings.cve.server import brief_teaser, top_cves_today
from campus import Problem, Request, Response
from campus.layout import unless_known

PUBLIC = "public, max-age=300, stale-if-error=86400"
PRIVATE = "private, max-age=300"
WRITERS: Mapping[str, Callable[[Syndication], bytes]] = {"json": Syndication.as_json, "atom": Syndication.as_atom}


async def public_feed(request: Request, site: CveSite) -> Response:
    """The free feeds: teaser.json, teaser.atom, kev.json and kev.atom."""
    name = request.path_params["name"]
    subject, _, kind = name.rpartition(".")
    if subject not in ("teaser", "kev") or kind not in WRITERS:
        raise Problem(404, "no_such_feed", "there is no feed with that name; the feeds are: teaser.json, teaser.atom, kev.json, kev.atom")
    if subject == "teaser" and not is_free(site, "brief_teaser"):
        raise Problem(404, "no_such_feed", "the teaser is not free here, so it has no feed")
    edition = site.state.shown()
    if (body := site.state.feeds.get(name)) is None:
        address = f"{site.url}/v1/feeds/{name}"
        if subject == "kev":
            feed = kev_feed(edition, url=site.url, address=address)
        else:
            feed = teaser_feed(await brief_teaser(site=site), made_at=edition.made_at, url=site.url, address=address)
        body = site.state.feeds[name] = WRITERS[kind](feed)
    return unless_known(Response(body, media_type=MEDIA_TYPES[kind], headers={"Cache-Control": PUBLIC}), request)


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
