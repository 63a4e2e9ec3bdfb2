"""The tools of the daily list through both frames: one list for all that only read, made on the first evening and the first day."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from cve.conftest import EPSS, KEV, NOON, NVD, Make, OpenTestCampus, Publisher, open_publisher
from features.payments.terms.samples import PAYMENTS

from campus.caller import Frame
from campus.testing import Clock, TestCampus

pytestmark = pytest.mark.anyio

PERCENTILE = 94 / 103
ENTRY = {
    *("rank", "cve_id", "score", "kev", "kev_date_added", "kev_due_date", "ransomware", "epss", "epss_percentile", "severity"),
    *("severity_source", "cvss", "patch_status", "patch_evidence", "vendor", "product", "factors", "nvd_record", "exploit_reference"),
}
OF_VERDICT = {"ok", "day", "found", "stale", "of", "kev_removed_on", "nvd", "listing", "links", "when", "why", "deadlines"}


def publish_every_case(publisher: Publisher, make: Make) -> None:
    """Feeds with one CVE of every case."""
    fresh = make.kev_entry("CVE-2026-7001", date(2026, 8, 20), product="Rocket", knownRansomwareCampaignUse="Known")
    unscored = make.kev_entry("CVE-2026-7002", date(2026, 8, 19))
    ended = make.kev_entry(
        "CVE-2010-0001", date(2022, 1, 3), requiredAction="The impacted product is end-of-life and should be disconnected."
    )
    publisher.put(KEV, make.kev_catalog([fresh, unscored, ended, *make.listings(40)]))
    publisher.put(EPSS, make.epss_file(make.many_scores(100) | {"CVE-2026-7001": 0.9, "CVE-2010-0001": 2e-05, "CVE-2025-5555": 0.42}))
    cvss = {"version": "3.1", "baseScore": 9.8, "vectorString": "CVSS:3.1/AV:N"}
    cpe = {"vulnerable": True, "criteria": "cpe:2.3:a:initech:tps_reports:1:*:*:*:*:*:*:*"}
    records = [
        make.nvd_record(
            "CVE-2026-7001",
            metrics=rating(cvss),
            references=[{"url": "https://acme.example/fix", "tags": ["Patch", "Vendor Advisory"]}],
        ),
        make.nvd_record(
            "CVE-2025-5555",
            metrics=rating({"version": "3.1", "baseScore": 5.0}),
            configurations=[{"nodes": [{"cpeMatch": [cpe]}]}],
        ),
        make.nvd_record("CVE-2026-9001", vulnStatus="Rejected"),
        make.nvd_record("CVE-2026-9002", vulnStatus="Received"),
    ]
    publisher.put(NVD, make.nvd_page(records))


def rating(cvss: dict[str, Any]) -> dict[str, Any]:
    return {"cvssMetricV31": [{"source": "nvd@nist.gov", "type": "Primary", "cvssData": cvss}]}


@pytest.fixture(scope="module")
async def listed(make: Make, open_test_campus: OpenTestCampus) -> AsyncIterator[TestCampus]:
    """A campus with a list of the day on which the archive begins, and one of the evening before."""
    clock = Clock(NOON - timedelta(hours=15))
    async with (
        open_publisher() as publisher,
        open_test_campus(publisher.url, clock=clock, settings={"archive_start": "2026-08-21"}) as campus,
    ):
        publish_every_case(publisher, make)
        await campus.run("refresh", accept=True)
        clock.move(timedelta(hours=15))
        await campus.run("refresh", accept=True)
        yield campus


@pytest.fixture
def campus(listed: TestCampus, frame: Frame) -> TestCampus:
    return replace(listed, frame=frame)


async def test_the_whole_day_through_every_tool(campus: TestCampus) -> None:
    key = await campus.key("cve")

    teaser = (await campus.call("brief_teaser")).data
    assert teaser.keys() == {"ok", "day", "source", "teaser", "full_list"}
    assert (teaser["ok"], teaser["day"]) == (True, "2026-08-21")
    assert teaser["teaser"][0] == {
        "rank": "1",
        "cve_id": "CVE-2026-7001",
        "vendor": "Acme",
        "product": "Rocket",
        "severity": "CRITICAL",
    }
    assert [one["rank"] for one in teaser["teaser"]] == ["1", "2", "3"]
    assert "http://campus.test/v1/brief/today" in teaser["full_list"]
    assert teaser["full_list"].endswith("; with a key of scope cve (from $19).")

    brief = (await campus.call("top_cves_today", key=key)).data
    members = ("ok", "day", "edition", "generated_at", "stale", "source", "count", "entries", "methodology", "feeds", "notices")
    assert tuple(brief) == members
    assert (brief["generated_at"], brief["stale"], brief["count"]) == ("2026-08-21T14:00:00Z", False, 25)
    assert [entry["rank"] for entry in brief["entries"]] == list(range(1, 26))
    assert all(entry.keys() == ENTRY and entry["kev"] for entry in brief["entries"])
    first, second = brief["entries"][:2]
    assert first == {
        "rank": 1,
        "cve_id": "CVE-2026-7001",
        "score": 96.358,
        "kev": True,
        "kev_date_added": "2026-08-20",
        "kev_due_date": "2026-09-03",
        "ransomware": True,
        "epss": 0.9,
        "epss_percentile": PERCENTILE,
        "severity": "CRITICAL",
        "severity_source": "nvd",
        "cvss": {"score": 9.8, "version": "3.1", "vector": "CVSS:3.1/AV:N"},
        "patch_status": "fix_reference",
        "patch_evidence": {"url": "https://acme.example/fix", "date": "2026-08-20"},
        "vendor": "Acme",
        "product": "Rocket",
        "nvd_record": "read",
        "exploit_reference": None,
        "factors": {"kev": 25.0, "epss": 22.5, "recency": 48.858},
    }
    assert second["cve_id"] == "CVE-2026-7002"
    assert (second["epss"], second["epss_percentile"], second["ransomware"], second["cvss"]) == (None, None, None, None)
    epss = {"version": "v2026.06.15", "date": "2026-08-21", "age_days": 0, "entries": 103, "total": None, "held_because": None}
    assert brief["feeds"]["epss"] == epss

    fresh = (await campus.call("kev_fresh", key=key)).data
    assert list(fresh) == ["ok", "day", "stale", "window_days", "from", "to", "count", "entries"]
    assert (fresh["window_days"], fresh["from"], fresh["to"], fresh["count"]) == (7, "2026-08-15", "2026-08-21", 2)
    assert fresh["entries"] == [first, second]

    assert (await campus.call("archived_brief", key=key, date="2026-08-21")).data == brief


async def test_a_verdict_for_every_kind_of_cve(campus: TestCampus) -> None:
    key = await campus.key("cve")

    async def verdict(cve_id: str) -> dict[str, Any]:
        reply = await campus.call("cve_verdict", key=key, cve_id=cve_id)
        assert reply.status == 200
        assert (reply.data["ok"], reply.data["day"], reply.data["of"]) == (True, "2026-08-21", 104)
        return reply.data

    listed = await verdict("cve-2026-7001")
    assert listed.keys() == ENTRY | OF_VERDICT
    assert (listed["found"], listed["cve_id"], listed["rank"], listed["score"]) == (True, "CVE-2026-7001", 1, 96.358)

    unlisted = await verdict("CVE-2025-5555")
    assert (unlisted["kev"], unlisted["kev_date_added"], unlisted["kev_due_date"], unlisted["ransomware"]) == (False, None, None, None)
    assert (unlisted["score"], unlisted["factors"]) == (10.5, {"kev": 0.0, "epss": 10.5, "recency": 0.0})
    assert (unlisted["vendor"], unlisted["product"], unlisted["severity"]) == ("initech", "tps reports", "MEDIUM")

    unscored = await verdict("CVE-2026-7002")
    assert (unscored["found"], unscored["kev"], unscored["epss"], unscored["factors"]["epss"]) == (True, True, None, 0.0)

    ended = await verdict("CVE-2010-0001")
    assert (ended["patch_status"], ended["patch_evidence"]["date"], ended["epss"]) == ("no_fix_eol", "2022-01-03", 2e-05)

    for cve_id, reason in [("CVE-2026-9001", "rejected"), ("CVE-2026-9002", "not_yet_scored"), ("CVE-2026-9999999", "unknown")]:
        miss = await verdict(cve_id)
        assert miss.keys() == {"ok", "day", "found", "stale", "of", "cve_id", "miss"}
        assert (miss["found"], miss["cve_id"], miss["miss"]["reason"]) == (False, cve_id, reason)
        assert cve_id in miss["miss"]["explanation"]


@pytest.fixture
def feeds(publisher: Publisher, make: Make) -> Publisher:
    publish_every_case(publisher, make)
    return publisher


async def test_what_cisa_took_out_of_kev_is_marked(feeds, open_test_campus, make) -> None:
    clock = Clock(NOON)
    async with open_test_campus(feeds.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        scored = make.kev_entry("CVE-2026-7001", date(2026, 8, 20))
        feeds.put(KEV, make.kev_catalog(make.listings(40), released="2026-08-22T17:00:00.000Z"))
        await campus.run("refresh")
        still_ranked = (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-7001")).data
        assert (still_ranked["found"], still_ranked["kev"], still_ranked["kev_removed_on"]) == (True, False, "2026-08-22")
        gone = (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-7002")).data
        assert (gone["found"], gone["miss"]["reason"]) == (False, "removed_from_kev")
        assert "2026-08-19" in gone["miss"]["explanation"]

        clock.move(timedelta(days=1))
        feeds.put(KEV, make.kev_catalog([scored, *make.listings(40)], released="2026-08-23T17:00:00.000Z"))
        await campus.run("refresh")
        back = (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-7001")).data
        assert (back["kev"], back["kev_removed_on"]) == (True, None)
        assert (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-7002")).data["miss"]["reason"] == "removed_from_kev"


async def test_malformed_names_and_days_without_a_list_are_refused_by_code(campus: TestCampus) -> None:
    key = await campus.key("cve")
    for cve_id in ("CVE-2021", "CVE-2021-123", "log4shell", "CVE-2021-044228"):
        reply = await campus.call("cve_verdict", key=key, cve_id=cve_id)
        assert (reply.status, reply.code) == (400, "invalid_cve_id"), cve_id
    for day in ("20260821", "2026-8-21", "2026-02-30", "today", "2026-08-21T00:00:00", "1755734400"):
        reply = await campus.call("archived_brief", key=key, date=day)
        assert (reply.status, reply.code) == (400, "invalid_date"), day
    for day in ("2026-08-20", "2026-08-22", "0001-01-01"):
        reply = await campus.call("archived_brief", key=key, date=day)
        assert (reply.status, reply.code) == (404, "no_data_for_date"), day
        assert "the archive has lists from 2026-08-21 to 2026-08-21" in reply.data["detail"]


async def test_a_paid_tool_without_access_is_refused_before_its_arguments_are_read(campus: TestCampus) -> None:
    paid: dict[str, dict[str, str]] = {"top_cves_today": {}, "kev_fresh": {}}
    for tool, arguments in (paid | {"cve_verdict": {"cve_id": "nonsense"}, "archived_brief": {"date": "nonsense"}}).items():
        assert (await campus.call(tool, **arguments)).status == 402, tool


async def test_answers_are_the_same_objects_until_the_list_or_the_day_changes(feeds, open_test_campus, make) -> None:
    clock = Clock(NOON)
    async with open_test_campus(feeds.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        state = campus.site.state

        def answers() -> Any:
            return state.results(clock(), full_list=lambda: "here")

        first = answers()
        clock.move(timedelta(hours=9))
        await campus.run("reload")
        assert answers() is first
        assert hash(first.brief) == hash(first.brief)
        archived = await state.archived(date(2026, 8, 21))
        assert await state.archived(date(2026, 8, 21)) is archived
        clock.move(timedelta(hours=2))
        assert answers() is not first
        assert answers().brief.entries == first.brief.entries
        await campus.run("refresh", day=date(2026, 8, 21))
        assert answers().brief is not first.brief


async def test_another_process_serves_the_new_list_after_its_reload(feeds, open_test_campus, storage_url, make) -> None:
    clock = Clock(NOON)
    async with (
        open_test_campus(feeds.url, clock=clock, storage=storage_url) as one,
        open_test_campus(feeds.url, clock=clock, storage=storage_url) as two,
    ):
        assert (await two.call("brief_teaser")).code == "no_list_yet"
        await one.run("refresh", accept=True)
        await two.run("reload")
        assert (await two.call("top_cves_today", key="cve")).data == (await one.call("top_cves_today", key="cve")).data
    async with open_test_campus(feeds.url, clock=clock, storage=storage_url) as started_later:
        assert (await started_later.call("brief_teaser")).data["day"] == "2026-08-21"


async def test_the_teaser_names_the_price_that_the_operator_set(open_test_campus) -> None:
    for word, tables, expected in [
        ({"price": "0.07"}, PAYMENTS, "; with a key of scope cve (from $19), or $0.07 per call."),
        ({"free": True}, {}, "; free."),
        ({"hidden": True}, {}, "not available here."),
    ]:
        async with open_test_campus(settings={"sample": True}, tools={"top_cves_today": word}, tables=tables) as campus:
            assert (await campus.call("brief_teaser")).data["full_list"].endswith(expected)


async def test_every_member_of_every_answer_is_described(listed: TestCampus) -> None:
    tools = listed.service.plan.opened[0].tools
    for tool in tools.values():
        for schema in (tool.output_schema, tool.parameters):
            assert schema["type"] == "object", tool.name
            for part in (schema, *schema.get("$defs", {}).values()):
                for name, member in part.get("properties", {}).items():
                    assert member.get("description"), (tool.name, name)
    writers = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert writers == {
        *("create_feed_url", "keep_feed_url", "revoke_feed_url"),
        *("create_watch", "update_watch", "delete_watch", "watch_report"),
    }


async def test_every_brief_tells_how_it_was_made_and_what_the_publishers_ask_for(listed: TestCampus) -> None:
    brief = (await listed.call("top_cves_today", key="cve")).data
    method = json.dumps(brief["methodology"], ensure_ascii=False)
    for words in ("25·KEV + 25·EPSS + 50·KEV·2^(−d/30)", "0.74", "0.739", "always in KEV", "chosen on the data", "one model version"):
        assert words in method
    notices = " ".join(brief["notices"])
    assert "This product uses data from the NVD API but is not endorsed or certified by the NVD." in notices
    assert "https://www.first.org/epss" in notices
    assert "CC0" in notices
