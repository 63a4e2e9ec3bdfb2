"""What changed between two days' lists: counts, the changes with their reasons, and windows that cannot be compared."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import col, delete

from buildings.cve.tables import EditionCve
from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"


def by_cve(changes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["cve_id"]: one for one in changes}


@pytest.mark.both_databases
async def test_every_change_of_the_list_has_its_reasons(publisher, open_test_campus, make, storage_url) -> None:
    old = make.listings(120)  # 40 a day, the last on 2026-07-03
    top = {f"CVE-2026-50{n:02d}": make.kev_entry(f"CVE-2026-50{n:02d}", date(2026, 8, 20 - n // 2)) for n in range(25)}
    scores = {cve_id: score / 1000 for cve_id, score in make.many_scores(120).items()} | dict.fromkeys(top, 0.2)
    publisher.put(KEV, make.kev_catalog([*old, *top.values()]))
    publisher.put(EPSS, make.epss_file(scores))
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    async with open_test_campus(publisher.url, frame="mcp", clock=clock, storage=storage_url) as campus:
        await campus.run("refresh", accept=True)
        first = (await campus.call("top_cves_today", key="cve")).data["entries"]
        assert (await campus.call("brief_change_counts")).code == "no_data_for_date", "there is one list only"

        clock.move(timedelta(days=1))
        edited = {**top["CVE-2026-5003"], "knownRansomwareCampaignUse": "Known", "dueDate": "2026-12-24"}
        newest = make.kev_entry("CVE-2026-6001", date(2026, 8, 22))
        listed = [edited if cve_id == "CVE-2026-5003" else entry for cve_id, entry in top.items() if cve_id != "CVE-2026-5001"]
        publisher.put(KEV, make.kev_catalog([*old, *listed, newest], released="2026-08-22T17:00:00.000Z"))
        risen = scores | {"CVE-2026-5010": 0.95, "CVE-2026-5012": 0.1, "CVE-2026-5015": 0.19999}
        publisher.put(EPSS, make.epss_file(risen, scored="2026-08-22T12:00:00Z"))
        await campus.run("refresh", accept=True)
        second = (await campus.call("top_cves_today", key="cve")).data["entries"]

        counts = (await campus.call("brief_change_counts")).data
        assert (await campus.call("brief_changes")).status == 402
        key = await campus.key("cve")
        found = (await campus.call("brief_changes", key=key)).data
        assert (found["before"], found["after"], found["same_epss_model"]) == ("2026-08-21", "2026-08-22", True)
        assert {name: counts[name] for name in ("entered", "left", "moved", "edited")} == {
            name: len(found[name]) for name in ("entered", "left", "moved", "edited")
        }
        assert not {"CVE-2026-6001", "CVE-2026-5001"} & set(str(counts).split("'")), "the names are sold"

        (entered,), (left,) = found["entered"], found["left"]
        assert (entered["cve_id"], entered["rank_before"], entered["score_before"]) == ("CVE-2026-6001", None, None)
        assert (entered["rank_after"], entered["reasons"]) == (rank_of(second, "CVE-2026-6001"), ["listed"])
        assert (left["cve_id"], left["rank_before"], left["reasons"][0]) == ("CVE-2026-5001", rank_of(first, "CVE-2026-5001"), "removed")
        assert left["points"]["kev"] == -25.0
        moved = by_cve(found["moved"])
        assert {cve_id: one["reasons"] for cve_id, one in moved.items()} == {
            "CVE-2026-5010": ["epss_rose"],
            "CVE-2026-5012": ["epss_fell"],
            "CVE-2026-5015": ["epss_fell"],
        }, "the others only make room, close the gap, and age"
        for cve_id, one in moved.items():
            assert (one["rank_before"], one["rank_after"]) == (rank_of(first, cve_id), rank_of(second, cve_id))
            assert one["score_after"] - one["score_before"] == pytest.approx(sum(one["points"].values()), abs=0.003)
        assert str(moved["CVE-2026-5015"]["points"]["epss"]) == "0.0", "a fall that is rounded away has no sign"
        (edit,) = found["edited"]
        assert (edit["cve_id"], {"ransomware_reported", "due_date_edited"} <= set(edit["reasons"])) == ("CVE-2026-5003", True)

        named = {"from_day": "2026-08-21", "to_day": "2026-08-22"}
        assert (await campus.call("brief_changes", key=key, **named)).data == found
        for window, code in [
            ({"from_day": "2026-08-22", "to_day": "2026-08-21"}, "invalid_window"),
            ({"from_day": "2026-08-22", "to_day": "2026-08-22"}, "invalid_window"),
            ({"from_day": "2026-08-22"}, "invalid_window"),
            ({"to_day": "2026-08-21"}, "no_data_for_date"),
            ({"from_day": "2026-08-18", "to_day": "2026-08-22"}, "no_data_for_date"),
            ({"from_day": "0001-01-01"}, "no_data_for_date"),
            ({"to_day": "2026-08-23"}, "no_data_for_date"),
            ({"from_day": "yesterday"}, "invalid_date"),
        ]:
            for tool in ("brief_change_counts", "brief_changes"):
                assert (await campus.call(tool, key=key, **window)).code == code, (tool, window)
        refused = await campus.call("brief_changes", key=key, to_day="2026-02-30")
        assert refused.data["detail"].startswith("the day 'to' is not a calendar date")
        bearer = {"Authorization": f"Bearer {key}"}
        over_http = await campus.http.get("/v1/brief/changes?from=2026-08-21&to=2026-08-22", headers=bearer)
        assert over_http.json() == found


async def test_who_left_only_because_another_came_is_told_which_and_nobody_else_moved(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    early = [make.kev_entry(f"CVE-2021-{1000 + n}", date(2022, 1, 1)) for n in range(60)]
    scores = {f"CVE-2021-{1000 + n}": round(1 - n / 60, 5) for n in range(60)}
    publisher.put(KEV, make.kev_catalog(early))
    publisher.put(EPSS, make.epss_file(scores))
    async with open_test_campus(publisher.url, clock=clock, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        publisher.put(
            KEV, make.kev_catalog([*early, make.kev_entry("CVE-2026-6001", date(2026, 8, 22))], released="2026-08-22T17:00:00.000Z")
        )
        publisher.put(EPSS, make.epss_file(scores, scored="2026-08-22T12:00:00Z", model="v2026.08.22"))
        await campus.run("refresh", accept=True)
        found = (await campus.call("brief_changes", key="cve")).data
        assert found["same_epss_model"] is False
        assert [one["reasons"] for one in found["entered"]] == [["listed"]]
        (left,) = found["left"]
        assert (left["cve_id"], left["rank_after"]) == ("CVE-2021-1024", 26)
        assert (left["reasons"], left["displaced_by"]) == (["displaced"], ["CVE-2026-6001"])
        assert found["moved"] == []
        assert (await campus.call("brief_change_counts")).data["moved"] == 0


async def test_a_day_whose_ranked_set_was_lost_is_refused_and_costs_nothing(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        for day in (21, 22):
            publisher.put(EPSS, make.epss_file(make.many_scores(200), scored=f"2026-08-{day}T12:00:00Z"))
            await campus.run("refresh", accept=True)
            clock.move(timedelta(days=1))
        async with campus.site.storage.write() as session:
            await session.exec(delete(EditionCve).where(col(EditionCve.day) == date(2026, 8, 22)))
        found = await campus.call("brief_changes", key="cve")
        assert (found.status, found.code) == (404, "no_data_for_date")
        assert "2026-08-22" in found.data["detail"]
        assert (await campus.call("brief_change_counts")).status == 200


def rank_of(entries: list[dict[str, Any]], cve_id: str) -> int:
    return next(entry["rank"] for entry in entries if entry["cve_id"] == cve_id)
