"""The forecast and its public record: the real list of one day, its grading, and the tools that serve both."""

import gzip
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Set
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cve.thinned import thinned

from benchmarks.past_forecasts import EPSS_FILES, KEV_FILE, lines_of, replay
from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS, NVD = "/kev.json", "/epss.csv.gz", "/rest/json/cves/2.0"


def scores_in(file: Path) -> dict[str, float]:
    rows = gzip.decompress(file.read_bytes()).decode().splitlines()[2:]
    return {cve_id: float(score) for cve_id, score, _ in (row.split(",") for row in rows)}


def log_odds(probability: float) -> float:
    bounded = min(max(probability, 0.00001), 0.99999)
    return math.log(bounded) - math.log(1 - bounded)


def forecast_by_hand(scores: dict[str, float], week_ago: dict[str, float], listed: set[str], day: date) -> list[tuple[str, float]]:
    by_year: dict[int, list[int]] = defaultdict(list)
    for cve_id in scores:
        _, year, number = cve_id.split("-")
        by_year[int(year)].append(int(number))
    found = []
    for year, numbers in by_year.items():
        since_new_year = (day - date(year, 1, 1)).days + 1
        length = min(since_new_year, (date(year + 1, 1, 1) - date(year, 1, 1)).days)
        for place, number in enumerate(sorted(numbers), start=1):
            cve_id = f"CVE-{year}-{number:04d}"
            if cve_id in listed:
                continue
            age = max(since_new_year - length * place / len(numbers), 0) / 365.25
            beside = {f"CVE-{year}-{number - 1:04d}", f"CVE-{year}-{number + 1:04d}"} & listed
            rise = min(4, log_odds(scores[cve_id]) - log_odds(week_ago[cve_id])) if cve_id in week_ago else 0
            score = 0.5 * log_odds(scores[cve_id]) - math.log(age + 0.02) + 1.5 * bool(beside) + rise
            found.append((score, scores[cve_id], year, number))
    return [(f"CVE-{year}-{number:04d}", score) for score, _, year, number in sorted(found, reverse=True)]


