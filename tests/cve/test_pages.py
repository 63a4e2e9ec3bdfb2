"""The pages: the teaser for all, the 25 with a key, what the page of one CVE gives away, the forecast, reports and the methodology."""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import get_args

import httpx
import pytest
from cve.conftest import EPSS, KEV, NOON, NVD, Make, OpenTestCampus, open_publisher
from forms import shown
from pages.hostile import ALL_AT_ONCE, harm_in

from buildings.cve.building import building
from buildings.cve.models import Brief
from campus.caller import Frame
from campus.testing import Clock, TestCampus, open_campus
from tests.conftest import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
HTML = {"Accept": "text/html"}
OUTSIDE = {f"CVE-2025-{20_000 + n}": round(0.4 - n / 1000, 5) for n in range(300)}
NOTES = (
    "https://vendor.example/advisory?a=1; javascript:alert(1) https://nvd.nist.gov/vuln/detail/CVE-2026-7001; http://[::1/x"
    " https://cert.example/one/ https://cert.example/two"
)
SAMPLE = Path(__file__).parents[2] / "buildings" / "cve" / "sample"


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    async with open_campus(cve=building, settings={"sample": True}) as opened:
        yield opened


@pytest.fixture(scope="module")
async def made(make: Make, open_test_campus: OpenTestCampus) -> AsyncIterator[TestCampus]:
    """A campus with lists of two days: of the second CISA has removed CVE-2026-9003."""
    clock = Clock(NOON - timedelta(days=1))
    told = {"vulnerabilityName": ALL_AT_ONCE, "shortDescription": "It falls & <breaks>.", "requiredAction": "Lift it.", "notes": NOTES}
    listed = [
        make.kev_entry("CVE-2026-7001", date(2026, 8, 1), vendorProject=ALL_AT_ONCE, knownRansomwareCampaignUse="Known", **told),
        make.kev_entry(
            "CVE-2026-7002", date(2026, 8, 20), vendorProject="Palo Alto Networks", product="PAN-OS", knownRansomwareCampaignUse="Known"
        ),
        *make.listings(40),
    ]
    gone = make.kev_entry("CVE-2026-9003", date(2026, 8, 1))
    statuses = {"CVE-2026-9001": "Rejected", "CVE-2026-9002": "Received", "CVE-2026-1001": "Rejected"}
    async with open_publisher() as publisher, open_test_campus(publisher.url, clock=clock) as opened:
        publisher.put(KEV, make.kev_catalog([gone, *listed], released="2026-08-20T17:00:00.000Z"))
        publisher.put(EPSS, make.epss_file(make.many_scores(1000) | OUTSIDE, scored="2026-08-20T12:00:00Z"))
        publisher.put(NVD, make.nvd_page([make.nvd_record(cve_id, vulnStatus=status) for cve_id, status in statuses.items()]))
        await opened.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        publisher.put(KEV, make.kev_catalog(listed))
        await opened.run("refresh", accept=True)
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
        assert f"{hidden.score:.1f}" not in closed
        assert not re.search(rf"\bRank {hidden.rank}\b", closed)
    for path in (f"/cve/{hidden.cve_id}", "/cve/report", "/cve/watches"):
        closed = (await campus.http.get(path, headers=HTML)).text
        assert f'href="/keys?next={path}"' in closed
        assert re.search(rf'href="/pricing/cve\?next=({path}|/cve/report)"', closed)
        assert "not free" not in closed, "that is what programs are told"


async def test_with_a_key_the_list_shows_the_25_with_their_factors_evidence_and_method(campus: TestCampus) -> None:
    brief, headers = await brief_of(campus), HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    page = await campus.http.get("/cve", headers=headers)
    assert harm_in(page.text) == []
    assert page.headers["cache-control"] == "private, no-store"
    for entry in brief.entries:
        assert f'href="/cve/{entry.cve_id}"' in page.text
        assert f"recency {entry.factors.recency:.1f}, EPSS {entry.factors.epss:.1f}" in page.text
        if entry.patch_evidence:
            assert entry.patch_evidence.url.replace("&", "&amp;") in page.text
    assert 'href="/cve/methodology"' in page.text
    assert len(page.content) < 60_000
    one = await campus.http.get(f"/cve/{brief.entries[10].cve_id}", headers=headers)
    assert f"Rank {brief.entries[10].rank} of" in one.text
    missing = await campus.http.get("/cve/CVE-1999-99999", headers=headers)
    assert "check the number" in missing.text


