"""Makes the tools' results from a day's edition: brief, teaser, fresh list, verdict. Pure."""

from collections import Counter
from datetime import date
from typing import Any, TypeVar

from buildings.cve.arguments import Exposure, number_of, spelled
from buildings.cve.feeds.epss import numbers_in
from buildings.cve.feeds.issue import Issue
from buildings.cve.forecast.models import ForecastList
from buildings.cve.models import (
    Brief,
    CveFacts,
    Cvss,
    Entry,
    Factors,
    Feed,
    Feeds,
    FreshList,
    KevListing,
    Miss,
    MissCause,
    NvdDetails,
    PatchEvidence,
    SourcePage,
    Teaser,
    TeaserEntry,
    Verdict,
)
from buildings.cve.ranking.deadlines import Urgency, deadlines_of, in_words, urgency_of
from buildings.cve.ranking.edition import Edition, age, are_stale
from buildings.cve.ranking.enrichment import CATALOG_PAGE, NvdRecord, patch_of
from buildings.cve.ranking.formula import BRIEF_LENGTH, FRESH_DAYS, RankedCve, factors_of, fresh_window
from buildings.cve.ranking.methodology import METHODOLOGY, NOTICES, SOURCE

ListT = TypeVar("ListT", Brief, ForecastList)
TEASER_LENGTH = 3
DECIMALS = 3


def about(edition: Edition) -> dict[str, Any]:
    return {"ok": True, "day": edition.day, "sample": edition.is_sample}


def brief_of(edition: Edition, *, today: date) -> Brief:
    entries = tuple(entry_of(edition, spelled(number), cve) for number, cve in edition.ranked.first(BRIEF_LENGTH))
    return Brief(
        **about(edition),
        generated_at=edition.made_at,
        stale=edition.facts.issues.is_stale(today),
        source=SOURCE,
        count=len(entries),
        entries=entries,
        methodology=METHODOLOGY,
        feeds=feeds_of(edition, today=today),
        notices=notices_of(edition),
    )


def notices_of(edition: Edition) -> tuple[str, ...]:
    """The publishers' notices, after those of a correction and of what cannot be read."""
    correction = edition.facts.issues.correction
    return (*([correction] if correction else []), *gaps_of(edition), *NOTICES)


def gaps_of(edition: Edition) -> tuple[str, ...]:
    """What of KEV and EPSS cannot be read, and what follows, a sentence for each."""
    issues = edition.facts.issues
    feeds = (("KEV", issues.kev, "What CISA lists is listed all the same; the rest"), ("EPSS", issues.epss, "What they say"))
    return tuple(
        f"Parts of {feed} {issue} cannot be read. {rest} is as it was before, or unknown: {'; '.join(issue.unreadable)}."
        for feed, issue, rest in feeds
        if issue.unreadable
    )


def feeds_of(edition: Edition, *, today: date) -> Feeds:
    issues = edition.facts.issues
    nvd = edition.nvd
    return Feeds(
        kev=_feed(issues.kev, today, held_because=issues.kev_held_because),
        epss=_feed(issues.epss, today, held_because=issues.epss_held_because),
        nvd=_feed(nvd.issue, today, total=nvd.total),
    )


def as_of(today: date, published: ListT) -> ListT:
    """A published list on a later day: the feeds that it was made from, with their ages."""
    feeds = published.feeds
    aged = {name: feed.model_copy(update={"age_days": age(feed.date, today)}) for name, feed in feeds if feed.date}
    assert feeds.kev.date, "no list is made without KEV"
    assert feeds.epss.date, "no list is made without EPSS"
    stale = are_stale(kev=feeds.kev.date, epss=feeds.epss.date, day=today)
    return published.model_copy(update={"stale": stale, "feeds": feeds.model_copy(update=aged)})


def teaser_of(brief: Brief, *, full_list: str) -> Teaser:
    first = tuple(
        TeaserEntry(
            rank=str(entry.rank),
            cve_id=entry.cve_id,
            vendor=entry.vendor or "unknown",
            product=entry.product or "unknown",
            severity=entry.severity,
        )
        for entry in brief.entries[:TEASER_LENGTH]
    )
    return Teaser(ok=True, day=brief.day, sample=brief.sample, source=SOURCE, teaser=first, full_list=full_list, stale=brief.stale)