def told_apart(by_day: dict[date, dict[str, float]]) -> list[str]:
    first, before, after = by_day.values()
    kinds = [
        [cve_id for cve_id in before if after.get(cve_id) == before[cve_id]],
        [cve_id for cve_id in before if after.get(cve_id, before[cve_id]) != before[cve_id]],
        [cve_id for cve_id in after if cve_id not in before],
        [cve_id for cve_id in before if cve_id not in after],
        [cve_id for cve_id in first if cve_id not in before and cve_id not in after],
    ]
    return [cve_id for kind in kinds for cve_id in kind[:: 1 + len(kind) // 8]]


def is_wilsons(interval: dict[str, float], *, share: float, observations: int) -> bool:
    ends = (interval["low"], interval["high"])
    reaches = [1.959964 * math.sqrt(end * (1 - end) / observations) for end in ends]
    return interval["low"] < share < interval["high"] and [abs(share - end) for end in ends] == pytest.approx(reaches, abs=1e-4)


def auc_by_hand(values: dict[str, float], events: set[str]) -> float:
    others = sorted(value for cve_id, value in values.items() if cve_id not in events)
    ranked = [values[cve_id] for cve_id in events if cve_id in values]
    return sum((bisect_left(others, value) + bisect_right(others, value)) / 2 for value in ranked) / len(others) / len(ranked)


def write_thinned(feeds: Path, folder: Path, listed: Set[str]) -> None:
    (folder / KEV_FILE).write_bytes((feeds / KEV_FILE).read_bytes())
    beside = {f"{cve_id[:9]}{int(cve_id[9:]) + step:04d}" for cve_id in listed for step in (-1, 0, 1)}
    for name in EPSS_FILES.values():
        (folder / name).write_bytes(thinned(feeds / name, lambda cve_id: cve_id.endswith("88") or cve_id in beside))


async def test_the_real_forecasts_follow_the_formula_and_are_graded_as_counted_by_hand(real_feeds: Path, tmp_path: Path) -> None:
    published = json.loads((real_feeds / KEV_FILE).read_bytes())
    added = {one["cveID"]: date.fromisoformat(one["dateAdded"]) for one in published["vulnerabilities"]}
    write_thinned(real_feeds, tmp_path, added.keys())
    by_day = {one: scores_in(tmp_path / name) for one, name in EPSS_FILES.items()}
    replayed = await replay(tmp_path, told_apart(by_day))
    lists, record = replayed.lists, replayed.record
    assert len(replayed.histories) > 20
    for cve_id, history in replayed.histories.items():
        known = [(str(one), scores.get(cve_id)) for one, scores in by_day.items()]
        first, second, third = known
        assert [(point["day"], point["epss"]) for point in history["epss"]] == [first, second, *([third] if third[1] != second[1] else [])]
        assert [point["model"] for point in history["epss"][:2]] == ["v2025.03.14", "v2026.06.15"]
        gaps = [{"from": "2026-01-31", "to": "2026-08-07"}, {"from": "2026-08-09", "to": "2026-08-14"}]
        assert (history["days"], history["gaps"]) == (3, gaps)

    day = date(2026, 8, 15)
    archived = lists[day]
    scores, week_ago = by_day[day], by_day[date(2026, 8, 8)]
    expected = forecast_by_hand(scores, week_ago, {cve_id for cve_id, on in added.items() if on <= day}, day)
    assert (archived["day"], archived["count"], archived["of"]) == ("2026-08-15", 100, len(expected))
    assert archived["epss_compared_with"] == "2026-08-08"
    assert [(entry["cve_id"], entry["score"]) for entry in archived["entries"]] == [
        (cve_id, pytest.approx(score, abs=0.00051)) for cve_id, score in expected[:100]
    ]
    assert lists[date(2026, 8, 8)]["epss_compared_with"] is None, "the scores before it are six months old, and of another model"
    for entry in archived["entries"]:
        assert entry["score"] == pytest.approx(sum(entry["factors"].values()), abs=0.0025)
        assert (entry["epss"], entry["epss_week_ago"]) == (scores[entry["cve_id"]], week_ago.get(entry["cve_id"]))

    by_hand = {
        (entry["cve_id"], str(day), entry["rank"], str(added[entry["cve_id"]]))  # one for each list that named it
        for day, list_ in lists.items()
        for entry in list_["entries"]
        if (on := added.get(entry["cve_id"])) and day < on <= day + timedelta(days=30)
    }
    printed = [line for line in lines_of(record) if " rank " in line]
    by_cve = {cve_id: sorted(one[1:] for one in by_hand if one[0] == cve_id) for cve_id, *_ in by_hand}
    assert sorted(printed) == sorted(
        f"{on} rank {rank:>3}  {cve_id}  listed on {listed}, in {len(lists)} lists"
        for cve_id, lists in by_cve.items()
        for on, rank, listed in lists[:1]
    )
    assert len(by_hand) > 3, by_hand
    forecast = next(one for one in record["rankings"] if one["ranking"] == "next_in_kev")
    first = date(2026, 1, 30)
    in_window = [cve_id for cve_id, on in added.items() if first < on <= first + timedelta(days=30)]
    assert (forecast["graded"], forecast["waiting"], forecast["events"]) == (1, 3, len(in_window))
    hundred = next(one for one in forecast["depths"] if one["first"] == 100)
    assert (hundred["names"], hundred["hits"]) == (100, sum(on == "2026-01-30" for _, on, _, _ in by_hand))
    assert (hundred["cves"], hundred["cves_hit"], forecast["event_cves"]) == (100, hundred["hits"], len(in_window))
    epss = next(one for one in record["rankings"] if one["ranking"] == "epss")
    outside = {cve_id for cve_id, on in added.items() if on > first} | (by_day[first].keys() - added.keys())
    by_score = {cve_id: score for cve_id, score in by_day[first].items() if cve_id in outside}
    by_formula = dict(forecast_by_hand(by_day[first], {}, {cve_id for cve_id, on in added.items() if on <= first}, first))
    for graded, values in ((epss, by_score), (forecast, by_formula)):
        assert graded["auc"] == pytest.approx(auc_by_hand(values, set(in_window)), abs=0.0001)
        assert graded["auc_interval"]["low"] < graded["auc"] < graded["auc_interval"]["high"]
        assert graded["auc_cves"] == len(values.keys() & set(in_window))
    assert [(one["list_day"], one["listed"] + one["not_yet"] + one["missed"], one["not_yet"] == 0) for one in record["lists"]] == [
        (str(day), 100, day == first) for day in sorted(lists, reverse=True)
    ]


def outside_kev(count: int) -> dict[str, float]:
    return {f"CVE-2025-{20_000 + 10 * n}": round(0.9 * n / count, 5) for n in range(count)}


def next_day(clock: Clock, publisher, make, *, days: int = 1, listed=(), **catalog: Any) -> None:
    clock.move(timedelta(days=days))
    released = clock().replace(hour=13).isoformat().replace("+00:00", "Z")
    publisher.put(KEV, make.kev_catalog([*make.listings(120), *listed], released=released, **catalog))


async def test_the_forecast_through_its_tools(publisher, open_test_campus, make) -> None:
    names = {"configurations": [{"nodes": [{"cpeMatch": [{"vulnerable": True, "criteria": "cpe:2.3:a:initech:tps:1:*:*:*:*:*:*:*"}]}]}]}
    publisher.put(EPSS, make.epss_file(make.many_scores(120) | outside_kev(300) | {"CVE-2025-31337": 0.97, "CVE-2026-9999": 0.5}))
    publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-9999", **names)]))
    async with open_test_campus(publisher.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        assert (await campus.call("next_in_kev")).status == 402
        assert (await campus.call("next_in_kev", date="nonsense")).status == 402
        key = await campus.key("cve")
        found = (await campus.call("next_in_kev", key=key, limit=100)).data
        assert (found["day"], found["count"], found["of"], found["epss_compared_with"]) == ("2026-08-21", 100, 302, None)
        assert [entry["rank"] for entry in found["entries"]] == list(range(1, 101))
        first = found["entries"][0]
        assert (first["cve_id"], first["vendor"], first["product"], first["epss_week_ago"]) == ("CVE-2026-9999", "initech", "tps", None)
        assert first["precision"] == {"lists": 0, "names": 0, "listed": 0, "cves_listed": 0, "share": None}
        assert first["age_days"] == 0, "the newest number of the year"

        teaser = (await campus.call("next_teaser")).data
        assert [one["cve_id"] for one in teaser["teaser"]] == [entry["cve_id"] for entry in found["entries"][:3]]
        assert teaser["teaser"][0].keys() == {"rank", "cve_id", "vendor", "product"}
        assert "http://campus.test/v1/next" in teaser["full_list"]
        assert (await campus.call("next_record")).data["rankings"][0]["graded"] == 0

        assert (await campus.call("next_in_kev", key=key, date="2026-08-21", limit=100)).data == found
        for day, code in [("2026-08-20", "no_data_for_date"), ("2026-02-30", "invalid_date"), ("21.8.2026", "invalid_date")]:
            assert (await campus.call("next_in_kev", key=key, date=day)).code == code
        free = json.dumps([teaser, (await campus.call("next_record")).data])
        assert [entry["cve_id"] for entry in found["entries"][3:] if entry["cve_id"] in free] == [], "what is sold is not given away"


async def test_the_candidates_are_graded_and_change_no_list(publisher, open_test_campus, make) -> None:
    names = {"configurations": [{"nodes": [{"cpeMatch": [{"vulnerable": True, "criteria": "cpe:2.3:a:acme:anvil:1:*:*:*:*:*:*:*"}]}]}]}
    raised = "CVE-2025-22000"
    publisher.put(EPSS, make.epss_file(make.many_scores(120) | outside_kev(300)))
    publisher.put(NVD, make.nvd_page([make.nvd_record(raised, **names)]))
    tied = [make.kev_entry(f"CVE-2026-{n}", date(2026, 7, 1), knownRansomwareCampaignUse="Known") for n in range(1000, 1020)]
    publisher.put(KEV, make.kev_catalog([*tied, *make.listings(40, first=1020)]))
    async with open_test_campus(publisher.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        for tool in ("next_in_kev", "top_cves_today"):
            entries = (await campus.call(tool, key="cve")).data["entries"]
            assert [one["score"] for one in entries] == pytest.approx([sum(one["factors"].values()) for one in entries], abs=0.0021), (
                "nothing is in a score but its published factors"
            )
            assert [one["score"] for one in entries] == sorted((one["score"] for one in entries), reverse=True)
            assert raised not in [one["cve_id"] for one in entries], "a vendor with 60 entries in KEV raises no CVE"
        assert (await campus.call("next_teaser")).data["teaser"][0]["cve_id"] != raised
        rankings = (await campus.call("next_record")).data["rankings"]
        assert {one["ranking"]: (one["published"], one["waiting"]) for one in rankings} == {
            "next_in_kev": (True, 1),
            "next_in_kev_with_vendor": (False, 1),
            "epss": (False, 1),
            "brief": (True, 1),
            "brief_with_vendor": (False, 1),
        }


@pytest.mark.both_databases
async def test_what_is_listed_later_is_a_hit_and_gives_each_rank_its_precision(publisher, open_test_campus, make, storage_url) -> None:
    clock = Clock(datetime(2026, 8, 21, 21, tzinfo=UTC))
    publisher.put(EPSS, make.epss_file(make.many_scores(120) | outside_kev(300)))
    async with open_test_campus(publisher.url, clock=clock, storage=storage_url) as campus:
        await campus.run("refresh", accept=True)
        names = [entry["cve_id"] for entry in (await campus.call("next_in_kev", key="cve")).data["entries"]]
        on_the_day = make.kev_entry(names[0], date(2026, 8, 21))
        second = make.kev_entry(names[1], date(2026, 9, 20))
        late = make.kev_entry(names[2], date(2026, 9, 21))
        tied = make.kev_entry("CVE-2026-1000", date(2026, 7, 1), knownRansomwareCampaignUse="Known")
        unranked = make.kev_entry("CVE-2026-77777", date(2026, 9, 1))
        next_day(clock, publisher, make, days=30, listed=[on_the_day, second, tied, unranked])
        await campus.run("refresh")
        record = (await campus.call("next_record")).data
        assert [(hit["cve_id"], hit["rank"], hit["list_day"], hit["lists"]) for hit in record["hits"]] == [(names[1], 2, "2026-08-21", 1)]
        of_lists = [tuple(one[name] for name in ("list_day", "names", "listed", "not_yet", "missed")) for one in record["lists"]]
        assert of_lists == [("2026-09-20", 100, 0, 100, 0), ("2026-08-21", 100, 1, 99, 0)], "what is not listed yet is no miss yet"
        assert [(one["graded"], one["waiting"]) for one in record["rankings"]] == [(0, 2)] * 5

        next_day(clock, publisher, make, listed=[on_the_day, second, late, tied, unranked])
        await campus.run("refresh")
        graded = {one["ranking"]: one for one in (await campus.call("next_record")).data["rankings"]}
        assert {name: (one["graded"], one["events"], one["published"]) for name, one in graded.items()} == {
            "next_in_kev": (1, 2, True),
            "next_in_kev_with_vendor": (1, 2, False),
            "epss": (1, 2, False),
            "brief": (1, 1, True),
            "brief_with_vendor": (1, 1, False),
        }
        first = dict(graded["next_in_kev"]["depths"][0])
        assert is_wilsons(first.pop("precision_interval"), share=1 / 25, observations=25)
        assert is_wilsons(first.pop("recall_interval"), share=1 / 2, observations=2)
        assert first == {"first": 25, "names": 25, "hits": 1, "cves": 25, "cves_hit": 1, "precision": 0.04, "recall": 0.5}
        assert (graded["next_in_kev"]["auc"], graded["next_in_kev"]["auc_cves"]) == (pytest.approx(297 / 298, abs=1e-4), 1)
        assert graded["brief"]["auc"] == 0, "the first listing of July has the least recency and the lowest EPSS of all"

        await campus.run("grade")
        assert {one["ranking"]: one for one in (await campus.call("next_record")).data["rankings"]} == graded, (
            "grading again changes nothing"
        )
        day_before = (await campus.call("next_in_kev", key="cve")).data
        await campus.run("refresh")
        assert (await campus.call("next_in_kev", key="cve")).data == day_before, "the first forecast of a day stands"
        next_day(clock, publisher, make, listed=[on_the_day, second, late, tied, unranked])
        await campus.run("refresh")
        entries = (await campus.call("next_in_kev", key="cve")).data["entries"]
        assert entries[0]["precision"] == {"lists": 1, "names": 1, "listed": 0, "cves_listed": 0, "share": 0.0}
        assert entries[1]["precision"] == {"lists": 1, "names": 2, "listed": 1, "cves_listed": 1, "share": 0.5}
        assert entries[9]["precision"] == {"lists": 1, "names": 10, "listed": 1, "cves_listed": 1, "share": 0.1}


async def test_a_rise_is_measured_over_the_days_between_and_within_one_model(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    scores = make.many_scores(120) | outside_kev(300) | {"CVE-2025-31337": 0.01}
    rising = {day: 0.01 + 0.02 * day for day in (1, 5, 8)}
    async with open_test_campus(publisher.url, clock=clock) as campus:

        async def day(number: int, more: dict[str, float], **about: str) -> dict[str, Any]:
            clock.time = datetime(2026, 8, 21 + number, 14, tzinfo=UTC)
            publisher.put(EPSS, make.epss_file(scores | more, scored=f"2026-08-{21 + number:02d}T12:00:00Z", **about))
            await campus.run("refresh", accept=number == 0)
            found: dict[str, Any] = (await campus.call("next_in_kev", key="cve")).data
            return found

        await day(0, {})
        found = {}
        for number, score in rising.items():
            found = await day(number, {"CVE-2025-31337": score, "CVE-2026-9001": 0.3} if number > 1 else {"CVE-2025-31337": score})
        courses = await campus.site.state.histories.courses(["CVE-2025-31337", "CVE-2026-9001", "CVE-2026-9002"])
        assert courses["CVE-2025-31337"] == (0.01, 0.03, None, None, None, 0.11, None, None, 0.17), "of the days that were read"
        assert courses["CVE-2026-9001"] == (*(None,) * 5, 0.3, None, None, 0.3)
        assert courses["CVE-2026-9002"] == (None,) * 9
        assert found["epss_compared_with"] == "2026-08-22"
        risen, new = (next(one for one in found["entries"] if one["cve_id"] == cve_id) for cve_id in ("CVE-2025-31337", "CVE-2026-9001"))
        assert (risen["epss"], risen["epss_week_ago"]) == (0.17, 0.03)
        assert risen["factors"]["rise"] == pytest.approx(log_odds(0.17) - log_odds(0.03), abs=0.0005)
        assert (new["epss_week_ago"], new["factors"]["rise"]) == (None, 0)
        other = await day(9, {"CVE-2025-31337": 0.5}, model="v2026.08.30")
        assert (other["epss_compared_with"], other["entries"][0]["factors"]["rise"]) == (None, 0)


async def test_a_list_names_the_feeds_that_it_was_made_of_when_newer_ones_came_on_the_same_day(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        publisher.put(EPSS, make.epss_file(make.many_scores(200), scored="2026-08-17T12:00:00Z"))
        await campus.run("refresh", accept=True)
        first = (await campus.call("next_in_kev", key="cve")).data
        clock.move(timedelta(hours=2))
        publisher.put(EPSS, make.epss_file(make.many_scores(200)))
        publisher.put(KEV, make.kev_catalog(make.listings(121), released="2026-08-21T18:00:00Z"))
        await campus.run("refresh")
        assert (await campus.call("next_in_kev", key="cve")).data == first, "the first forecast of a day stays, and says of what it is made"
        assert first["feeds"]["epss"] | {"date": "2026-08-17", "age_days": 4} == first["feeds"]["epss"]
        assert (first["stale"], first["generated_at"]) == (True, "2026-08-21T14:00:00Z")
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert (brief["feeds"]["epss"]["date"], brief["stale"], brief["generated_at"]) == ("2026-08-21", False, "2026-08-21T16:00:00Z")
        clock.move(timedelta(days=1))
        assert (await campus.call("next_in_kev", key="cve")).data["feeds"]["epss"]["age_days"] == 5


async def test_what_nvd_rejects_is_in_no_ranking_and_its_verdict_says_so(publisher, open_test_campus, make) -> None:
    newest, likeliest = "CVE-2026-1119", "CVE-2026-1199"
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        teaser = (await campus.call("brief_teaser")).data["teaser"]
        names = (await campus.call("next_teaser")).data["teaser"]
        assert (teaser[0]["cve_id"], names[0]["cve_id"]) == (newest, likeliest)
        clock.move(timedelta(days=1))
        records = [make.nvd_record(cve_id, vulnStatus="Rejected") for cve_id in (newest, likeliest)]
        publisher.put(NVD, make.nvd_page(records))
        await campus.run("nvd")
        await campus.run("refresh")
        brief = (await campus.call("top_cves_today", key="cve")).data
        forecast = (await campus.call("next_in_kev", key="cve")).data
        assert [entry["rank"] for entry in brief["entries"]] == list(range(1, 26))
        assert not {newest, likeliest} & {entry["cve_id"] for entry in (*brief["entries"], *forecast["entries"])}
        assert (await campus.call("brief_teaser")).data["teaser"][0]["cve_id"] == "CVE-2026-1118"
        assert forecast["of"] == 79
        for cve_id in (newest, likeliest):
            verdict = (await campus.call("cve_verdict", key="cve", cve_id=cve_id)).data
            assert (verdict["found"], verdict["of"], verdict["miss"]["reason"]) == (False, 198, "rejected")
        batch = (await campus.call("cve_verdicts", key="cve", cve_ids=[newest, likeliest, "CVE-2026-1118"])).data
        assert [(miss["cve_id"], miss["reason"]) for miss in batch["misses"]] == [(newest, "rejected"), (likeliest, "rejected")]
        left = (await campus.call("brief_changes", key="cve")).data["left"]
        assert newest in [change["cve_id"] for change in left]
        history = (await campus.call("cve_history", key="cve", cve_id=likeliest)).data
        assert history["epss"][-1]["epss"] is not None, "EPSS still scores it"
        assert (await campus.service.ask("audit"))["cve"] == []


async def test_lists_made_afterwards_count_apart_and_a_cve_on_many_lists_counts_once(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 21, tzinfo=UTC))
    publisher.put(KEV, make.kev_catalog(make.listings(120), released="2026-07-31T13:00:00.000Z"))
    publisher.put(EPSS, make.epss_file(make.many_scores(120) | outside_kev(300), scored="2026-07-31T12:00:00Z"))
    async with open_test_campus(publisher.url, clock=clock, frame="mcp") as campus:
        await campus.run("refresh", accept=True, day=date(2026, 8, 10))
        for _ in range(4):
            next_day(clock, publisher, make)
            await campus.run("refresh")
        named = (await campus.call("next_in_kev", key="cve")).data["entries"][0]["cve_id"]
        page = (await campus.http.get("/cve/next", headers={"Accept": "text/html"})).text
        said = re.findall(r"No list is old enough yet: the first, of (\S+), is graded after (\S+),", page)
        assert said == [("2026-08-22", "2026-09-21"), ("2026-08-10", "2026-09-09")], "of the lists that count, and of those made afterwards"
        assert {one["first_window_ends"] for one in (await campus.call("next_record")).data["rankings"]} == {"2026-09-21"}
        next_day(clock, publisher, make, days=40, listed=[make.kev_entry(named, date(2026, 8, 30))])
        await campus.run("refresh")
        record = (await campus.call("next_record")).data
        forecast, late = (next(one for one in record[kind] if one["ranking"] == "next_in_kev") for kind in ("rankings", "backfilled"))
        assert (forecast["since"], forecast["graded"], forecast["events"], forecast["event_cves"]) == ("2026-08-22", 4, 4, 1)
        depth = forecast["depths"][0]
        assert [depth[name] for name in ("names", "hits", "cves", "cves_hit", "precision")] == [100, 4, 25, 1, 0.04]
        assert is_wilsons(depth["precision_interval"], share=0.04, observations=25), "as for 25 observations, not for 100"
        assert (late["graded"], late["since"], late["depths"][0]["hits"]) == (1, "2026-08-10", 1)
        assert {one["list_day"] for one in record["lists"] if one["backfilled"]} == {"2026-08-10"}
        assert [(hit["cve_id"], hit["list_day"], hit["lists"]) for hit in record["hits"]] == [(named, "2026-08-22", 4)]
        assert (forecast["auc_cves"], forecast["auc_interval"]) == (1, None), "one CVE has no spread"
        precision = (await campus.call("next_in_kev", key="cve", limit=100)).data["entries"][99]["precision"]
        assert (precision["lists"], precision["listed"], precision["cves_listed"]) == (0, 0, 0), "made before these lists were graded"
        page = (await campus.http.get("/cve/next", headers={"Accept": "text/html"})).text
        assert "Lists made afterwards" in page
        assert "first 25: 4 of 100 (1 of 25 CVEs), 4 %" in page
        assert "So far: Forecast, first 25: <strong>4 %</strong> came true, 4 of 100 names" in page