async def test_what_the_operator_hides_has_no_page() -> None:
    hidden = {tool: {"hidden": True} for tool in ("top_cves_today", "cve_verdict", "list_watches")}
    async with open_campus(cve=building, settings={"sample": True}, tools=hidden) as campus:
        for path in ("/cve", "/cve/CVE-2021-44228", "/cve/watches"):
            assert (await campus.http.get(path, headers=HTML)).status_code == 404


async def test_a_cve_is_looked_up_and_what_is_none_is_explained(campus: TestCampus) -> None:
    led = await campus.http.get("/cve", params={"id": " cve-2021-44228 "}, headers=HTML)
    assert (led.status_code, led.headers["location"]) == (303, "/cve/CVE-2021-44228")
    assert (await campus.http.get("/cve?id=log4shell")).json()["code"] == "invalid_cve_id"
    for wanted in ("/cve?id=log4shell", f"/cve?id={ALL_AT_ONCE[:60]}", "/cve/log4shell", f"/cve/{'9' * 500}"):
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


async def test_what_changed_the_course_of_epss_and_the_history_are_shown(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 20, 21, tzinfo=UTC))
    names = ["Rocket" if n % 9 else ALL_AT_ONCE for n in range(26)]
    newest = [make.kev_entry(f"CVE-2026-50{n:02d}", date(2026, 8, 20 - n // 2), product=name) for n, name in enumerate(names)]
    publisher.put(KEV, make.kev_catalog([*make.listings(40), *newest[1:]], released="2026-08-20T17:00:00Z"))
    scores = {cve_id: score / 1000 for cve_id, score in make.many_scores(100).items()}
    scores |= {f"CVE-2026-50{n:02d}": 0.2 for n in range(26)}
    publisher.put(EPSS, make.epss_file(scores, scored="2026-08-20T12:00:00Z"))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        key = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
        assert "What changed" not in (await campus.http.get("/cve", headers=key)).text, "there is one list only"
        assert "2026-08-20, 1 day." in (await campus.http.get("/cve/CVE-2026-5003", headers=key)).text
        clock.move(timedelta(days=1))
        publisher.put(KEV, make.kev_catalog([*make.listings(40), *newest]))
        publisher.put(EPSS, make.epss_file(scores | {"CVE-2026-5003": 0.7}))
        await campus.run("refresh", accept=True)

        page = (await campus.http.get("/cve", headers=key)).text
        changes = page[page.index("What changed since 2026-08-20") : page.index("<h2>Added to KEV")]
        entered, left = (changes[changes.index(f">{what}<") :].split("</tr>")[0] for what in ("entered", "left"))
        assert "CVE-2026-5000" in entered
        assert "listed" in entered
        assert "CVE-2026-5024" in left
        assert "displaced by CVE-2026-5000" in left
        assert "EPSS rose" in changes
        assert page.count('class="sparkline"') >= 25
        assert (harm_in(page), len(page.encode()) < 100_000) == ([], True)
        past = (await campus.http.get("/cve?day=2026-08-20", headers=key)).text
        assert ("CVE-2026-5024" in past, "sparkline" in past) == (True, False), "today's scores are not those of a past day"
        closed = (await campus.http.get("/cve", headers=HTML)).text
        assert "1 entered, 1 left" in closed
        assert "CVE-2026-5024" not in closed

        one = (await campus.http.get("/cve/CVE-2026-5003", headers=key)).text
        assert harm_in(one) == []
        assert "EPSS from 2026-08-20 to 2026-08-21, 2 days" in one
        assert "listed in KEV" in one
        assert one.count("<polyline") == 3, "of EPSS, and of the score so far and ahead"
        assert re.search(
            r"<td class=\"nowrap\">2026-08-31 <span class=\"muted\">if EPSS stays</span></td><td class=\"number\">\d+\.\d<", one
        )
        assert "<polyline" not in (await campus.http.get("/cve/CVE-2026-5003", headers=HTML)).text, "the history is sold"


async def test_before_any_list_is_graded_the_record_says_that_none_counts_yet(campus: TestCampus) -> None:
    page = await campus.http.get("/cve/next", headers=HTML)
    assert (page.status_code, harm_in(page.text)) == (200, [])
    assert "No list that counts has been made yet" in page.text


async def test_the_forecast_its_record_and_the_methodology_have_pages(made: TestCampus) -> None:
    key = {"Authorization": f"Bearer {await made.key('cve')}"}
    entries = (await made.call("next_in_kev", key="cve", limit=100)).data["entries"]
    closed = await made.http.get("/cve/next", headers=HTML)
    assert [one["cve_id"] in closed.text for one in entries[:4]] == [True, True, True, False]
    opened = await made.http.get("/cve/next", headers=HTML | key)
    assert all(f'href="/cve/{one["cve_id"]}"' in opened.text for one in entries)
    for page in (closed, opened):
        assert (page.status_code, harm_in(page.text), len(page.content) < 100_000) == (200, [], True)
        assert "No list is old enough yet: the first, of 2026-08-20, is graded after 2026-09-19" in page.text
        assert "99 of the first 100 names are not listed" in page.text
    assert (await made.http.get("/cve/next", headers=key)).json() == (await made.call("next_in_kev", key="cve", limit=100)).data
    assert (await made.http.get("/cve/next?day=2026-08-21", headers=HTML | key)).status_code == 200
    for day, status in (("2026-08-19", 404), ("never", 400)):
        assert (await made.http.get(f"/cve/next?day={day}", headers=HTML | key)).status_code == status
    method = await made.http.get("/cve/methodology", headers=HTML)
    assert (harm_in(method.text), len(method.content) < 100_000) == ([], True)
    for sentence in ("The weights were chosen on the data", "A KEV listing is not exploitation", "0.740", "25·KEV"):
        assert sentence in method.text
    assert (await made.http.get("/cve/methodology")).json()["brief"]["formula"].startswith("score = 25·KEV")
    start = (await made.http.get("/cve", headers=HTML)).text
    for address in ("/cve/next", "/cve/report", "/cve/methodology", "/v1/feeds/kev.atom", "/v1/feeds/teaser.json"):
        assert f'href="{address}"' in start
        assert (await made.http.get(address)).status_code == 200


async def test_what_a_vulnerability_is_stands_there_without_a_key_the_same_over_both_frames(made: TestCampus) -> None:
    for frame in get_args(Frame):
        campus = replace(made, frame=frame)
        facts = (await campus.call("cve_facts", cve_id="cve-2026-7001")).data
        listing = facts["listing"]
        said = listing["name"], listing["description"], listing["required_action"]
        assert said == (ALL_AT_ONCE, "It falls & <breaks>.", "Lift it.")
        assert (listing["due_date"], listing["ransomware"]) == ("2026-08-15", True)
        names = [one["name"] for one in facts["links"]]
        assert names == ["NVD", "CVE.org", "CISA", "vendor.example", "cert.example: one", "cert.example: two"]
        assert {"rank", "score", "factors"}.isdisjoint(facts)
        verdict = (await campus.call("cve_verdict", cve_id="CVE-2026-7001", key="cve")).data
        assert (verdict["listing"], verdict["links"]) == (listing, facts["links"])
        nothing = (await campus.call("cve_facts", cve_id="CVE-1999-0001")).data
        assert (nothing["listing"], nothing["nvd"], len(nothing["links"])) == (None, None, 2)
    page = (await made.http.get("/cve/CVE-2026-7001", headers=HTML)).text
    assert harm_in(page) == []
    for text in ("It falls &amp; &lt;breaks&gt;.", "Lift it.", "overdue", "ransomware", 'href="https://vendor.example/advisory?a=1"'):
        assert text in page


async def test_what_has_no_rank_is_offered_none_and_is_not_called_safe(made: TestCampus) -> None:
    reasons = {
        **{"CVE-2026-9001": "rejected", "CVE-2026-9002": "not_yet_scored", "CVE-2026-9003": "removed_from_kev"},
        **{"CVE-2026-1001": "rejected", "CVE-1999-9999": "unknown"},
    }
    for campus in (made, replace(made, frame="mcp")):
        for cve_id, reason in reasons.items():
            facts = (await campus.call("cve_facts", cve_id=cve_id)).data
            verdict = (await campus.call("cve_verdict", cve_id=cve_id, key="cve")).data
            assert (facts["verdict"], facts["miss"], verdict["found"]) == (None, verdict["miss"], False)
            assert facts["miss"]["reason"] == reason
            page = (await campus.http.get(f"/cve/{cve_id}", headers=HTML)).text
            assert harm_in(page) == []
            assert facts["miss"]["explanation"] in unescape(page)
            for offer in ("/v1/cve/CVE", "$0.005", "A key opens", "/pricing#", "How urgent it is"):
                assert offer not in page, cve_id
            assert page.index('id="verdict"') < page.index(unescape(facts["miss"]["explanation"])[:20]), "the verdict is said first"
            assert "CISA has not reported attacks" not in page, "of none of them CISA has said that"
            assert not re.search(r"Fix (today|this week|later)|chance of attack", page), cve_id
            assert ("Withdrawn" in page) == (reason == "rejected"), cve_id
    assert "CISA listed it and removed it before 2026-08-21" in (await made.http.get("/cve/CVE-2026-9003", headers=HTML)).text
    ranked = (await made.call("cve_facts", cve_id="CVE-2026-1000")).data
    assert (ranked["miss"], "/v1/cve/" in ranked["verdict"]) == (None, True)


async def test_the_list_is_filtered_sorted_and_taken_along(campus: TestCampus) -> None:
    brief, headers = await brief_of(campus), HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}

    async def shown(query: str) -> list[str]:
        page = (await campus.http.get(f"/cve?{query}", headers=headers)).text
        return re.findall(r'href="/cve/(CVE-[0-9-]+)"', page[: page.index("Score, of 100 points")])

    assert await shown("show=ransomware") == [entry.cve_id for entry in brief.entries if entry.ransomware]
    assert await shown("show=overdue") == [entry.cve_id for entry in brief.entries]
    assert await shown("show=soon") == []
    by_due = sorted(brief.entries, key=lambda entry: (entry.kev_due_date or date.max, entry.rank))
    assert await shown("sort=due") == [entry.cve_id for entry in by_due]
    assert await shown("sort=none-such") == [entry.cve_id for entry in brief.entries]
    file = await campus.http.get("/cve?download=csv", headers=headers)
    assert (file.text, file.headers["cache-control"]) == (brief.as_csv(), "private, no-store")
    assert file.headers["content-disposition"] == f'attachment; filename="cves-{brief.day}.csv"'
    assert "text/html" in (await campus.http.get("/cve?download=csv", headers=HTML)).headers["content-type"], "the file is sold"


async def test_a_report_is_uploaded_grouped_and_taken_along_as_csv_markdown_and_vex(campus: TestCampus) -> None:
    headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    form = (await campus.http.get("/cve/report", headers=headers)).text
    (token,) = re.findall(r'name="form_token" value="(\w+)"', form)
    report = "CVE-2021-44228 CVE-2024-6387 CVE-1999-99999 GHSA-jfh8-c2jp-5v3q"

    async def uploaded(file: bytes) -> httpx.Response:
        fields = {"form_token": token, "report": ""}
        answer = await campus.http.post("/cve/report", data=fields, files={"file": ("scan.json", file)}, headers=headers)
        return await shown(campus.http, answer, headers)

    for file in (report.encode(), report.encode("utf-16"), b"\xef\xbb\xbf" + report.encode()):
        page = await uploaded(file)
        assert (page.status_code, harm_in(page.text), len(page.content) < 60_000) == (200, [], True)
        assert page.text.index("Fix today") < page.text.index("CVE-2021-44228</a>") < page.text.index("CVE-2024-6387</a>")
        for heading, text in (("Not ranked", "CVE-1999-99999"), ("Not looked up", "GHSA-jfh8-c2jp-5v3q")):
            assert page.text.index(f"<h2>{heading}") < page.text.index(f"<td>{text}"), text
    assert (await uploaded(b"nothing")).status_code == 422
    broken = await campus.http.post("/cve/report", content=b"--x", headers=headers | {"Content-Type": "multipart/form-data; boundary=y"})
    assert broken.status_code in (403, 422)
    tokenless = await campus.http.post("/cve/report", files={"file": ("scan", report.encode())}, headers=headers)
    assert tokenless.status_code == 403, "another site cannot upload"
    finding = {"vulnerability": {"id": "CVE-2024-6387"}, "artifact": {"name": "openssh"}}
    ignored = {"vulnerability": {"id": "CVE-2021-44228"}, "artifact": {"name": "log4j"}}
    report = json.dumps({"matches": [finding], "ignoredMatches": [ignored]})
    (again,) = re.findall(r'name="packed" value="([^"]+)"', (await uploaded(report.encode())).text)

    async def taken(kind: str, product: str = "", sent: str = again) -> httpx.Response:
        fields = {"form_token": token, "packed": sent, "download": kind, "product": product}
        return await shown(campus.http, await campus.http.post("/cve/report", data=fields, headers=headers), headers)

    for kind, media_type in (("csv", "text/csv"), ("md", "text/markdown")):
        as_sent = await campus.http.post("/v1/cve/verdicts", content=report, headers=headers | {"Accept": media_type})
        assert ((await taken(kind)).text, "CVE-2021-44228" in as_sent.text) == (as_sent.text, True), "what is ignored too"
    vex = await taken("vex", "pkg:oci/app")
    assert (vex.headers["cache-control"], vex.headers["content-type"]) == ("private, no-store", "application/json")
    document = vex.json()
    assert document.keys() == {"@context", "@id", "author", "timestamp", "version", "statements"}
    assert [one["vulnerability"]["name"] for one in document["statements"]] == ["CVE-2024-6387"]
    assert {one["status"] for one in document["statements"]} == {"under_investigation"}, "a scanner's finding says no more"
    assert document["statements"][0]["products"] == [{"@id": "pkg:oci/app", "identifiers": {"purl": "pkg:oci/app"}}]
    assert "products" not in (await taken("vex")).json()["statements"][0]
    assert (await taken("vex", "my app")).status_code == 422
    bomb = b64encode(zlib.compress(b" " * 50_000_000)).decode()
    assert [(await taken("csv", sent=sent)).status_code for sent in ("x", "eJw=", bomb)] == [422, 422, 413]


async def test_the_deadline_comes_first_and_the_choice_of_exposure_stays_in_the_address(campus: TestCampus) -> None:
    headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    both, exposed, inside = ("If exposed to the internet", "If not<"), ("If exposed to the internet",), ("Not exposed</dt>",)
    for query, terms, others in (
        ("", both, ()),
        ("?exposed=yes", exposed, both[1:]),
        ("?exposed=no", inside, both),
        ("?exposed=<b>", both, ()),
    ):
        page = (await campus.http.get(f"/cve/CVE-2021-44228{query}", headers=headers)).text
        assert (harm_in(page), [one for one in terms if one not in page], [one for one in others if one in page]) == ([], [], [])
        assert page.index("<strong>Fix today: ") < page.index("BOD 26-04") < page.index("Rank ")
        assert "chance of attack in 30 days" not in page, "attacks are known"
        closed = (await campus.http.get(f"/cve/CVE-2021-44228{query}", headers=HTML)).text
        assert closed.index("<strong>Fix today: ") < closed.index("BOD 26-04"), "the verdict is said to everyone"
    form = (await campus.http.get("/cve/report?exposed=no", headers=headers)).text
    (token,) = re.findall(r'name="form_token" value="(\w+)"', form)
    assert 'action="/cve/report?exposed=no"' in form
    fields = {"form_token": token, "report": "CVE-2021-44228 CVE-2024-6387"}
    page = (await shown(campus.http, await campus.http.post("/cve/report?exposed=no", data=fields, headers=headers), headers)).text
    assert page.count(' action="/cve/report?exposed=no"') == page.count("<form ") == 2, "the answer's, and that of another report"
    path = "/v1/cve/verdicts?exposed=no"
    as_sent = await campus.http.post(path, content=fields["report"], headers=headers | {"Accept": "text/csv"})
    taken = await campus.http.post("/cve/report?exposed=no", data=fields | {"download": "csv"}, headers=headers)
    assert taken.text == as_sent.text
    methodology = (await campus.http.get("/cve/methodology", headers=HTML)).text
    assert methodology.count("3 days and forensic triage") == 3
    assert methodology.count("until the next upgrade</td>") == 2


async def test_a_pasted_report_is_annotated_for_a_key(made: TestCampus) -> None:
    key = {"Authorization": f"Bearer {await made.key('cve')}"}
    form = await made.http.get("/cve/report", headers=HTML | key)
    (token,) = re.findall(r'name="form_token" value="(\w+)"', form.text)

    async def pasted(text: str, **headers: str) -> httpx.Response:
        answer = await made.http.post("/cve/report", data={"form_token": token, "report": text}, headers=HTML | key | headers)
        page = await shown(made.http, answer, HTML | key | headers)
        assert (harm_in(page.text), len(page.content) < 100_000) == ([], True)
        return page

    found = await pasted("fixed: no\nCVE-2026-7001, cve-2026-1003 and CVE-1999-0001; CVE-2021")
    assert found.status_code == 200
    assert re.findall(r'href="/cve/(CVE-\d+-\d+)"', found.text) == ["CVE-2026-7001", "CVE-2026-1003"]
    assert found.text.index("<h2>Not ranked") < found.text.index("<td>CVE-1999-0001") < found.text.index("<h2>Unreadable")
    assert "overdue" in found.text
    numbers = [int(number) for number in re.findall(r"<li><strong>(\d)</strong>", found.text)]
    assert (sum(numbers), "<h1>4 findings. " in found.text, "Read as text, by the list of " in found.text) == (4, True, True)
    assert "<h1>1 finding. " in (await pasted("CVE-2026-7001")).text
    many = await pasted(" ".join(f"CVE-2026-{1000 + n}" for n in range(1000)))
    assert ("These are the first 60." in many.text, many.status_code) == (True, 200)
    parts = re.findall(r"<h2>(?:Fix|Later)[^<]*<span class=\"muted\">(?:the first [\d,]+ of )?([\d,]+)<", many.text)
    numbers = re.findall(r"<li><strong>([\d,]+)</strong>", many.text)
    assert set(parts) <= set(numbers), "the headings say what the summary says"
    for text, status in (("nothing", 422), ("", 422)):
        refused = await pasted(text)
        assert (refused.status_code, "<textarea" in refused.text) == (status, True)
    without = await made.http.post("/cve/report", data={"report": "CVE-2026-7001"}, headers=HTML | key)
    assert without.status_code == 403, "another site cannot paste"


async def test_the_pages_of_a_made_list_are_the_same_on_each_database(storage_url: str) -> None:
    feeds = {"kev_url": "kev.json", "kev_mirror_url": "kev.json", "epss_url": "epss.csv", "nvd_url": "nvd.json"}
    settings = {name: (SAMPLE / file).as_uri() for name, file in feeds.items()}
    async with open_campus(cve=building, settings=settings, storage=storage_url) as campus:
        await campus.run("refresh", accept=True)
        await campus.run("reload")
        headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
        brief = await brief_of(campus)
        page = await campus.http.get("/cve", headers=headers)
        assert (page.status_code, harm_in(page.text)) == (200, [])
        assert all(f'href="/cve/{entry.cve_id}"' in page.text for entry in brief.entries)
        past = await campus.http.get("/cve", params={"day": str(brief.day)}, headers=headers)
        assert brief.entries[0].cve_id in past.text
        one = await campus.http.get(f"/cve/{brief.entries[0].cve_id}", headers=headers)
        assert (one.status_code, "Rank 1 of" in one.text) == (200, True)
        assert brief.entries[5].cve_id not in (await campus.http.get("/cve", headers=HTML)).text


async def test_what_a_cve_is_is_told_without_the_text_of_nvd_while_its_database_is_gone(postgres: Postgres) -> None:
    feeds = {"kev_url": "kev.json", "kev_mirror_url": "kev.json", "epss_url": "epss.csv", "nvd_url": "nvd.json"}
    settings = {name: (SAMPLE / file).as_uri() for name, file in feeds.items()}
    async with open_campus(cve=building, settings=settings, storage=postgres.url(name := postgres.create_database())) as campus:
        await campus.run("refresh", accept=True)
        await campus.run("reload")
        told = (await campus.call("cve_facts", cve_id="CVE-2024-6387")).data
        assert "signal handler" in told["description"]
        postgres.drop_database(name)
        other = (await campus.call("cve_facts", cve_id="CVE-2021-44228")).data
        assert (other["description"], other["listing"]["product"]) == (None, "Log4j2")


async def test_vendors_have_pages_of_what_cisa_says_with_ranks_for_who_may_search(made: TestCampus) -> None:
    http = made.http
    every = {one["name"]: one for one in (await http.get("/cve/vendors")).json()["vendors"]}
    assert next(iter(every)) == "Acme"
    assert [(every[name]["in_kev"], every[name]["ransomware"]) for name in ("Acme", "Palo Alto Networks")] == [(40, 0), (1, 1)]
    path = every["Palo Alto Networks"]["path"]
    page = (await http.get("/cve/vendors", headers=HTML)).text
    assert harm_in(page) == []
    assert 'href="/cve/vendors/paloaltonetworks"' in page
    moved = await http.get("/cve/vendors/Palo%20Alto%20Networks", headers=HTML)
    assert (moved.status_code, moved.headers["location"]) == (308, path)
    closed = (await http.get(path, headers=HTML)).text
    assert "CVE-2026-7002" in closed
    assert "Rank" not in re.sub("<title>.*?</title>", "", closed).split("<h2>")[0]
    assert "score" not in (await http.get(path)).json()["entries"][0]
    mine = {"authorization": f"Bearer {await made.key('cve')}"}
    (entry,) = (await http.get(path, headers=mine)).json()["entries"]
    verdict = (await made.call("cve_verdict", key="cve", cve_id="CVE-2026-7002")).data
    assert (entry["rank"], entry["score"], entry["ransomware"]) == (verdict["rank"], verdict["score"], True)
    linked = (await http.get("/cve/CVE-2026-7002", headers=HTML)).text
    assert f'href="{path}"' in linked
    unknown = await http.get("/cve/vendors/palo%20alto", headers=HTML)
    assert (unknown.status_code, path in unknown.text) == (404, True)
    hostile = await http.get("/cve/vendors/%3Cscript%3Ealert(1)%3C%2Fscript%3E", headers=HTML)
    assert (hostile.status_code, harm_in(hostile.text)) == (404, [])
    refused = await http.get("/cve/vendors/palo%20alto")
    assert (refused.status_code, refused.json()["code"]) == (404, "no_such_vendor")
    csv = await http.get("/v1/feeds/kev.csv")
    assert csv.text.splitlines()[1].startswith("CVE-2026-7002,Palo Alto Networks,PAN-OS,")
    assert len(csv.text.splitlines()) == 43


async def test_a_group_of_a_report_says_of_how_many_the_deadline_may_be_less(campus: TestCampus) -> None:
    headers = HTML | {"Authorization": f"Bearer {await campus.key('cve')}"}
    (token,) = re.findall(r'name="form_token" value="(\w+)"', (await campus.http.get("/cve/report", headers=headers)).text)
    answer = await campus.http.post("/cve/report", data={"form_token": token, "example": "ours"}, headers=headers)
    sample = (await shown(campus.http, answer, headers)).text
    assert (harm_in(sample), "CISA has not published what the deadline depends on: it may be less." in sample) == ([], True)
