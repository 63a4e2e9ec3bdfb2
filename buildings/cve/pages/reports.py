"""What to fix first of a scanner's report: the page that reads one, a few a day for everyone, and its part of the start page."""

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

import anyio.to_thread

from buildings.cve.arguments import Exposure
from buildings.cve.kept import keep
from buildings.cve.pages.lists import LIST, NOT_ADMITTED, exposed_in, file
from buildings.cve.ranking.latest import CveSite
from buildings.cve.reports.accounting import BUCKETS, SETTLED, Bucket, FindingRow
from buildings.cve.reports.apart import LARGEST_TEXT
from buildings.cve.reports.batch import MOST_SHOWN, Asked, Verdicts, verdicts_of
from buildings.cve.reports.findings import Report
from buildings.cve.reports.glance import MOST_ROWS, Glance, glance_of, reasons_of
from buildings.cve.reports.identifiers import Listed
from buildings.cve.reports.reader import read_report
from campus import Problem, Request, Response
from campus.caller import Key
from campus.directory import ProductEntry

REPORT = f"{LIST}/report"
ROWS_SHOWN = 60
LONGEST_UNPACKED = 4 * LARGEST_TEXT + 1  # Bytes: the tool refuses what has more characters than a report may have.
PACKED_FAST = 1  # zlib's level.
FILES = {"csv": "text/csv", "md": "text/markdown"}
PACKAGE_URL = re.compile(r"pkg:[A-Za-z0-9.+-]+/[!-;=?-~]{1,500}")
OURS = (
    ("log4j-core", "2.14.1", "2.17.1", "CVE-2021-44228"),
    ("smartermail", "9406", "9413", "CVE-2025-52691"),
    ("ivanti-epmm", "12.7.0", "", "CVE-2026-1281"),
    ("fortios", "7.4.9", "7.4.11", "CVE-2026-24858"),
    ("openssh-server", "9.2p1", "9.2p1-2+deb12u3", "CVE-2024-6387"),
    ("widget", "1.0.0", "", "CVE-1999-99999"),
    ("form-data", "4.0.0", "4.0.4", "GHSA-jfh8-c2jp-5v3q"),
)
EXAMPLE = json.dumps(
    {
        "descriptor": {"name": "grype"},
        "matches": [
            {"vulnerability": {"id": one, "fix": {"versions": [fixed] * bool(fixed)}}, "artifact": {"name": package, "version": version}}
            for package, version, fixed, one in OURS
        ],
        "ignoredMatches": [{"vulnerability": {"id": "CVE-2014-3566"}, "artifact": {"name": "openssl", "version": "1.0.1"}}],
    }
)
"""The report that a visitor without one can try, as Grype writes it."""


async def start(request: Request, site: CveSite) -> str:
    """The building's part of the start page: a place for a report, and what comes back for ours."""
    if site.directory.tool(site.name, "cve_verdicts") is None:
        return ""
    kept, today = site.state.examples, site.now().date()
    offered = offer(site, (await site.caller(request)).key)
    try:
        shown = kept.get(today) or keep(kept, today, glance_of(example(site, "unknown")), most=1)
    except Problem:  # no list yet
        shown = None
    ours = site.part("example.html", shown=shown, **offered) if shown else ""  # without a form, so that it is kept
    return site.part("start.html", request, ours=ours, **offered)


def offer(site: CveSite, key: Key | None = None) -> dict[str, object]:
    """What the pages say of reports without a key: how many a day, and the product that tells when one changes, if `key` does not."""
    watch = site.directory.tool(site.name, "watch_report")
    scopes = (watch.key_scope, "all") if watch and watch.key_scope else ()
    told: ProductEntry | None = None
    if key is None or key.scope not in scopes:
        told = next((one for one in site.directory.products if one.scope in scopes), None)
    has_mail = site.feature("mail") is not None
    return {
        "a_day": site.settings.free_reports_per_day,
        "told": told,
        "by_wallet": site.directory.seller() is not None,
        "has_mail": has_mail,
    }


@cache
def example_report() -> Report:
    return read_report(EXAMPLE)


def example(site: CveSite, exposed: Exposure) -> Verdicts:
    """Our report by the list of today. Raises Problem 503 while there is none."""
    asked = Asked(listed=Listed(), report=example_report(), exposed=exposed, limit=MOST_ROWS)
    return verdicts_of(site.state.shown(), asked, today=site.now().date())


