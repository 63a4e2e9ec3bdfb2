"""A report without a key: what everyone sees of it, what a key adds, and how many there are a day."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, date, datetime, timedelta

import httpx
import pytest
from forms import shown
from pages.hostile import ALL_AT_ONCE, harm_in

from buildings.cve.building import building
from buildings.cve.reports.free import FreeReports
from buildings.gateway import building as gateway
from campus import Problem
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
HTML = {"Accept": "text/html"}
PRODUCT = {"scope": "cve", "price": "19", "term": "30 days"}
SELLER = {"name": "Example GmbH, Vienna", "contact": "mailto:shop@example.com"}
SOLD = ("rank", "score", "factors", "epss", "deadlines", "verdicts")


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    settings = {"sample": True, "free_reports_per_day": 50}
    async with open_campus(
        cve=building, gateway=gateway, settings=settings, tables={"products": {"cve": PRODUCT}, "seller": SELLER}
    ) as opened:
        yield opened


async def sent(campus: TestCampus, headers: Mapping[str, str] = HTML, **fields: str) -> httpx.Response:
    """The page that answers the form of the start page."""
    start = (await campus.http.get("/", headers=HTML)).text
    (token,) = re.findall(r'name="form_token" value="(\w+)"', start)
    answer = await campus.http.post("/cve/report", data={"form_token": token, **fields}, headers=headers)
    return await shown(campus.http, answer, HTML)


def grype(*findings: tuple[str, str, str, str]) -> str:
    matches = [
        {"vulnerability": {"id": one, "fix": {"versions": [fixed]}}, "artifact": {"name": package, "version": version}}
        for one, package, version, fixed in findings
    ]
    return json.dumps({"descriptor": {"name": "grype"}, "matches": matches})


def numbers_of(page: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"<li><strong>([\d,]+)</strong>", page)]


async def test_everyone_sees_what_to_fix_today_and_why_and_none_of_what_is_sold(campus: TestCampus) -> None:
    start = await campus.http.get("/", headers=HTML)
    assert (harm_in(start.text), len(start.content) < 60_000) == ([], True)
    assert "Our example: 8 findings. 4&nbsp;to fix today." in start.text
    report = grype(
        ("CVE-2024-6387", "openssh-server", "9.2p1", "9.2p1-2+deb12u3"),
        ("CVE-1999-99999", "widget", "1.0", ""),
        ("CVE-2021-44228", "log4j-core", "2.14.1", "2.17.1"),
    )
    page = (await sent(campus, report=report)).text
    assert "<h1>3 findings. 1&nbsp;to fix today.</h1>" in page
    assert numbers_of(page) == [1, 1, 0, 1], "today, this week, can wait, without a rank"
    rows = re.findall(r"<li><span class=\"when\">.*?</li>", page, re.S)
    assert [re.findall(r"<strong>([^<]+)<", row) for row in rows] == [["log4j-core"], ["openssh-server"], ["widget"]]
    assert re.search(
        r"2\.14\.1.*CVE-2021-44228</a>: attackers and ransomware campaigns use it, in CISA's catalog",
        rows[0].replace("&#39;", "'"),
        re.S,
    )
    assert re.search(r"26 % chance of attack within 30 days.*→ 9\.2p1-2\+deb12u3", rows[1], re.S)
    assert "neither CISA nor EPSS knows this identifier" in rows[2]
    assert ("Be told when this changes" in page, "$19" in page, "Sold by Example GmbH, Vienna" in page) == (True, True, True)
    told = (await sent(campus, {"Accept": "application/json"}, report=report)).json()
    assert (told["accounting"]["counts"]["today"], len(told["findings"])) == (1, 3)
    assert not [name for name in SOLD if f'"{name}"' in json.dumps(told)]
    assert not re.search(r"\bRank \d|\bscore \d|\d+\.\d of 100|name=\"(packed|download)\"", page), "what a key opens"

    mine = {**HTML, "Authorization": f"Bearer {await campus.key('cve')}"}
    (token,) = re.findall(r'name="form_token" value="(\w+)"', (await campus.http.get("/cve/report", headers=mine)).text)
    full = await campus.http.post("/cve/report", data={"form_token": token, "report": report}, headers=mine)
    full_page = (await shown(campus.http, full, mine)).text
    assert "<h1>3 findings. 1&nbsp;to fix today.</h1>" in full_page
    assert numbers_of(full_page) == numbers_of(page), "both are counted alike"
    assert ('data-label="Rank">' in full_page, 'name="packed"' in full_page) == (True, True)


async def test_a_stranger_has_a_few_reports_a_day_and_what_is_no_report_is_said() -> None:
    clock = Clock(datetime(2026, 8, 21, 21, tzinfo=UTC))
    async with open_campus(cve=building, gateway=gateway, settings={"sample": True, "free_reports_per_day": 2}, clock=clock) as campus:
        assert (await sent(campus)).status_code == 422, "an empty form costs none"
        statuses = [(await sent(campus, report=text)).status_code for text in ("nothing", "CVE-2021-44228", "CVE-2021-44228 ")]
        assert statuses == [422, 200, 429]
        refused = await sent(campus, report="CVE-2024-6387")
        assert (refused.headers["retry-after"], "2 reports a day are free" in refused.text) == ("43200", True)
        assert "8 findings" in (await sent(campus, example="ours")).text, "ours costs none"
        clock.move(timedelta(hours=12, minutes=1))
        assert (await sent(campus, report="CVE-2024-6387")).status_code == 200
        without = await campus.http.post("/cve/report", data={"report": "CVE-2021-44228"}, headers=HTML)
        assert without.status_code == 403, "another site spends nobody's"


def test_the_reports_of_all_strangers_are_bounded_and_one_who_waits_for_others_loses_none_of_his_own() -> None:
    free = FreeReports(2)
    for number in range(60):
        free.take(f"203.0.113.{number}", 0)
    with pytest.raises(Problem, match="many visitors"):
        free.take("198.51.100.1", 0)
    for _ in range(2):
        free.take("198.51.100.1", 60)
    with pytest.raises(Problem, match="2 reports a day"):
        free.take("198.51.100.1", 60)


async def test_an_operator_may_ask_for_a_key_at_once_and_what_is_hidden_has_no_part_of_the_start_page() -> None:
    async with open_campus(cve=building, gateway=gateway, settings={"sample": True, "free_reports_per_day": 0}) as campus:
        start = (await campus.http.get("/", headers=HTML)).text
        assert ("form_token" in start, 'href="/cve/report"' in start) == (False, True)
        closed = await campus.http.get("/cve/report", headers=HTML)
        assert ("form_token" in closed.text, "/keys?next=/cve/report" in closed.text) == (False, True)
    hidden = {"cve_verdicts": {"hidden": True}}
    async with open_campus(cve=building, gateway=gateway, settings={"sample": True}, tools=hidden) as campus:
        assert "scanner" not in (await campus.http.get("/", headers=HTML)).text.split("<footer")[0].split("</section>")[0]
        assert (await campus.http.get("/cve/report", headers=HTML)).status_code == 404


async def test_before_the_first_list_the_start_page_stands_and_says_so_and_no_report_is_taken() -> None:
    async with open_campus(cve=building, gateway=gateway, settings={"sample": False}) as campus:
        start = await campus.http.get("/", headers=HTML)
        assert (start.status_code, harm_in(start.text), "The first list is being made" in start.text) == (200, [], True)
        assert "form_token" not in start.text
        agents = (await campus.http.get("/connect", headers=HTML)).text
        (address,) = re.findall(r"<h2>Over HTTP</h2>.*?curl -s (\S+?)</code>", agents, re.S)
        assert (await campus.http.get(address)).status_code == 200


async def test_reports_of_every_size_and_of_hostile_names_are_answered_in_60_kb(campus: TestCampus) -> None:
    many = grype(*((f"CVE-20{10 + n % 16}-{1000 + n // 16}", f"package-{n}", "1.0", "2.0") for n in range(4000)))
    hostile = grype(("CVE-2021-44228", ALL_AT_ONCE, ALL_AT_ONCE, ALL_AT_ONCE), (ALL_AT_ONCE, "x", "1", "2"))
    reports = {
        '{"matches": [], "descriptor": {"name": "grype"}}': "<h1>No findings.</h1>",
        grype(("GHSA-jfh8-c2jp-5v3q", "form-data", "4.0.0", "4.0.4")): "<h1>1 finding. None has a rank.</h1>",
        many: "<h1>4,000 findings. ",
        hostile: "<h1>2 findings. ",
        "x" * 900_000: 'role="alert"',
    }
    for report, words in reports.items():
        page = await sent(campus, report=report)
        assert (harm_in(page.text), len(page.content) < 60_000, words in page.text) == ([], True, True), report[:60]
        if words.startswith("<h1>"):
            found = re.findall(r"<h1>([\d,]+) finding", page.text)
            assert sum(numbers_of(page.text)) == int((found or ["0"])[0].replace(",", "")), "the numbers add up to the heading"


async def test_a_key_follows_the_report_of_the_page_and_its_watch_is_shown(campus: TestCampus) -> None:
    mine = {**HTML, "Authorization": f"Bearer {await campus.key('cve')}"}
    (token,) = re.findall(r'name="form_token" value="(\w+)"', (await campus.http.get("/cve/report", headers=mine)).text)
    answer = await campus.http.post("/cve/report", data={"form_token": token, "example": "ours"}, headers=mine)
    page = (await shown(campus.http, answer, mine)).text
    packed, again = re.findall(r'name="packed" value="([^"]+)"', page)[0], re.findall(r'name="form_token" value="(\w+)"', page)[0]
    fields = {"form_token": again, "packed": packed, "exposed": "yes", "name": "our image"}
    made = await shown(campus.http, await campus.http.post("/cve/watches", data=fields, headers=mine), mine)
    assert (made.status_code, "our image" in made.text, "a stored report of 7 lines" in made.text) == (200, True, True)


async def test_a_verdict_that_rests_on_little_says_so_and_where_attacks_are_known_no_chance_stands_beside(
    few, open_test_campus, make
) -> None:
    def ssvc(word: str) -> dict[str, object]:
        options = [{"exploitation": word}, {"automatable": "no"}, {"technicalImpact": "partial"}]
        source = "134c704f-9b21-4f2e-91b3-4a467353bcc0"
        return {"ssvcV203": [{"source": source, "ssvcData": {"options": options}}]}

    few.put("/kev.json", make.kev_catalog([make.kev_entry("CVE-2026-1001", date(2026, 8, 20)), *make.listings(40, first=5000)]))
    records = [make.nvd_record("CVE-2026-1002", metrics=ssvc("active")), make.nvd_record("CVE-2026-1003", metrics=ssvc("none"))]
    few.put("/rest/json/cves/2.0", make.nvd_page(records))
    async with open_test_campus(few.url) as campus:
        await campus.run("refresh", accept=True)

        async def page(cve_id: str) -> str:
            return (await campus.http.get(f"/cve/{cve_id}", headers=HTML)).text

        listed, active, calm, unread = [await page(f"CVE-2026-100{n}") for n in (1, 2, 3, 4)]
        for attacked, verdict in ((listed, "Fix today: "), (active, "Fix this week: CISA calls it exploited")):
            assert verdict in attacked
            assert ("% chance of attack" in attacked, "attacks are known already" in attacked) == (False, True)
        assert ("<strong>Fix later: " in calm, "CISA has not reported attacks" in calm) == (True, True)
        assert ("<strong>Fix later, as far as is known: " in unread, "may make it more urgent" in unread) == (True, True)
        assert "CISA has not reported attacks" not in unread
