"""The tools for watches, those of criteria and those that follow a report, and for their news, on the server of the building."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio.to_thread

from buildings.cve.arguments import Exposed, ExposedPlaces, RequiredReport
from buildings.cve.pages.feed_urls import lineage_in, maker_of
from buildings.cve.ranking.latest import CveSite
from buildings.cve.reports.apart import LARGEST_REPORT, LARGEST_TEXT
from buildings.cve.search.criteria import CRITERIA, IN_KEV, Criteria, takes_criteria_of_search
from buildings.cve.search.queries import days_of
from buildings.cve.search.tools import mcp
from buildings.cve.search.unknown import notes_on
from buildings.cve.server import READ_ONLY, REVOKES, SETS
from buildings.cve.watches import store as watches
from buildings.cve.watches.lines import Judge
from buildings.cve.watches.matching import Watched
from buildings.cve.watches.models import (
    Email,
    LeastEpss,
    NewsLimit,
    NewsList,
    OptionalName,
    Removed,
    Since,
    SomeWatchId,
    Watch,
    WatchDeleted,
    WatchedExposure,
    WatchId,
    WatchList,
    WatchMade,
    WatchName,
    Webhook,
)
from buildings.cve.watches.news import read_news
from buildings.cve.watches.reports import MOST_LINES, Following, followed_in, lines_of
from buildings.cve.watches.store import Owner, ReportToFollow, Served, StoredWatch, Wanted
from campus import Caller, CurrentCaller, CurrentSite, Problem, access, route
from campus.features.alerts import UNCONFIRMED, Addresses, sender_of, signing_secret
from campus.storage import in_snapshot, in_transaction

ONLY_POLLED = "This watch has neither webhook nor e-mail address: poll its news with watch_news."
LEAST_SCORE = 1.0  # Of a watch: some 38,000 CVEs reach it.
HIGHEST_SCORE = 100.0
"""The least score of a watch that follows a report, whose criteria are not asked."""
__all__ = ["create_watch", "delete_watch", "list_watches", "mcp", "update_watch", "watch_news", "watch_report"]


@mcp.tool(title="Watch vendors, products or CVEs", annotations=SETS, meta=route("POST /v1/watches", any_of=tuple(CRITERIA)) | access())
@takes_criteria_of_search
async def create_watch(
    name: WatchName,
    exposed: WatchedExposure = None,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
    **criteria: Any,
) -> WatchMade:
    """Be told which CVEs newly matter to you, within a minute of each daily list, instead of comparing lists yourself.

    The criteria are those of search_cves: try them there first. Vendors, products, packages and cve_ids widen the watch, every
    other one narrows it. least_score, at least 1, is by default 25 if there are no others, so that it tells of KEV alone, and else
    1. What fits today's list already is no news: you are told what newly fits from the next list on, each CVE once. News is sent
    to a signed webhook, Discord or e-mail, at least once under one id, and can be polled with watch_news for 90 days. Up to 20
    watches per key; the same watch again returns the one you have.
    """
    wanted = _watched(Watched.model_validate({**criteria, "exposed": exposed or "unknown"}))
    if not any(wanted.sent()):
        raise _nothing_named()
    to, warning = await _checked(alert_webhook, alert_email, site, caller)
    return await _stored(Wanted(name=name, criteria=wanted, webhook=to.webhook, email=to.email), None, warning, site, caller)


@mcp.tool(
    title="Follow a scanner's report",
    annotations=SETS,
    meta=route("POST /v1/watches/reports", body="report", body_limit=LARGEST_TEXT, whole_limit=LARGEST_REPORT) | access(),
)
async def watch_report(
    name: WatchName,
    report: RequiredReport,
    exposed: Exposed = "unknown",
    exposed_places: ExposedPlaces = [],  # noqa: B006  # pydantic copies it
    least_epss: LeastEpss = 0.1,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> WatchMade:
    """Be told when the order of a scanner's report changes, instead of sending it again every day.

    Stores of the report's open findings the identifiers, packages and versions, and nothing else of the file, until you delete the
    watch or its key ends. Each daily list judges them again; news is a CVE that is newly in KEV, used for ransomware, due on
    another day by KEV, at or over least_epss, has a fix, or is to be fixed sooner than before. What the list says when you store
    it is no news: cve_verdicts tells that. The same name again replaces the report, so a pipeline can send each scan. It is one
    of the key's 20 watches: list_watches, update_watch for its addresses, delete_watch and watch_news serve it too.
    """
    read = await site.state.read(report)
    followed = followed_in(read.findings)
    following = Following(exposed=exposed, exposed_places=tuple(exposed_places), least_epss=least_epss)
    names, _ = await site.state.names_of((), read)
    lines = await anyio.to_thread.run_sync(lines_of, followed, following, names)
    if len(lines) > MOST_LINES:
        raise Problem(422, "too_many_lines", f"the report has {len(lines):,} different lines, and a watch follows up to {MOST_LINES:,}")
    if not lines:
        raise Problem(422, "nothing_to_follow", f"{read.form}: no open finding with an identifier, so that nothing would ever be news")
    to, warning = await _checked(alert_webhook, alert_email, site, caller)
    wanted = Wanted(
        name=name,
        criteria=Watched(least_score=HIGHEST_SCORE),
        webhook=to.webhook,
        email=to.email,
        report=ReportToFollow(lines, Judge(site.state.real_edition, following)),
    )
    made = await _stored(wanted, None, warning, site, caller)
    left_out = len(read.findings) - len(followed) + len(read.unreadable)
    notes = [f"{left_out:,} of {len(read.findings) + len(read.unreadable):,} findings are not followed: the report calls them settled, or"
             " they cannot be read."] if left_out else []  # fmt: skip
    return made.model_copy(update={"notes": (*read.notes, *notes, *made.notes)})


@mcp.tool(title="Change a watch", annotations=SETS, meta=route("PATCH /v1/watches/{watch_id}") | access())
@takes_criteria_of_search
async def update_watch(
    watch_id: WatchId,
    name: OptionalName = None,
    exposed: WatchedExposure = None,
    alert_webhook: Webhook = None,
    alert_email: Email = None,
    remove: Removed = None,
    site: CveSite = CurrentSite(),
    caller: Caller = CurrentCaller(),
    **criteria: Any,
) -> WatchMade:
    """Change a watch: send what changes and leave out the rest. `remove` takes criteria away, an empty alert_webhook or
    alert_email the address.

    With other criteria, what fits already is no news. Send alert_webhook or alert_email again to enable an address that was
    disabled. A watch that stopped because the client or key that made it has ended goes on with any change, also with none: look
    first where it sends its news.
    """
    lineage = lineage_in(caller)
    channels = site.state.watching.dispatcher.channels
    before = await in_snapshot(site.storage, lambda connection: watches.stored_wanted(connection, watch_id, lineage, channels))
    if before.follows and (any(Criteria.model_validate(criteria).sent()) or exposed or remove):
        raise Problem(422, "invalid_request", "this watch follows a report, which has no criteria: call watch_report with its name instead")
    changed = {key: value for key, value in Criteria.model_validate(criteria) if value is not None} | dict.fromkeys(remove or ())
    wanted = _watched(before.criteria.model_copy(update=changed | ({"exposed": exposed} if exposed else {})))
    if "least_score" not in changed and _says_more(before.criteria) and not _says_more(wanted):
        raise _nothing_named()
    to, warning = await _checked(alert_webhook, alert_email, site, caller)
    webhook = before.webhook if alert_webhook is None else to.webhook
    email = before.email if alert_email is None else to.email
    return await _stored(Wanted(name=name or before.name, criteria=wanted, webhook=webhook, email=email), watch_id, warning, site, caller)


@mcp.tool(title="List your watches", annotations=READ_ONLY, meta=route("GET /v1/watches") | access())
async def list_watches(site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> WatchList:
    """List the watches of your key: what each is about, who made it, how many CVEs it told of, and whether its messages are delivered."""
    listed = await in_snapshot(site.storage, partial(watches.list_watches, lineage=lineage_in(caller)))
    return listed.model_copy(update={"watches": await _completed(listed.watches, site)})


@mcp.tool(title="Delete a watch", annotations=REVOKES, meta=route("DELETE /v1/watches/{watch_id}") | access())
async def delete_watch(watch_id: WatchId, site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()) -> WatchDeleted:
    """Delete a watch with its news and the messages that are not delivered yet. This cannot be undone."""
    await in_transaction(site.storage, partial(watches.delete_watch, watch_id=watch_id, lineage=lineage_in(caller)))
    return WatchDeleted(ok=True, watch_id=watch_id)


@mcp.tool(title="News of your watches", annotations=READ_ONLY, meta=route("GET /v1/watches/news") | access())
async def watch_news(
    since: Since = 0, watch_id: SomeWatchId = None, limit: NewsLimit = 100, site: CveSite = CurrentSite(), caller: Caller = CurrentCaller()
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
    served = await _served(site)
    stored = await in_transaction(site.storage, partial(work, by=owner, served=served, now=site.now(), entropy=secrets.token_bytes))
    site.state.watching.dispatcher.wake()
    (watch,) = await _completed([stored.watch], site)
    warnings = [warning] if warning else []
    if served and (edition := site.state.real_edition):
        explained = partial(notes_on, criteria=wanted.criteria, days=served.days, kev=edition.facts.kev)
        warnings += await in_snapshot(site.storage, explained)
    return _made(replace(stored, watch=watch), wanted, warnings)


async def _served(site: CveSite) -> Served | None:
    if (edition := site.state.real_edition) is None:
        return None
    days = await in_snapshot(site.storage, partial(days_of, edition=edition, today=edition.day))
    return Served(days, edition.nvd.is_complete)


def _watched(criteria: Watched) -> Watched:
    """The criteria of a watch, which has a least score: that of KEV if it only names CVEs. Problem 422 for one below 1."""
    if criteria.least_score is None:
        least = None if not any(criteria.sent()) else LEAST_SCORE if criteria.beside_names else IN_KEV
        return criteria.model_copy(update={"least_score": least})
    if criteria.least_score < LEAST_SCORE:
        raise Problem(422, "invalid_request", f"least_score of a watch must be at least {LEAST_SCORE:g}")
    return criteria


def _says_more(criteria: Criteria) -> bool:
    return criteria.names_cves or criteria.beside_names is not None


async def _completed(listed: Sequence[Watch], site: CveSite) -> tuple[Watch, ...]:
    makers = await site.keys.makers({one.made_by.id for one in listed})
    shown = [(one, makers[one.made_by.id].shown, tuple(map(site.state.watching.dispatcher.shown, one.targets))) for one in listed]
    return tuple(
        one.model_copy(update={"made_by": by, "targets": targets} | ({"state": "stopped"} if by.ended else {}))
        for one, by, targets in shown
    )


def _made(stored: StoredWatch, wanted: Wanted, warnings: Sequence[str]) -> WatchMade:
    signs = wanted.webhook is not None and wanted.webhook.channel.signs
    notes = [*warnings]
    notes += [UNCONFIRMED.format(what="news", tool="list_watches")] if stored.email is not None and not stored.email.confirmed else []
    notes += [ONLY_POLLED] if stored.webhook is None and stored.email is None else []
    return WatchMade(
        ok=True,
        webhook_secret=signing_secret(stored.webhook.secret) if stored.webhook is not None and signs else None,
        notes=tuple(notes),
        **dict(stored.watch),
    )


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
    return Problem(422, "invalid_request", "send at least one criterion, such as vendors, products or cve_ids, or least_score alone")
