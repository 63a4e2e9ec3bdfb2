"""Reading all of NVD from a server of its API: KEV first, page by page, on after an interruption, then only what changed."""

import gzip
import json
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest
from patience import patience

from buildings.cve.arguments import number_of
from buildings.cve.feeds.errors import FeedError, FeedRefused
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.nvd import parse_nvd
from buildings.cve.feeds.nvd_pages import Position, pause_between_pages
from buildings.cve.nvd.reading import load_progress, with_records
from buildings.cve.nvd.records import NvdRecords, Outline, held_whole
from buildings.cve.ranking.enrichment import NvdRecord, patch_of
from buildings.cve.refresh import read_nvd, renew
from campus.errors import StorageUnavailable
from campus.testing import Clock
from tests import forkserver

pytestmark = pytest.mark.anyio

NVD = "/rest/json/cves/2.0"
NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)
RATED = {"cvssMetricV31": [{"source": "nvd@nist.gov", "type": "Primary", "cvssData": {"version": "3.1", "baseScore": 9.8}}]}
ISSUE = Issue(version="2.0", issued=NOON, entries=0)


def phases(publisher) -> list[str]:
    targets = [target for target in publisher.targets(NVD) if "startIndex" in target]
    return ["kev" if "hasKev" in one else "changes" if "lastModStartDate" in one else "all" for one in targets]


async def verdict(campus, cve_id: str) -> dict[str, object]:
    return (await campus.call("cve_verdict", key="cve", cve_id=cve_id)).data


async def test_kevs_records_come_with_the_list_and_the_rest_with_the_job(publisher, nvd_api, open_test_campus, make, limits) -> None:
    nvd_api.records = [make.nvd_record(f"CVE-2026-{1000 + n}", metrics=RATED) for n in range(150)]
    nvd_api.kev, nvd_api.most = frozenset(f"CVE-2026-{1000 + n}" for n in range(120)), 50
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        assert phases(publisher) == ["kev"] * 3
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert {(entry["severity"], entry["nvd_record"]) for entry in brief["entries"]} == {("CRITICAL", "read")}
        unread = await verdict(campus, "CVE-2026-1130")
        assert (unread["severity"], unread["nvd_record"], unread["nvd"]) == ("UNKNOWN", "not_read", None)
        [progress] = (await campus.service.ask("check"))["cve"]
        assert "being read for the first time, 0 so far" in progress

        await read_nvd(campus.site, limits=limits())
        assert phases(publisher) == ["kev"] * 3 + ["all"] * 3
        read = await verdict(campus, "CVE-2026-1130")
        assert (read["severity"], read["nvd_record"], read["nvd"]["status"]) == ("CRITICAL", "read", "Analyzed")
        absent = await verdict(campus, "CVE-2026-1170")
        assert (absent["severity"], absent["nvd_record"], absent["nvd"]) == ("UNKNOWN", "absent", None)
        assert (await campus.service.ask("check"))["cve"] == []
        nvd = (await campus.call("top_cves_today", key="cve")).data["feeds"]["nvd"]
        assert (nvd["entries"], nvd["total"], nvd["date"]) == (120, None, "2026-08-21"), "the list was made from so many"
        unknown = await verdict(campus, "CVE-2027-9999")
        assert "Neither KEV nor EPSS nor NVD lists" in unknown["miss"]["explanation"]


class Away:
    def read(self) -> None:
        raise StorageUnavailable("the database cannot be reached")


async def test_without_the_database_a_verdict_says_what_memory_has_and_never_that_nvd_has_nothing(
    publisher, nvd_api, open_test_campus, make, limits, monkeypatch
) -> None:
    monkeypatch.setattr("buildings.cve.nvd.reading.FIRST_HELD", 10)
    nvd_api.records = [make.nvd_record(f"CVE-2026-{1000 + n}", metrics=RATED) for n in range(150)]
    nvd_api.kev = frozenset(f"CVE-2026-{1000 + n}" for n in range(120))
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        await read_nvd(campus.site, limits=limits())
        asked_before = await verdict(campus, "CVE-2026-1170")
        monkeypatch.setattr(campus.site.state, "_storage", Away())
        found = [await verdict(campus, f"CVE-2026-{number}") for number in (1000, 1130, 1171, 1170)]
        assert [(one["found"], one["nvd_record"], one["severity"]) for one in found] == [
            (True, "read", "CRITICAL"),
            (True, "not_read", "UNKNOWN"),
            (True, "not_read", "UNKNOWN"),
            (True, "absent", "UNKNOWN"),
        ]
        assert found[-1] == asked_before
        batch = (await campus.call("cve_verdicts", key="cve", cve_ids=["CVE-2026-1000", "CVE-2026-1130"])).data
        assert batch["found"] == 2