async def report(request: Request, site: CveSite) -> Response:
    """With a key what `cve_verdicts` answers, and the report as other files; without one a glance, a few times a day."""
    refusal = await _refusal(request, site, "cve_verdicts")
    if refusal and refusal.status not in NOT_ADMITTED:
        raise refusal
    given = await request.form() if request.method == "POST" else {}
    exposed = exposed_in(request)
    text = ""
    found: Verdicts | Glance | None = None
    refused: Problem | None = None
    try:
        if request.method == "POST":
            text = await _text(given)
            if refusal is None and given.get("download"):
                return await _as_file(request, site, text, exposed, given)
            found = await _found(request, site, text, exposed, refusal)
    except Problem as problem:
        refused = problem
    full = found if isinstance(found, Verdicts) else None
    detail = said.detail if (said := refused or refusal) else None
    return site.page(
        "report.html",
        request,
        data=found or {"ok": refused is None, "signed_in": refusal is None, "detail": detail},
        status=refused.status if refused else 200,
        headers=refused.headers if refused else None,
        found=found,
        full=full,
        groups=groups_of(full, settled=False),
        settled=groups_of(full, settled=True),
        verdicts={one.cve_id: one for one in full.verdicts} if full else {},
        again=await anyio.to_thread.run_sync(packed, text) if full else "",
        exposed=exposed,
        is_ours=text == EXAMPLE,
        refused=refused,
        refusal=refusal,
        has_list=site.state.edition is not None,
        can_watch=full is not None and await _refusal(request, site, "watch_report") is None,
        route=f"{site.url}/v1/cve/verdicts",
        **offer(site),
    )


async def _text(given: Mapping[str, Any]) -> str:
    """The report of a form: a file, a text, ours, or the one that the page of an answer has. Raises Problem 422 and 413."""
    sent = [str(given[name]) for name in ("file", "report") if given.get(name)]
    if len(sent) > 1:
        raise Problem(422, "unreadable_report", "there are a file and a text: send one of them, and empty the other")
    if sent:
        return sent[0]
    return EXAMPLE if given.get("example") else await anyio.to_thread.run_sync(unpacked, str(given.get("packed") or ""))


async def _found(request: Request, site: CveSite, text: str, exposed: Exposure, refusal: Problem | None) -> Verdicts | Glance:
    if text == EXAMPLE:
        return example(site, exposed) if refusal is None else glance_of(example(site, exposed))
    if refusal is None:
        return Verdicts.model_validate(await site.call(request, "cve_verdicts", report=text or " ", exposed=exposed, limit=MOST_SHOWN))
    if not site.settings.free_reports_per_day:
        raise refusal
    return await _glance(request, site, text, exposed)


async def _as_file(request: Request, site: CveSite, text: str, exposed: Exposure, given: Mapping[str, Any]) -> Response:
    kind = str(given["download"])
    if media_type := FILES.get(kind):
        body = await site.written(request, "cve_verdicts", media_type, report=text or " ", exposed=exposed)
        return file(body, f"{media_type}; charset=utf-8", f"{site.now().date()}.{kind}")
    found = Verdicts.model_validate(await site.call(request, "cve_verdicts", report=text or " ", exposed=exposed, limit=MOST_SHOWN))
    return _vex(found, product=str(given.get("product") or "").strip(), site=site)


async def _refusal(request: Request, site: CveSite, tool: str) -> Problem | None:
    """Why the visitor may not call a tool."""
    try:
        await site.admit(request, tool)
    except Problem as refusal:
        return refusal
    return None


async def _glance(request: Request, site: CveSite, text: str, exposed: Exposure) -> Glance:
    """What everyone gets; nothing else of the report is kept. Raises Problem 422, 413, 429 and 503."""
    site.state.shown()
    if not text.strip():
        raise Problem(422, "unreadable_report", "choose a file, or paste what your scanner wrote")
    free = site.state.free_reports
    free.take((await site.caller(request)).network, site.now().timestamp())
    read = await site.state.read(text, free=True)
    names, about = await site.state.names_of((), read)
    asked = Asked(listed=Listed(), report=read, names=names, about_names=about, exposed=exposed, limit=MOST_ROWS)
    return glance_of(await site.state.verdicts(asked, now=site.now()))


def groups_of(answer: Verdicts | None, *, settled: bool) -> tuple[tuple[Bucket, tuple[tuple[FindingRow, str], ...]], ...]:
    """The first findings of each bucket that has any, each with its reason: those that are settled, or those that are not."""
    if answer is None:
        return ()
    rows = [(row, why) for row, why in zip(answer.findings, reasons_of(answer), strict=True) if (row.bucket in SETTLED) == settled]
    groups = ((bucket, tuple(one for one in rows[:ROWS_SHOWN] if one[0].bucket == bucket)) for bucket in BUCKETS)
    return tuple((bucket, group) for bucket, group in groups if group)


def packed(report: str) -> str:
    """A report as a field of the page's own form holds it, so that a file of the answer is made of all that the report says."""
    return b64encode(zlib.compress(report.encode(errors="replace"), PACKED_FAST)).decode()


def unpacked(field: str) -> str:
    if not field:
        return ""
    try:
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(b64decode(field, validate=True), LONGEST_UNPACKED)
        if unpacking.unconsumed_tail:
            raise Problem(413, "report_too_large", f"the report in this form has over {LONGEST_UNPACKED - 1:,} bytes")
        return body.decode()
    except (ValueError, zlib.error):
        raise Problem(422, "invalid_request", "the report in this form cannot be read; upload it again") from None


def _vex(found: Verdicts, *, product: str, site: CveSite) -> Response:
    if product and not PACKAGE_URL.fullmatch(product):
        raise Problem(422, "invalid_request", "product is no package URL; write one such as pkg:oci/app@sha256:…, or leave it out")
    return file(found.as_vex(author=site.url, product=product, at=site.now()), "application/json", f"{found.day}.openvex.json")
