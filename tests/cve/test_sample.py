"""The shipped sample, and the answers without it."""

import json
from datetime import date

import pytest

from buildings.cve.ranking.results import brief_of
from buildings.cve.sample import FOLDER, sample_edition

pytestmark = pytest.mark.anyio


async def test_until_the_first_list_the_sample_is_shown_and_marked(publisher, open_test_campus) -> None:
    async with open_test_campus(publisher.url, settings={"sample": True}) as campus:
        key = await campus.key("cve")
        answers = [
            await campus.call("brief_teaser"),
            await campus.call("top_cves_today", key=key),
            await campus.call("kev_fresh", key=key),
            await campus.call("cve_verdict", key=key, cve_id="CVE-2021-44228"),
            await campus.call("cve_verdict", key=key, cve_id="CVE-2021-1000"),
        ]
        assert [(answer.status, answer.data["sample"], answer.data["day"]) for answer in answers] == [(200, True, "2026-01-30")] * 5
        assert (await campus.call("archived_brief", key=key, date="2026-01-30")).code == "no_data_for_date"
        assert (await campus.service.ask("ready"))["cve"] == []
        await campus.run("refresh", accept=True)
        for tool, arguments in [("brief_teaser", {}), ("top_cves_today", {}), ("cve_verdict", {"cve_id": "CVE-2026-1000"})]:
            assert "sample" not in (await campus.call(tool, key=key, **arguments)).data


async def test_without_the_sample_there_is_no_list_yet(open_test_campus) -> None:
    async with open_test_campus() as campus:
        for tool, arguments in [
            ("brief_teaser", {}),
            ("top_cves_today", {}),
            ("kev_fresh", {}),
            ("cve_verdict", {"cve_id": "CVE-2021-44228"}),
        ]:
            reply = await campus.call(tool, key="cve", **arguments)
            assert (reply.status, reply.code) == (503, "no_list_yet")
            assert int(reply.headers["Retry-After"]) > 0
        assert (
            "the archive starts on 2026-08-19 and has no lists yet"
            in (await campus.call("archived_brief", key="cve", date="2026-08-21")).data["detail"]
        )


def test_the_sample_is_in_the_feeds_own_formats_and_adds_up() -> None:
    edition = sample_edition()
    assert (edition.is_sample, edition.day) == (True, date(2026, 1, 30))
    assert len(edition.ranked) == 41
    brief = brief_of(edition, today=edition.day)
    assert (brief.count, brief.sample, brief.stale) == (25, True, False)
    assert all(entry.severity != "UNKNOWN" for entry in brief.entries[:3])
    assert {entry.severity_source for entry in brief.entries} >= {"nvd", "cna"}


def test_the_samples_notes_are_facts_of_the_kev_of_its_day(real_feeds) -> None:
    real = json.loads((real_feeds / "known_exploited_vulnerabilities-2026.01.29.json").read_text())["vulnerabilities"]
    dates = {one["cveID"]: (one["dateAdded"], one["dueDate"], one["knownRansomwareCampaignUse"]) for one in real}
    shipped = json.loads((FOLDER / "kev.json").read_text())["vulnerabilities"]
    assert all((one["dateAdded"], one["dueDate"], one["knownRansomwareCampaignUse"]) == dates[one["cveID"]] for one in shipped)