def fresh_of(edition: Edition, *, today: date) -> FreshList:
    first_day, last_day = fresh_window(edition.day)
    added = [cve_id for cve_id, listing in edition.facts.kev.items() if first_day <= listing.listed_by <= last_day]
    entries = [entry_of(edition, cve_id, cve) for cve_id in added if (cve := edition.ranked.find(cve_id))]
    return FreshList(
        **about(edition),
        stale=edition.facts.issues.is_stale(today),
        window_days=FRESH_DAYS,
        first_day=first_day,
        last_day=last_day,
        count=len(entries),
        entries=tuple(sorted(entries, key=lambda entry: entry.rank)),
    )


def verdict_of(edition: Edition, cve_id: str, *, exposed: Exposure, today: date) -> Verdict | Miss:
    of = len(edition.ranked)
    cve = edition.ranked.find(cve_id)
    if cve is None:
        stale = edition.facts.issues.is_stale(today)
        return Miss(**about(edition), found=False, stale=stale, of=of, cve_id=cve_id, miss=cause_of_miss(edition, cve_id))
    record = edition.nvd.find(cve_id)
    urgency = urgency_in(edition, cve_id, cve, exposed=exposed, today=today)
    return Verdict(
        **_sources(edition, cve_id, record, today=today),
        found=True,
        of=of,
        when=urgency.when,
        when_if_exposed=urgency.when_if_exposed,
        why=urgency.why,
        deadlines=in_words(urgency.deadlines),
        **_members(edition, cve_id, cve, record),
    )


def urgency_in(edition: Edition, cve_id: str, cve: RankedCve, *, exposed: Exposure, today: date) -> Urgency:
    record = edition.nvd.find(cve_id)
    return urgency_of(edition.facts.kev.get(cve_id), record.ssvc if record else None, epss=cve.epss, exposed=exposed, today=today)


def facts_of(edition: Edition, cve_id: str, *, description: str | None, verdict: str, exposed: Exposure, today: date) -> CveFacts:
    cve = edition.ranked.find(cve_id)
    record = edition.nvd.find(cve_id)
    miss = None if cve else cause_of_miss(edition, cve_id)
    ssvc = record.ssvc if record else None
    return CveFacts(
        **_sources(edition, cve_id, record, today=today),
        cve_id=cve_id,
        description=description,
        deadlines=None
        if miss and miss.reason in ("rejected", "unknown")
        else in_words(deadlines_of(edition.facts.kev.get(cve_id), ssvc, exposed=exposed, today=today)),
        epss=cve.epss if cve else None,
        severity=record.rating.severity if record and record.rating else "UNKNOWN",
        verdict=verdict if cve else None,
        miss=miss,
    )


def _sources(edition: Edition, cve_id: str, record: NvdRecord | None, *, today: date) -> dict[str, Any]:
    """What both a verdict and the facts say of a CVE: the list's own members, and what the sources publish."""
    removal = edition.facts.removed.get(cve_id)
    return about(edition) | {
        "stale": edition.facts.issues.is_stale(today),
        "listing": listing_of(edition, cve_id),
        "links": links_of(edition, cve_id),
        "nvd": NvdDetails.model_validate(record, from_attributes=True) if record else None,
        "kev_removed_on": removal.noticed_on if removal else None,
    }


def listing_of(edition: Edition, cve_id: str) -> KevListing | None:
    if (listing := edition.facts.kev.get(cve_id)) is None:
        return None
    members = {name: getattr(listing, name) for name in KevListing.model_fields}
    return KevListing(**members | {"ransomware": True if listing.ransomware else None})


def links_of(edition: Edition, cve_id: str) -> tuple[SourcePage, ...]:
    listing = edition.facts.kev.get(cve_id)
    pages = {"NVD": f"https://nvd.nist.gov/vuln/detail/{cve_id}", "CVE.org": f"https://www.cve.org/CVERecord?id={cve_id}"}
    if listing:
        pages["CISA"] = CATALOG_PAGE.format(cve_id=cve_id)
    hosts = {link: host for link in (listing.links if listing else ()) if (host := link.split("/")[2]) != "nvd.nist.gov"}
    times = Counter(hosts.values())
    others = (
        SourcePage(name=host if times[host] == 1 else f"{host}: {link.rstrip('/').rpartition('/')[2][:40]}", url=link)
        for link, host in hosts.items()
    )
    return (*(SourcePage(name=name, url=url) for name, url in pages.items()), *others)


