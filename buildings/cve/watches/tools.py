"""The tools for watches: create_watch, update_watch, list_watches, delete_watch and watch_news, on the server of the building."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from buildings.cve.pages.feed_urls import lineage_in, maker_of
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.latest import CveSite
from buildings.cve.server import READ_ONLY, REVOKES, SETS, mcp
from buildings.cve.watches import store as watches
from buildings.cve.watches.matching import IN_KEV, Criteria, product_name
from buildings.cve.watches.models import (
    Email,
    LeastScore,
    NewsLimit,
    NewsList,
    OptionalName,
    Products,
    Since,
    SomeWatchId,
    Vendors,
    Watch,
    WatchDeleted,
    WatchedExposure,
    WatchedIds,
    WatchId,
    WatchList,
    WatchMade,
    WatchName,
    Webhook,
)
from buildings.cve.watches.news import read_news
from buildings.cve.watches.store import Owner, StoredWatch, Wanted
from campus import Caller, CurrentCaller, CurrentSite, Problem, access, route
from campus.features.alerts import UNCONFIRMED, Addresses, sender_of, signing_secret
from campus.storage import in_snapshot, in_transaction

ONLY_POLLED = "This watch has neither webhook nor e-mail address: poll its news with watch_news."
MOST_SUGGESTIONS = 2
__all__ = ["create_watch", "delete_watch", "list_watches", "mcp", "update_watch", "watch_news"]


@mcp.tool(
    title="Watch vendors, products or CVEs",
    annotations=SETS,
    meta=route("POST /v1/watches", any_of=("vendors", "products", "cve_ids", "least_score")) | access(),
)
async def create_watch(
    name: WatchName,
    vendors: Vendors = None,
    products: Products = None,
    cve_ids: WatchedIds = None,
    least_score: LeastScore = None,
    exposed: WatchedExposure = None,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> WatchMade:
    """Be told which CVEs newly matter to you, within a minute of each daily list, instead of comparing lists yourself.

    A CVE fits if the watch names its vendor, its product or its identifier, and its score is at least least_score. A watch
    with least_score alone takes every CVE with such a score. What fits today's list already is no news: you are told what
    newly fits from the next list on, each CVE once. News is sent to a signed webhook, Discord or e-mail, at least once under
    one id, and can be polled with watch_news for 90 days. Up to 20 watches per key; the same watch again returns the one you
    have.
    """
    criteria = Criteria(
        vendors=tuple(vendors or ()),
        products=tuple(products or ()),
        cve_ids=tuple(dict.fromkeys(cve_ids or ())),
        least_score=IN_KEV if least_score is None else least_score,
        exposed=exposed or "unknown",
    )
    if not criteria.names_cves and least_score is None:
        raise _nothing_named()
    to, warning = await _checked(alert_webhook, alert_email, site, caller)
    return await _stored(Wanted(name=name, criteria=criteria, webhook=to.webhook, email=to.email), None, warning, site, caller)


@mcp.tool(title="Change a watch", annotations=SETS, meta=route("PATCH /v1/watches/{watch_id}") | access())
async def update_watch(
    watch_id: WatchId,
    name: OptionalName = None,
    vendors: Vendors = None,
    products: Products = None,
    cve_ids: WatchedIds = None,
    least_score: LeastScore = None,
    exposed: WatchedExposure = None,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> WatchMade:
    """Change a watch: send what changes and leave out the rest. An empty list or an empty text removes what was there.

    With other vendors, products, CVEs or another least_score, what fits already is no news. Send alert_webhook or
    alert_email again to enable an address that was disabled. A watch that stopped because the client or key that made it
    has ended goes on with any change, also with none: look first where it sends its news.
    """
    lineage = lineage_in(caller)
    channels = site.state.watching.dispatcher.channels
    before = await in_snapshot(site.storage, lambda connection: watches.stored_wanted(connection, watch_id, lineage, channels))
    sent = {"vendors": vendors, "products": products, "cve_ids": None if cve_ids is None else list(dict.fromkeys(cve_ids))}
    changed = {member: tuple(value) for member, value in sent.items() if value is not None}
    criteria = replace(
        before.criteria, **changed, least_score=least_score or before.criteria.least_score, exposed=exposed or before.criteria.exposed
    )
    if not criteria.names_cves and least_score is None and before.criteria.names_cves:
        raise _nothing_named()
    to, warning = await _checked(alert_webhook, alert_email, site, caller)
    webhook = before.webhook if alert_webhook is None else to.webhook
    email = before.email if alert_email is None else to.email
    wanted = Wanted(name=name or before.name, criteria=criteria, webhook=webhook, email=email)
    return await _stored(wanted, watch_id, warning, site, caller)


@mcp.tool(title="List your watches", annotations=READ_ONLY, meta=route("GET /v1/watches") | access())
async def list_watches(site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> WatchList:
    """List the watches of your key: what each is about, who made it, how many CVEs it told of, and whether its messages are delivered."""
    listed = await in_snapshot(site.storage, partial(watches.list_watches, lineage=lineage_in(caller)))
    return listed.model_copy(update={"watches": await _with_makers(listed.watches, site)})


@mcp.tool(title="Delete a watch", annotations=REVOKES, meta=route("DELETE /v1/watches/{watch_id}") | access())
async def delete_watch(watch_id: WatchId, site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> WatchDeleted:
    """Delete a watch with its news and the messages that are not delivered yet. This cannot be undone."""
    await in_transaction(site.storage, partial(watches.delete_watch, watch_id=watch_id, lineage=lineage_in(caller)))
    return WatchDeleted(ok=True, watch_id=watch_id)


@mcp.tool(title="News of your watches", annotations=READ_ONLY, meta=route("GET /v1/watches/news") | access())
async def watch_news(
    since: Since = 0,
    watch_id: SomeWatchId = None,
    limit: NewsLimit = 100,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> NewsList:
    """Return what newly fits your watches, the oldest first; with watch_id that of one of them.

    Use it once a day, after the list is made, if your watches have no webhook, or to catch up. Pass `next` of the answer as
    `since` the next time: you then get every item once. Items are kept for 90 days.
    """
    return await in_snapshot(site.storage, partial(read_news, lineage=lineage_in(caller), since=since, watch_id=watch_id, limit=limit))


async def _stored(wanted: Wanted, watch_id: str | None, warning: str | None, site: CveSite, caller: Caller) -> WatchMade:
    assert caller.key is not None, "the paywall admits keys only"
    work = partial(watches.make_watch if watch_id is None else partial(watches.change_watch, watch_id=watch_id), wanted=wanted)
    owner = Owner(caller.key, maker_of(caller))
    stored = await in_transaction(site.storage, partial(work, by=owner, now=site.now(), entropy=secrets.token_bytes))
    site.state.watching.dispatcher.wake()
    (watch,) = await _with_makers([stored.watch], site)
    return _made(replace(stored, watch=watch), wanted, [warning] if warning else [], site)


async def _with_makers(listed: Sequence[Watch], site: CveSite) -> tuple[Watch, ...]:
    makers = await site.keys.makers({one.made_by.id for one in listed})
    shown = [(one, makers[one.made_by.id].shown) for one in listed]
    return tuple(one.model_copy(update={"made_by": by} | ({"state": "stopped"} if by.ended else {})) for one, by in shown)


def _made(stored: StoredWatch, wanted: Wanted, warnings: Sequence[str], site: CveSite) -> WatchMade:
    signs = wanted.webhook is not None and wanted.webhook.channel.signs
    notes = [*warnings, *_unknown_names(wanted.criteria, site)]
    notes += [UNCONFIRMED.format(what="news", tool="list_watches")] if stored.email is not None and not stored.email.confirmed else []
    notes += [ONLY_POLLED] if stored.webhook is None and stored.email is None else []
    return WatchMade(
        ok=True,
        webhook_secret=signing_secret(stored.webhook.secret) if stored.webhook is not None and signs else None,
        notes=tuple(notes),
        **dict(stored.watch),
    )


def _unknown_names(criteria: Criteria, site: CveSite) -> list[str]:
    if (edition := site.state.edition) is None:
        return []
    listings = edition.facts.kev.values()
    vendors = {plain_name(listing.vendor): listing.vendor for listing in listings}
    products = {plain_name(listing.product): listing.product for listing in listings}
    pairs = {product_name(pair): pair for pair in (f"{listing.vendor}:{listing.product}" for listing in listings)}
    named = [("vendor", name, plain_name(name), vendors) for name in criteria.vendors]
    named += [("product", name, plain, pairs if ":" in plain else products) for name in criteria.products if (plain := product_name(name))]
    return [_note(kind, name, plain, known) for kind, name, plain, known in named if plain not in known]


def _note(kind: str, name: str, plain: str, known: Mapping[str, str]) -> str:
    alike = sorted((one for one in known if len(one) > 1 and (one in plain or plain in one)), key=lambda one: abs(len(one) - len(plain)))
    hint = f" Did you mean {' or '.join(repr(known[one]) for one in alike[:MOST_SUGGESTIONS])}?" if alike else ""
    return f"KEV has no {kind} {name!r} so far: a CVE fits if NVD names it, or once KEV does.{hint}"


async def _checked(webhook: str | None, email: str | None, site: CveSite, caller: Caller) -> tuple[Addresses, str | None]:
    """The addresses that were sent, counted and checked, and a warning about the webhook.

    Problem 429 beyond the limit, 422 for an address that is refused.
    """
    if email and site.feature("mail") is None:
        raise Problem(422, "no_mail_here", "alert_email cannot be used: this service sends no e-mail; send alert_webhook instead")
    sender = sender_of(lineage_in(caller), caller.network)
    registrations = site.state.watching.registrations
    addresses = await registrations.addresses(webhook, email, sender)
    return addresses, await registrations.check(addresses.webhook, sender, site.now())


def _nothing_named() -> Problem:
    return Problem(422, "invalid_request", "name vendors, products or cve_ids, or send least_score alone to watch every CVE that has it")