async def test_after_an_interruption_the_reading_goes_on_where_it_was_and_the_key_goes_along_as_a_header(
    publisher, nvd_api, open_test_campus, make, limits
) -> None:
    nvd_api.records = [make.nvd_record(f"CVE-2026-{1000 + n}") for n in range(100)]
    nvd_api.kev, nvd_api.most = frozenset({"CVE-2026-1000"}), 20
    async with open_test_campus(publisher.url, secrets={"nvd_api_key": "hush-hush"}) as campus:
        publisher.pages[NVD] = lambda target: (
            nvd_api.answer(target) if "startIndex=60" not in target else type(publisher.pages["/kev.json"])(status=503)
        )
        with pytest.raises(FeedError, match="answered 503"):
            await read_nvd(campus.site, limits=limits())
        assert (await load_progress(campus.site.storage)).position == Position(phase="all", start=60, total=100, since=NOON)
        publisher.asked.clear()
        publisher.pages[NVD] = nvd_api.answer
        await read_nvd(campus.site, limits=limits())
        assert [target.rpartition("=")[2] for target in publisher.targets(NVD)[:2]] == ["60", "80"]
        assert campus.site.state.nvd.entries == 100
        assert campus.site.state.nvd.is_complete
    asked = [(target, headers) for target, headers in publisher.asked if target.startswith(NVD)]
    assert {headers.get("apikey") for _, headers in asked} == {"hush-hush"}
    assert not any("hush" in target for target, _ in asked)
    assert pause_between_pages(has_key=False) * 5 == 30
    assert pause_between_pages(has_key=True) * 50 == 30


async def test_changes_are_read_hour_by_hour_and_replace_the_records(publisher, nvd_api, open_test_campus, make, limits) -> None:
    nvd_api.records = [make.nvd_record("CVE-2026-1000"), make.nvd_record("CVE-2026-1001")]
    nvd_api.kev, clock = frozenset({"CVE-2026-1000"}), Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        await read_nvd(campus.site, limits=limits())
        assert (await verdict(campus, "CVE-2026-1001"))["severity"] == "UNKNOWN"
        nvd_api.records[1] |= {"metrics": RATED, "lastModified": "2026-08-21T14:30:00.000"}
        nvd_api.records.append(make.nvd_record("CVE-2026-1002", lastModified="2026-08-21T14:40:00.000"))
        publisher.asked.clear()
        clock.move(timedelta(hours=1))
        await read_nvd(campus.site, limits=limits())
        [target] = publisher.targets(NVD)
        assert "lastModStartDate=2026-08-21T12%3A00%3A00.000%2B00%3A00&lastModEndDate=2026-08-21T15%3A00%3A00.000%2B00%3A00" in target
        assert (await verdict(campus, "CVE-2026-1001"))["severity"] == "CRITICAL"
        assert campus.site.state.nvd.entries == 3
        clock.move(timedelta(days=200))
        publisher.asked.clear()
        nvd_api.records[0]["lastModified"] = "2026-10-01T00:00:00.000"
        nvd_api.records[1]["lastModified"] = "2027-02-01T00:00:00.000"
        await read_nvd(campus.site, limits=limits())
        assert len(publisher.targets(NVD)) == 2, "NVD answers about 120 days at most"