def entry_of(edition: Edition, cve_id: str, cve: RankedCve) -> Entry:
    return Entry(**_members(edition, cve_id, cve, edition.nvd.find(cve_id)))


def _members(edition: Edition, cve_id: str, cve: RankedCve, record: NvdRecord | None) -> dict[str, Any]:
    """The members that Entry and Verdict share; making a Verdict from an Entry would validate them twice."""
    listing = edition.facts.kev.get(cve_id)
    points = factors_of(epss=cve.epss, added=listing.listed_by if listing else None, day=edition.day)
    patch = patch_of(record, cve_id=cve_id, end_of_life=listing.listed_by if listing and listing.end_of_life else None)
    rating = record and record.rating
    return {
        "rank": cve.rank,
        "cve_id": cve_id,
        "score": round(points.score, DECIMALS),
        "kev": listing is not None,
        "kev_date_added": listing.date_added if listing else None,
        "kev_due_date": listing.due_date if listing else None,
        "kev_first_release": listing.first_release if listing else None,
        "kev_unreadable": listing.unreadable if listing else (),
        "ransomware": True if listing and listing.ransomware else None,
        "epss": cve.epss,
        "epss_percentile": cve.percentile,
        "severity": rating.severity if rating else "UNKNOWN",
        "severity_source": rating.source if rating else None,
        "cvss": Cvss(score=rating.score, version=rating.version, vector=rating.vector) if rating else None,
        "patch_status": patch.status,
        "patch_evidence": PatchEvidence(url=patch.url, date=patch.said_on) if patch.url and patch.said_on else None,
        "vendor": (listing and listing.vendor) or (record and record.vendor) or None,
        "product": (listing and listing.product) or (record and record.product) or None,
        "nvd_record": edition.nvd.state_of(number_of(cve_id)),
        "exploit_reference": record.exploit_url if record else None,
        "factors": Factors(kev=points.kev, epss=round(points.epss, DECIMALS), recency=round(points.recency, DECIMALS)),
    }


def cause_of_miss(edition: Edition, cve_id: str) -> MissCause:
    record = edition.nvd.find(cve_id)
    removal = edition.facts.removed.get(cve_id)
    if (record and record.is_rejected) or edition.ranked.leaves_out(cve_id):
        what_next = "CISA lists it in KEV nevertheless." if cve_id in edition.facts.kev else "Remove it from your lists."
        return MissCause(
            reason="rejected",
            explanation=f"{cve_id} was rejected, says NVD: the identifier is withdrawn and names no vulnerability, so it has no rank. "
            f"{what_next}",
        )
    if removal:
        added = f" on {removal.date_added}" if removal.date_added else ""
        return MissCause(
            reason="removed_from_kev",
            explanation=f"CISA added {cve_id} to KEV{added} and later removed it; it has been absent since the list of "
            f"{removal.noticed_on}. EPSS has no score for it.",
        )
    if number_of(cve_id) in numbers_in(edition.facts.issues.epss.unreadable):
        return MissCause(
            reason="unreadable",
            explanation=f"KEV does not list {cve_id}, and what EPSS says of it cannot be read, so it has no rank. Try again tomorrow.",
        )
    if record:
        return MissCause(
            reason="not_yet_scored",
            explanation=f"NVD lists {cve_id}, KEV does not, and EPSS has not scored it yet, which takes about 48 hours. Try again later.",
        )
    absent = "nor NVD " if edition.nvd.state_of(number_of(cve_id)) == "absent" else ""
    unread = "" if absent else " NVD's record of it was not read yet."
    return MissCause(
        reason="unknown",
        explanation=f"Neither KEV nor EPSS {absent}lists {cve_id}.{unread} It may be newer than 48 hours, reserved, rejected, or never "
        f"assigned: check the number, or try again in two days.",
    )


def _feed(issue: Issue | None, today: date, *, total: int | None = None, held_because: str | None = None) -> Feed:
    if issue is None:
        return Feed(version=None, date=None, age_days=None, entries=None)
    return Feed(
        version=issue.version,
        date=issue.issued.date(),
        age_days=age(issue.issued.date(), today),
        entries=issue.entries,
        unreadable=issue.unreadable,
        total=total,
        held_because=held_because,
    )
