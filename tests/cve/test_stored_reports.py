"""Stored reports: what of a file is kept, what is news of it and told once, and when it is deleted."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from buildings.cve.ranking.deadlines import When
from buildings.cve.tables import WATCH_LINES
from buildings.cve.watches.lines import Judge
from buildings.cve.watches.reports import Following, Known, Line, news_of
from campus.storage import in_snapshot

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
NVD = "/rest/json/cves/2.0"
DUE = {"dueDate": "2026-09-30"}
SECRET_PLACE = "registry.internal/shop:1"


def trivy(*found: tuple[str, str, str]) -> str:
    """A report of Trivy's with (id, package, status) each."""
    rows = [
        {"VulnerabilityID": name, "PkgName": package, "InstalledVersion": "1.0", "Status": status, "Title": "words of the file"}
        for name, package, status in found
    ]
    return json.dumps({"SchemaVersion": 2, "ArtifactName": "shop", "Results": [{"Target": SECRET_PLACE, "Vulnerabilities": rows}]})


async def follow(lists: Any, report: str, **more: Any) -> dict[str, Any]:
    reply = await lists.call("watch_report", **{"name": "shop", "report": report, **more})
    assert reply.status == 200, reply.data
    made: dict[str, Any] = reply.data
    return made


async def test_what_becomes_more_urgent_in_a_stored_report_is_told_once_by_webhook_and_polling(open_lists, receiver, storage_url) -> None:
    async with open_lists(storage=storage_url) as lists:
        report = trivy(
            ("CVE-2026-7001", "log4j", "fixed"),
            ("CVE-2026-7001", "log4j-extra", "affected"),
            ("CVE-2026-1039", "curl", "affected"),
            ("CVE-2026-7002", "gone", "not_affected"),
            ("GHSA-aaaa-bbbb-cccc", "left-pad", "affected"),
        )
        made = await follow(lists, report, alert_webhook=receiver.url("/hook"))
        assert made["report"] == {"lines": 4, "least_epss": 0.1}
        assert made["criteria"] == [], "a stored report has none"
        assert "1 of 5 findings are not followed" in " ".join(made["notes"])
        rows = await in_snapshot(lists.campus.site.storage, lambda connection: connection.execute(select(WATCH_LINES)).all())
        stored = " ".join(str(value) for row in rows for value in row)
        assert "words of the file" not in stored
        assert SECRET_PLACE not in stored
        await lists.next_list()
        assert await lists.news() == [], "what the list said already is no news"

        await lists.next_list(("CVE-2026-7001", DUE))
        await lists.next_list(("CVE-2026-7001", DUE | {"knownRansomwareCampaignUse": "Known"}))
        await lists.next_list(("CVE-2026-7001", DUE | {"knownRansomwareCampaignUse": "Known"}))
        items = (await lists.call("watch_news")).data["news"]
        told = [(entry["cve_id"], entry["fits"][0], entry["packages"]) for item in items for entry in item["entries"]]
        packages = ["log4j 1.0", "log4j-extra 1.0"]
        assert told == [("CVE-2026-7001", "newly in KEV", packages), ("CVE-2026-7001", "used for ransomware", packages)]
        assert await lists.deliver() >= 1
        events = [event for request in receiver.requests for event in request.json.get("events", [request.json])]
        assert events[0]["entries"][0]["fits"] == items[0]["entries"][0]["fits"]
        assert (await lists.call("list_watches")).data["watches"][0]["told"] == len(told)


