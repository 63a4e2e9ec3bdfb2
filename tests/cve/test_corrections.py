"""What a false feed does, and how a person withdraws it: the list, the forecast, the changes, the histories and the grades."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from buildings.cve.feeds.errors import FeedError
from buildings.cve.forecast.store import load_grades
from campus.errors import JobFailed
from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
FIRST, FALSE, NEXT, LAST = date(2026, 8, 21), date(2026, 8, 22), date(2026, 8, 23), date(2026, 9, 21)
TIED = "CVE-2026-1110"


@pytest.fixture
async def days(publisher, open_test_campus, make):
    """A campus with a good list of the first day, and a function that makes the list of another."""
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    scores = make.many_scores(200)

    async def listed(campus, day: date, *, tied: bool = True, halved: bool = False, **options: Any) -> None:
        clock.time = datetime(day.year, day.month, day.day, 14, tzinfo=UTC)
        entries = make.listings(120)
        for entry in entries[-40:]:
            entry["knownRansomwareCampaignUse"] = "Known" if tied else "Unknown"
        publisher.put(KEV, make.kev_catalog(entries, released=f"{day}T12:00:00Z"))
        shown = {cve_id: round(score / 2, 5) for cve_id, score in scores.items()} if halved else scores
        publisher.put(EPSS, make.epss_file(shown, scored=f"{day}T12:00:00Z"))
        await campus.run("refresh", **options)

    async with open_test_campus(publisher.url, clock=clock) as campus:
        await listed(campus, FIRST, accept=True)
        yield campus, listed


async def answer(campus, tool: str, **arguments: Any) -> dict[str, Any]:
    reply = await campus.call(tool, key="cve", **arguments)
    assert reply.status == 200, reply.data
    found: dict[str, Any] = reply.data
    return found


async def graded(campus) -> dict[date, int]:
    return {grade.day: len(grade.hits) for grade in await load_grades(campus.site.storage) if grade.ranking == "brief"}


async def test_what_cannot_be_corrected_is_named_and_a_release_without_ransomware_is_not_used(days) -> None:
    campus, listed = days
    for day, reason in ((FIRST, f"no list of {FIRST} with one before it"), (date(2026, 7, 1), "of the last 30 days")):
        with pytest.raises(JobFailed, match=reason):
            await campus.run("refresh", correct=day)
    with pytest.raises(FeedError, match="takes the use in ransomware campaigns from 40 entries"):
        await listed(campus, FALSE, tied=False)
    held = await answer(campus, "top_cves_today")
    assert held["feeds"]["kev"]["held_because"].endswith("takes the use in ransomware campaigns from 40 entries, where 10 are accepted")
    assert held["entries"][0]["ransomware"] is True


async def test_a_false_release_that_a_person_accepted_is_withdrawn_from_the_whole_record(days) -> None:
    campus, listed = days
    await listed(campus, FALSE, tied=False, accept=True)
    first = await answer(campus, "archived_brief", date=FALSE)
    assert first["entries"][0]["ransomware"] is None
    await listed(campus, NEXT)
    events = (await answer(campus, "cve_history", cve_id=TIED))["kev"]
    assert events[-1] == {"day": str(NEXT), "event": "ransomware_reported"}, "a phantom"
    await listed(campus, LAST)
    assert await graded(campus) == {FIRST: 0, FALSE: 40, NEXT: 0, LAST: 0}

    await campus.run("refresh", correct=FALSE)
    corrected = await answer(campus, "archived_brief", date=FALSE)
    assert (corrected["edition"], corrected["entries"][0]["ransomware"]) == (first["edition"] + 1, True)
    assert corrected["notices"][0].startswith("Corrected on 2026-09-21: this list is made from KEV 2026.08.21 of 2026-08-21 and EPSS ")
    assert corrected["feeds"]["epss"]["date"] == str(FALSE), "the day's own EPSS was right"
    assert await answer(campus, "archived_brief", date=FALSE, edition=first["edition"]) == first
    assert [event["event"] for event in (await answer(campus, "cve_history", cve_id=TIED))["kev"]] == ["listed"]
    for before, after in ((FIRST, FALSE), (FALSE, NEXT)):
        changes = await answer(campus, "brief_changes", **{"from": before, "to": after})
        assert changes["edited"] == []
        assert corrected["notices"][0] in changes["notices"]
    forecast = await answer(campus, "next_in_kev", date=FALSE)
    assert (forecast["notices"][0], forecast["feeds"]["kev"]["version"]) == (corrected["notices"][0], "2026.08.21")
    assert await graded(campus) == {FIRST: 0, FALSE: 0, NEXT: 0, LAST: 0}
    assert (await campus.service.ask("audit"))["cve"] == []
    with pytest.raises(JobFailed, match=f"the list of {FALSE} stays as it is: its KEV and EPSS look right"):
        await campus.run("refresh", correct=FALSE)


async def test_false_scores_of_today_are_withdrawn_from_the_list_and_from_the_history_of_epss(days) -> None:
    campus, listed = days
    with pytest.raises(FeedError, match=r"the median change of the logit is -\d"):
        await listed(campus, FALSE, halved=True)
    good = await answer(campus, "cve_verdict", cve_id="CVE-2026-1150")
    await listed(campus, FALSE, halved=True, accept=True)
    assert (await answer(campus, "cve_verdict", cve_id="CVE-2026-1150"))["epss"] == round(good["epss"] / 2, 5)

    await campus.run("refresh", correct=FALSE)
    brief = await answer(campus, "top_cves_today")
    assert "the median change of the logit" in brief["feeds"]["epss"]["held_because"]
    assert (brief["feeds"]["epss"]["date"], brief["feeds"]["kev"]["date"]) == (str(FIRST), str(FALSE))
    assert await answer(campus, "cve_verdict", cve_id="CVE-2026-1150") == good
    await listed(campus, NEXT)
    history = await answer(campus, "cve_history", cve_id="CVE-2026-1150")
    assert [(point["day"], point["epss"]) for point in history["epss"]] == [(str(FIRST), good["epss"])]
    assert [(gap["from"], gap["to"]) for gap in history["gaps"]] == [(str(FALSE), str(FALSE))]
    assert (await campus.service.ask("audit"))["cve"] == []


async def test_a_past_day_of_false_scores_is_withdrawn_from_between_two_others(days) -> None:
    campus, listed = days
    await listed(campus, FALSE, halved=True, accept=True)
    await listed(campus, NEXT, accept=True)
    await campus.run("refresh", correct=FALSE)
    history = await answer(campus, "cve_history", cve_id="CVE-2026-1150")
    assert ([point["day"] for point in history["epss"]], history["gaps"]) == ([str(FIRST)], [{"from": str(FALSE), "to": str(FALSE)}])
    assert (await answer(campus, "archived_brief", date=FALSE))["feeds"]["epss"]["date"] == str(FIRST)
