"""The list's pages: the teaser for all, the 25 with a key, and what the page of one CVE gives away without one."""

import re
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from pages.hostile import ALL_AT_ONCE, harm_in

from buildings.cve import building
from buildings.cve.models import Brief
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    async with open_campus(cve=building, settings={"sample": True}) as opened:
        yield opened


async def brief_of(campus: TestCampus) -> Brief:
    return Brief.model_validate((await campus.call("top_cves_today", key="cve")).data)


async def test_without_a_key_the_list_and_the_page_of_a_cve_say_what_the_teaser_says(campus: TestCampus) -> None:
    brief = await brief_of(campus)
    page = (await campus.http.get("/cve", headers=HTML)).text
    assert harm_in(page) == []
    assert all(entry.cve_id in page for entry in brief.entries[:3])
    assert not [entry.cve_id for entry in brief.entries[3:] if entry.cve_id in page]
    assert (await campus.http.get("/cve")).json() == (await campus.http.get("/v1/brief/teaser")).json()
    known, hidden = brief.entries[0], brief.entries[10]
    assert known.vendor is not None
    assert known.vendor in (await campus.http.get(f"/cve/{known.cve_id}", headers=HTML)).text
    for accept in ("text/html", "application/json", "text/markdown"):
        closed = (await campus.http.get(f"/cve/{hidden.cve_id}", headers={"Accept": accept})).text
        assert hidden.vendor not in closed
        assert f"{hidden.score:.1f}" not in closed
        assert not re.search(rf"\bRank {hidden.rank}\b", closed)


async def test_with_a_key_the_list_shows_the_25_with_their_factors_evidence_and_method(campus: TestCampus) -> None:
    brief, headers = await brief_of(campus), HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    page = await campus.http.get("/cve", headers=headers)
    assert harm_in(page.text) == []
    assert page.headers["cache-control"] == "private, no-store"
    for entry in brief.entries:
        assert f'href="/cve/{entry.cve_id}"' in page.text
        assert f"KEV {entry.factors.kev:.0f}, EPSS {entry.factors.epss:.1f}, recency {entry.factors.recency:.1f}" in page.text
        if entry.patch_evidence:
            assert entry.patch_evidence.url.replace("&", "&amp;") in page.text
    assert all(limit.split("`")[0].split("'")[0] in page.text for limit in brief.methodology.limits)
    assert len(page.content) < 100_000
    one = await campus.http.get(f"/cve/{brief.entries[10].cve_id}", headers=headers)
    assert f"Rank {brief.entries[10].rank} of" in one.text
    missing = await campus.http.get("/cve/CVE-1999-99999", headers=headers)
    assert "check the number" in missing.text


async def test_a_cve_is_looked_up_and_what_is_none_is_explained(campus: TestCampus) -> None:
    led = await campus.http.get("/cve", params={"id": " cve-2021-44228 "}, headers=HTML)
    assert (led.status_code, led.headers["location"]) == (303, "/cve/CVE-2021-44228")
    for wanted in ("/cve?id=log4shell", "/cve/log4shell", f"/cve/{'9' * 500}"):
        refused = await campus.http.get(wanted, headers=HTML)
        assert (refused.status_code, harm_in(refused.text)) == (400, []), wanted


async def test_a_day_without_a_list_is_told_with_those_of_the_archive(campus: TestCampus) -> None:
    headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    refused = await campus.http.get("/cve?day=2026-08-20", headers=headers)
    assert (refused.status_code, "the archive" in refused.text) == (404, True)
    assert (await campus.http.get("/cve?day=never", headers=headers)).status_code == 400


async def test_hostile_vendors_and_evidence_execute_nothing(campus: TestCampus) -> None:
    brief = await brief_of(campus)
    bad = {"vendor": ALL_AT_ONCE, "product": ALL_AT_ONCE, "patch_evidence": {"url": "javascript:alert(1)", "date": brief.day}}
    worse = Brief.model_validate(brief.model_dump() | {"entries": [entry.model_dump() | bad for entry in brief.entries]})
    state = campus.site.state
    state._brief, state._results = worse, None
    headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    try:
        for given in (HTML, headers):
            page = await campus.http.get("/cve", headers=given)
            assert (page.status_code, harm_in(page.text)) == (200, [])
            assert "&lt;script&gt;" in page.text
    finally:
        state._brief, state._results = brief, None