async def test_the_same_name_replaces_a_report_what_it_knew_stays_known_and_it_is_deleted_by_its_owner_or_with_its_key(open_lists) -> None:
    async with open_lists() as lists:
        first = await follow(lists, trivy(("CVE-2026-7001", "log4j", "affected")))
        await lists.next_list(("CVE-2026-7001", DUE), ("CVE-2026-7002", DUE))
        second = await follow(lists, trivy(("CVE-2026-7001", "log4j", "affected"), ("CVE-2026-7002", "curl", "affected")))
        assert (second["watch_id"], second["report"]["lines"]) == (first["watch_id"], 2)
        assert [one["watch_id"] for one in (await lists.call("list_watches")).data["watches"]] == [first["watch_id"]]
        told = await lists.news()
        await lists.next_list(("CVE-2026-7001", DUE), ("CVE-2026-7002", DUE))
        assert await lists.news() == told, "a new line's own state is no news, and a known one was told"
        refused = await lists.call("update_watch", watch_id=first["watch_id"], vendors=["Cisco"])
        assert (refused.status, "watch_report" in refused.data["detail"]) == (422, True)
        renamed = await lists.call("update_watch", watch_id=first["watch_id"], name="shop 2")
        assert (renamed.data["name"], renamed.data["report"]["lines"]) == ("shop 2", 2)
        for report, code in ((trivy(("CVE-2026-7001", "log4j", "not_affected")), "nothing_to_follow"), ('{"a": 1}', "unreadable_report")):
            answer = await lists.call("watch_report", name="none", report=report)
            assert (answer.status, answer.code) == (422, code)

        async def lines() -> int:
            return len(await in_snapshot(lists.campus.site.storage, lambda connection: connection.execute(select(WATCH_LINES)).all()))

        assert await lines() == 2
        await lists.call("delete_watch", watch_id=first["watch_id"])
        assert await lines() == 0
        await follow(lists, trivy(("CVE-2026-7001", "log4j", "affected")))
        assert await lines() == 1
        lists.clock.move(timedelta(days=400))
        await lists.campus.run("pause_watches")
        assert await lines() == 0


async def test_a_fix_is_news_of_any_cve_also_if_the_report_is_sent_again_before_the_list(open_lists, make) -> None:
    async with open_lists() as lists:
        unfixed = make.nvd_record("CVE-2026-1050", references=[])
        lists.publisher.put(NVD, make.nvd_page([unfixed]))
        await lists.campus.run("nvd")
        await lists.next_list()
        await follow(lists, trivy(("CVE-2026-1050", "curl", "affected")))
        lists.publisher.put(
            NVD, make.nvd_page([make.nvd_record("CVE-2026-1050", references=[{"url": "https://acme.example/1", "tags": ["Patch"]}])])
        )
        lists.clock.move(timedelta(hours=2))
        await lists.campus.run("nvd")
        await follow(lists, trivy(("CVE-2026-1050", "curl", "affected")))
        site = lists.campus.site
        line = Line("CVE-2026-1050", "curl", "1.0", "unknown")
        forgetful = replace(site.state.edition, nvd=replace(site.state.edition.nvd, lines={}))  # as of a CVE beyond the first 5,000
        judge = Judge(forgetful, Following(least_epss=0.1))
        assert (await in_snapshot(site.storage, lambda connection: judge.prepared(connection, [line])(line))).fix
        await lists.next_list()
        (item,) = (await lists.call("watch_news")).data["news"]
        assert [entry["fits"] for entry in item["entries"]] == [["a fix or advisory"]]


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        (Known(), Known(kev=True, urgency="today"), ("newly in KEV", "to fix today")),
        (Known(kev=True, urgency="this_week"), Known(kev=True, ransomware=True, urgency="today"), ("used for ransomware", "to fix today")),
        (Known(urgency="later"), Known(likely=True, urgency="this_week"), ("EPSS of 0.1 or more", "to fix this week")),
        (Known(urgency="later"), Known(fix=True, urgency="later"), ("a fix or advisory",)),
        (Known(kev=True, likely=True, fix=True, urgency="today"), Known(urgency="later"), ()),
        (Known(kev=True, urgency="today"), Known(kev=True, urgency="today"), ()),
    ],
)
def test_what_makes_a_line_more_urgent_is_news_and_what_calms_it_is_not(before: Known, now: Known, news: tuple[When, ...]) -> None:
    assert news_of(before, now, least_epss=0.1) == news