async def test_a_failed_reading_is_tried_again_within_the_hour_and_then_completes_the_list(
    publisher, nvd_api, open_test_campus, make, limits
) -> None:
    nvd_api.records = [make.nvd_record(f"CVE-2026-{1000 + n}", metrics=RATED) for n in range(120)]
    nvd_api.kev, clock = frozenset(one["id"] for one in nvd_api.records), Clock(NOON)
    publisher.put(NVD, b"")
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        with pytest.raises(FeedError, match="an empty answer"):
            await campus.run("nvd")
        [job] = [one for one in campus.service.scheduler.status() if one.name == "cve.nvd"]
        assert job.failures <= 1
        await campus.service.scheduler.read_records()
        [job] = [one for one in campus.service.scheduler.status() if one.name == "cve.nvd"]
        assert job.due_at - clock() <= timedelta(hours=1)
        assert {one["severity"] for one in (await campus.call("top_cves_today", key="cve")).data["entries"]} == {"UNKNOWN"}
        publisher.pages[NVD] = nvd_api.answer
        clock.move(timedelta(minutes=2))
        await read_nvd(campus.site, limits=limits())
        today = (await campus.call("top_cves_today", key="cve")).data
        assert ({one["severity"] for one in today["entries"]}, today["edition"]) == ({"CRITICAL"}, 2)
        first = (await campus.call("archived_brief", key="cve", date="2026-08-21", edition=1)).data
        assert ({one["severity"] for one in first["entries"]}, first["edition"]) == ({"UNKNOWN"}, 1)
        assert (await campus.call("archived_brief", key="cve", date="2026-08-21")).data == today
        assert (await campus.call("archived_brief", key="cve", date="2026-08-21", edition=3)).code == "no_data_for_date"
        assert (await campus.service.ask("ready"))["cve"] == []


@pytest.mark.parametrize("phase", ["kev", "all", "changes"])
async def test_an_empty_answer_is_no_success(phase: str) -> None:
    empty = parse_nvd(
        b'{"startIndex": 0, "totalResults": 0, "format": "NVD_CVE", "version": "2.0", "timestamp": "2026-08-21", "vulnerabilities": []}'
    )
    position = Position(phase=phase, since=NOON - timedelta(days=3)).begun(NOON)
    with pytest.raises(FeedRefused, match="an answer without any records"):
        position.after(empty)
    if phase == "changes":
        assert Position(phase=phase, since=NOON - timedelta(hours=1)).begun(NOON).after(empty).since == NOON


async def test_what_a_clock_that_was_ahead_read_is_read_again(publisher, nvd_api, open_test_campus, make, limits) -> None:
    nvd_api.records, clock = [make.nvd_record(f"CVE-2026-{1000 + n}") for n in range(3)], Clock(NOON)
    nvd_api.kev = frozenset({"CVE-2026-1000"})
    async with open_test_campus(publisher.url, clock=clock) as campus:
        clock.move(timedelta(days=400))
        await read_nvd(campus.site, limits=limits())
        clock.move(timedelta(days=-399))
        nvd_api.records[1] |= {"metrics": RATED, "lastModified": "2026-08-21T15:00:00.000"}
        await read_nvd(campus.site, limits=limits())
        await renew(campus.site, accept=True, limits=limits())
        assert (await verdict(campus, "CVE-2026-1001"))["severity"] == "CRITICAL"


