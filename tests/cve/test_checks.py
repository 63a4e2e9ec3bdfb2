"""The checks of freshness, feeds and stored lists; and a stored list that cannot be read, on both databases."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import delete, select

from buildings.cve.checks import feeds_are_reachable
from buildings.cve.tables import BriefEdition, EditionCve, LatestList, Ranked
from campus.errors import CampusError
from campus.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]

NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)


async def test_the_list_is_made_at_the_hour_that_campus_toml_names(open_test_campus) -> None:
    async with open_test_campus(clock=Clock(NOON), settings={"refresh_at": "06:05"}) as campus:
        (job,) = [one for one in campus.service.scheduler.status() if one.name == "cve.refresh"]
        assert f"{job.due_at:%H:%M}" == "06:05"
    with pytest.raises(CampusError, match="refresh_at"):
        async with open_test_campus(settings={"refresh_at": "8:30 pm"}):
            pass


async def test_a_list_that_a_wrong_clock_made_does_not_stay(few, open_test_campus, make) -> None:
    clock = Clock(NOON)
    async with open_test_campus(few.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=400))
        await campus.run("refresh")
        clock.move(timedelta(days=-399))
        assert (await campus.service.ask("ready"))["cve"][0].startswith("the list is of 2027-09-25, which is in the future")
        few.put("/epss.csv.gz", make.epss_file(make.many_scores(101), scored="2026-08-22T12:00:00Z"))
        await campus.run("refresh")
        assert (await campus.call("brief_teaser")).data["day"] == "2026-08-22"
        assert (await campus.service.ask("ready"))["cve"] == []
        changes = (await campus.call("brief_changes", key="cve")).data
        assert (changes["before"], changes["after"]) == ("2026-08-21", "2026-08-22")
        history = (await campus.call("cve_history", key="cve", cve_id="CVE-2026-1001")).data
        assert (history["from"], history["to"], history["days"]) == ("2026-08-21", "2026-08-22", 2)


async def test_a_list_is_good_until_a_day_after_its_own_and_feeds_that_stopped_changing_are_found(few, open_test_campus) -> None:
    clock = Clock(NOON)
    async with open_test_campus(few.url, clock=clock) as campus:

        async def findings() -> Sequence[str]:
            return (await campus.service.ask("ready"))["cve"]

        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        assert await findings() == []
        clock.move(timedelta(days=1))
        assert await findings() == ["the list is of 2026-08-21, 2 days ago; run the job cve.refresh"]
        clock.move(timedelta(days=4))
        await campus.run("refresh")
        (sentence,) = await findings()
        assert sentence.startswith("the feeds have stopped changing (KEV ")
        assert "check their addresses" in sentence


async def test_the_check_asks_each_feed_and_says_which_setting_to_change(publisher, open_test_campus) -> None:
    async with open_test_campus(publisher.url) as campus:
        assert (await campus.service.ask("check"))["cve"] == []
        publisher.put("/kev.json", status=403)
        publisher.put("/epss.csv.gz", b"<html>", headers={"Content-Type": "text/html"})
        found = await feeds_are_reachable(campus.site)
        assert "kev_url: " in found[0]
        assert "answered 403" in found[0]
        assert "epss_url: " in found[1]
        assert "HTML page" in found[1]
    async with open_test_campus("http://127.0.0.1:1") as campus:
        assert len(await feeds_are_reachable(campus.site)) == 3


async def test_the_audit_finds_ranks_briefs_and_ranked_sets_that_were_changed(few, open_test_campus) -> None:
    clock = Clock(NOON)
    async with open_test_campus(few.url, clock=clock) as campus:

        async def audited() -> Sequence[str]:
            return (await campus.service.ask("audit"))["cve"]

        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        await campus.run("refresh", accept=True)
        assert await audited() == []
        async with campus.site.storage.write() as session:
            first, second = (await session.exec(select(Ranked).order_by(Ranked.rank.desc()).limit(2))).all()
            first.rank, second.rank = second.rank, first.rank
        ranks = "the stored ranks of 2026-08-22 differ from those computed from its KEV and EPSS; run the job cve.refresh"
        assert await audited() == [ranks]
        async with campus.site.storage.write() as session:
            old, new = (await session.exec(select(BriefEdition).order_by(BriefEdition.day))).all()
            old.brief = new.brief
        of_ranks, *of_brief = await audited()
        assert (of_ranks, len(of_brief)) == (ranks, 25)
        assert all("the brief of 2026-08-21" in sentence and "CVE-2026-" in sentence for sentence in of_brief)
        async with campus.site.storage.write() as session:
            await session.exec(delete(EditionCve))
        assert await audited() == [ranks, *(f"the archive of 2026-08-{day} has no ranked set" for day in (21, 22))]


async def test_a_list_that_cannot_be_read_is_made_anew(few, open_test_campus, storage_url: str) -> None:
    async with open_test_campus(few.url, storage=storage_url) as campus:
        await campus.run("refresh", accept=True)
        ranked = len(campus.site.state.edition.ranked)
        async with campus.site.storage.write() as session:
            row = (await session.exec(select(LatestList))).one()
            row.facts, row.version = row.facts[:-1], "damaged"
        await campus.run("reload")
        assert len(campus.site.state.edition.ranked) == ranked, "what is served stays"
    async with open_test_campus(few.url, storage=storage_url) as campus:
        assert campus.site.state.real_edition is None
        await campus.run("refresh", accept=True)
        assert len(campus.site.state.real_edition.ranked) == ranked