async def test_records_that_move_up_while_a_span_is_read_are_not_missed(make) -> None:
    position = Position(phase="all", since=NOON).after(parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000")] * 10, total=30)))
    shrunk = position.after(parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1001")] * 10, start=10, total=27)))
    assert (position.start, shrunk.start, shrunk.total) == (10, 7, 27)
    assert shrunk.after(parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1001")] * 10, start=7, total=27))).start == 17


async def test_records_of_any_length_are_stored_and_hold_up_no_list(publisher, open_test_campus, make, limits) -> None:
    chance = random.Random(1)
    names = [f"cpe:2.3:a:{chance.randbytes(200).hex()}:{chance.randbytes(200).hex()}:*:*:*:*:*:*:*:*" for _ in range(320)]
    matches = [[{"vulnerable": True, "criteria": name} for name in names[n::16]] for n in range(16)]
    affected = [[{"nodes": [{"cpeMatch": one}]}] for one in matches]
    records = [make.nvd_record(f"CVE-2026-{1008 + n}", metrics=RATED, configurations=affected[n]) for n in range(16)]
    publisher.put(NVD, make.nvd_page(records))
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        found = await verdict(campus, "CVE-2026-1010")
        assert (found["nvd_record"], found["nvd"]["status"], found["nvd"]["affected_count"]) == ("read", "Analyzed", 20)
        assert (await campus.service.ask("ready"))["cve"] == []


async def test_of_many_affected_ranges_each_product_is_kept(make) -> None:
    ranges = [f"cpe:2.3:a:acme:anvil:{n}:*:*:*:*:*:*:*" for n in range(30)] + ["cpe:2.3:a:acme:hammer:1:*:*:*:*:*:*:*"]
    matches = [{"vulnerable": True, "criteria": name} for name in ranges]
    (record,) = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000", configurations=[{"nodes": [{"cpeMatch": matches}]}])])).records
    assert [(one.product, one.versions) for one in record.affected[:3]] == [("anvil", "0"), ("hammer", "1"), ("anvil", "1")]
    assert (len(record.affected), record.affected_count) == (20, 31)


async def test_what_a_file_of_nvds_says_that_a_cve_is_is_stored_beside_the_records_and_told_by_cve_facts(
    publisher, open_test_campus, make, limits
) -> None:
    def described(*texts: tuple[str, str], number: int = 1000) -> dict[str, Any]:
        return make.nvd_record(f"CVE-2026-{number}", descriptions=[{"lang": lang, "value": value} for lang, value in texts])

    async with open_test_campus(publisher.url, settings={"nvd_url": f"{publisher.url}/nvd.json"}) as campus:
        await campus.run("refresh", accept=True)

        async def told(number: int) -> str | None:
            text: str | None = (await campus.call("cve_facts", cve_id=f"CVE-2026-{number}")).data["description"]
            return text

        publisher.put("/nvd.json", gzip.compress(make.nvd_page([])))
        with pytest.raises(FeedRefused, match="a file without any records"):
            await read_nvd(campus.site, limits=limits())
        other = described(("en", "It rises."), number=1001)
        for texts, expected in (
            ([("es", "Cae."), ("en", "It falls\n on you.")], "It falls on you."),
            ([("en", "word " * 400)], f"{'word ' * 159}word …"),
            ([], None),
        ):
            publisher.put("/nvd.json", make.nvd_page([described(*texts), other]))
            await read_nvd(campus.site, limits=limits())
            await campus.run("reload")
            assert [await told(1000), await told(1001), await told(1002)] == [expected, "It rises.", None]
        await read_nvd(campus.site, limits=limits())
        assert publisher.asked[-1][1]["if-none-match"], "a file that did not change is not sent again"
        assert campus.site.state.nvd.entries == 2


@pytest.mark.parametrize("given", [{"start": 0, "total": 9}, {"start": 4, "total": 9}])
async def test_a_page_that_does_not_follow_the_last_is_refused(make, given: dict[str, int]) -> None:
    page = parse_nvd(make.nvd_page([], **given))
    with pytest.raises(FeedRefused, match=r"the page from 4 on begins at \d and holds 0 of 9 records"):
        Position(phase="all", start=4, since=NOON).after(page)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"startIndex": 0, "totalResults": 0, "format": "OTHER"}'])
def test_what_is_not_nvds_format_is_refused(body: bytes) -> None:
    with pytest.raises(FeedRefused, match=r"not NVD's JSON 2\.0"):
        parse_nvd(body)


def test_cisas_decision_points_are_read_in_any_form(make) -> None:
    options = [{"exploitation": "active"}, {"automatable": "yes"}, {"technicalImpact": "total"}]
    adp = {"source": "134c704f-9b21-4f2e-91b3-4a467353bcc0", "ssvcData": {"options": options}}
    for metrics, expected in (({"ssvcV203": [adp]}, ("active", "yes", "total")), ({"ssvcV203": ["odd", {"source": 1}]}, None)):
        [record] = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000", metrics=metrics)])).records
        assert (record.ssvc and (record.ssvc.exploitation, record.ssvc.automatable, record.ssvc.technical_impact)) == expected


def test_the_real_records_come_out_as_they_were_read(real_feeds: Path) -> None:
    records = [
        *parse_nvd((real_feeds / "nvdcve-2.0-modified.ORIGINAL-2026-03.json.gz").read_bytes()).records,
        *parse_nvd((real_feeds / "nvd_api2_kev_subset_112.json.gz").read_bytes()).records,
    ]
    last = {record.cve_id: record for record in records}
    kept = held_whole(last.values(), issue=ISSUE)
    assert all(kept.find(cve_id) == record for cve_id, record in last.items())
    assert kept.find("CVE-2026-9999999") is None
    for cve_id, record in last.items():
        rating = record.rating
        patch = patch_of(record, cve_id=cve_id, end_of_life=None).status
        whole = Outline(rating.severity if rating else "UNKNOWN", patch, record.vendor, record.product, ssvc=record.ssvc)
        assert kept.outline(number_of(cve_id)) == (Outline(is_rejected=True) if record.is_rejected else whole)
    assert kept.outline(number_of("CVE-2026-9999999")) is None


def test_as_of_a_past_day_a_record_that_changed_since_counts_as_not_read() -> None:
    nvd = held_whole([NvdRecord("CVE-2026-1000", "Analyzed", date(2026, 8, 20))], issue=ISSUE)
    known, unknown = number_of("CVE-2026-1000"), number_of("CVE-2026-1001")
    assert (nvd.state_of(known), nvd.state_of(unknown)) == ("read", "absent")
    earlier = replace(nvd, as_of=date(2026, 8, 19))
    assert earlier.find("CVE-2026-1000") is None
    assert [one.outline(known) is None for one in (nvd, earlier)] == [False, True]
    assert [earlier.state_of(known), earlier.state_of(unknown)] == ["not_read"] * 2
    assert replace(nvd, as_of=date(2026, 8, 20)).find("CVE-2026-1000") is not None


def test_of_a_record_that_was_not_asked_for_it_is_never_said_that_nvd_has_none() -> None:
    nvd = NvdRecords(lines={number_of("CVE-2026-1000"): None}, is_complete=True)
    assert [nvd.state_of(number_of(f"CVE-2026-{number}")) for number in (1000, 1001)] == ["absent", "not_read"]


READER = dedent("""
    import sys, anyio
    from pathlib import Path
    from campus.app import assemble
    from campus.config import read_config

    async def read():
        async with assemble(read_config(Path(sys.argv[1])), exclusive=False) as campus:
            await campus.run_job("cve.nvd")

    anyio.run(read)
""")


async def test_a_killed_process_loses_no_page(publisher, nvd_api, open_test_campus, make, limits, tmp_path, real_feeds: Path) -> None:
    body = gzip.decompress((real_feeds / "nvdcve-2.0-modified.ORIGINAL-2026-03.json.gz").read_bytes())
    nvd_api.records = [one["cve"] for one in json.loads(body)["vulnerabilities"]][:400]
    nvd_api.kev, nvd_api.most = frozenset({nvd_api.records[0]["id"]}), 100
    config = tmp_path / "campus.toml"
    addresses = "\n".join(f'{name} = "{publisher.url}{path}"' for name, path in (("nvd_url", NVD), ("kev_url", "/kev.json")))
    config.write_text(f'[storage]\nurl = "sqlite:data"\n[buildings.cve]\n{addresses}\n')
    environment = {"CAMPUS_CVE_NVD_API_KEY": "a-key-reads-faster"}
    with forkserver.shared().start(READER, str(config), environ=environment) as process:
        with anyio.fail_after(patience(60)):
            while phases(publisher).count("all") < 3:  # noqa: ASYNC110  # the process cannot set an event of this one
                await anyio.sleep(0.02)
        process.kill()
    async with open_test_campus(publisher.url, storage=f"sqlite:{tmp_path / 'data'}", clock=Clock(datetime.now(UTC))) as campus:
        position = (await load_progress(campus.site.storage)).position
        assert position is not None
        assert position.start in (200, 300)
        publisher.asked.clear()
        await read_nvd(campus.site, limits=limits())
        assert f"startIndex={position.start}" in publisher.targets(NVD)[0]
        assert campus.site.state.nvd.entries == 400
        numbers = [number_of(one["id"]) for one in nvd_api.records]
        nvd = await with_records(campus.site.storage, campus.site.state.nvd, numbers)
        assert all(nvd.find(one["id"]) for one in nvd_api.records)
