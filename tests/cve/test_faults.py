"""Whatever fault a feed has, the last list stays byte for byte, and the log and /readyz say why."""

import gzip
import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from buildings.cve.feeds.errors import FeedError
from buildings.cve.refresh import read_nvd, renew
from buildings.cve.tables import FeedState
from campus.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.faults("feeds")]

NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)

KEV, EPSS, NVD, MIRROR = "/kev.json", "/epss.csv.gz", "/rest/json/cves/2.0", "/mirror.json"
NO_ANSWER = "its publisher does not answer, or answers with an error"


async def shown(campus) -> list[bytes]:
    headers = {"Authorization": f"Bearer {await campus.key('cve')}"}
    paths = ("/v1/brief/teaser", "/v1/brief/today", "/v1/kev/fresh", "/v1/cve/CVE-2026-1000", "/v1/archive/2026-08-21")
    answers = [await campus.http.get(path, headers=headers) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return [answer.content for answer in answers]


async def today(campus) -> dict[str, Any]:
    found: dict[str, Any] = (await campus.call("top_cves_today", key="cve")).data
    return found


async def findings(campus) -> list[str]:
    found: list[str] = (await campus.service.ask("ready"))["cve"]
    return found


def fewer_or_older(make, feed: str) -> dict[str, bytes]:
    if feed == KEV:
        older = make.kev_catalog(make.listings(120), released="2026-08-20T17:00:00.000Z")
        return {"30 % fewer": make.kev_catalog(make.listings(84)), "older": older}
    older = make.epss_file(make.many_scores(200), scored="2026-08-20T12:00:00Z")
    return {"30 % fewer": make.epss_file(make.many_scores(140)), "older": older}


def broken(make, feed: str) -> dict[str, tuple[dict[str, Any], str]]:
    """The faults that a feed may have: what its publisher answers, and the reason that is given."""
    good = make.kev_catalog(make.listings(121)) if feed == KEV else make.epss_file(make.many_scores(201))
    doubtful = fewer_or_older(make, feed)
    return {
        "down": ({"status": 503}, "answered 503"),
        "cut off": ({"body": good[: len(good) // 2], "promised": len(good)}, "did not send a complete answer"),
        "truncated": ({"body": good[: len(good) // 2]}, "not a KEV catalog|ends early"),
        "garbled": ({"body": good[:-200] + bytes(byte ^ 0x55 for byte in good[-200:])}, "not a KEV catalog|damaged|not of the form"),
        "HTML with status 200": ({"body": b"<!DOCTYPE html><html><title>Sorry</title></html>"}, "an HTML page"),
        "empty": ({"body": b""}, "an empty answer"),
        "30 % fewer": ({"body": doubtful["30 % fewer"]}, "lacks 36 of|lacks 60 of"),
        "older": ({"body": doubtful["older"]}, "is older than"),
        "a gzip bomb": ({"body": gzip.compress(bytes(3 << 20))}, "unpacks to more than|a line is longer than"),
        "1 byte at a time": ({"body": good, "pause": 0.05}, "had not finished"),
        "too large": ({"body": b"x" * (1 << 20)}, "sends more than"),
        "a loop": ({"status": 302, "headers": {"Location": feed}}, "did not send a complete answer"),
    }


async def test_no_fault_of_a_feed_takes_the_last_list_down(publisher, open_test_campus, make, limits, subtests) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        before = await shown(campus)
        for name, feed in (("KEV", KEV), ("EPSS", EPSS)):
            good = publisher.pages[feed]
            for fault, (answer, reason) in broken(make, feed).items():
                with subtests.test(f"{name} {fault}"):
                    publisher.put(feed, **answer)
                    with pytest.raises(FeedError, match=reason):
                        await renew(campus.site, limits=limits(seconds=1.0, sent=900_000, unpacked=1 << 20))
                    assert await shown(campus) == before
                    [finding] = await findings(campus)
                    assert finding.startswith(f"{name} failed at")
                    assert re.search(reason, finding)
            publisher.pages[feed] = good
            await renew(campus.site, limits=limits())
            assert await findings(campus) == [], "a list that could be made again clears the failure"


async def test_accept_takes_what_the_thresholds_refuse_and_neither_garbage_nor_the_future(publisher, open_test_campus, make) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        for feed in (KEV, EPSS):
            good = publisher.pages[feed]
            for fault, body in fewer_or_older(make, feed).items():
                publisher.put(feed, body)
                await campus.run("refresh", accept=True)
                assert await findings(campus) == [], (feed, fault)
            publisher.pages[feed] = good
            await campus.run("refresh", accept=True)
        for feed, body, reason in (
            (EPSS, make.epss_file(make.many_scores(200), scored="2026-08-23T12:00:00Z"), r"EPSS: .* dated in the future"),
            (KEV, make.kev_catalog(make.listings(120), released="2036-08-23T12:00:00Z"), r"KEV: .* dated in the future"),
            (KEV, b"<html>", "an HTML page"),
        ):
            publisher.put(feed, body)
            with pytest.raises(FeedError, match=reason):
                await campus.run("refresh", accept=True)
            publisher.put(EPSS, make.epss_file(make.many_scores(200)))
        ready = await campus.http.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["cve"]) == (200, "failed"), "the last good list is up"
        assert any("an HTML page" in finding for finding in (await campus.findings())["cve"])


async def test_without_a_first_list_a_fault_shows_as_no_list_yet_and_what_cisa_turns_away_is_read_from_its_mirror(
    publisher, open_test_campus, make, limits
) -> None:
    publisher.put(KEV, make.kev_catalog(make.listings(999)))
    async with open_test_campus(publisher.url) as campus:
        with pytest.raises(FeedError, match="the first should have 1,000"):
            await campus.run("refresh")
        teaser = await campus.http.get("/v1/brief/teaser")
        assert (teaser.status_code, teaser.json()["code"]) == (503, "no_list_yet")
        assert int(teaser.headers["Retry-After"]) > 0
        found = await findings(campus)
        assert "no list has been made yet" in found[0]
        assert "the first should have 1,000" in found[1]

        publisher.put(KEV, status=403)
        publisher.put(MIRROR, status=500)
        with pytest.raises(FeedError, match=r":\d+ answered 403; its mirror: .*:\d+ answered 500"):
            await renew(campus.site, limits=limits())
        for entries, fault in enumerate(
            (
                {"status": 403},
                {"status": 503},
                {"body": b"half", "promised": 9},
                {"body": b"<!DOCTYPE html><html>"},
                {"body": b""},
                {"body": b'{"title": "Catalog", "vulnerab'},
            ),
            start=120,
        ):
            publisher.put(KEV, **fault)
            publisher.put(MIRROR, b"\xef\xbb\xbf" + make.kev_catalog(make.listings(entries)))
            await renew(campus.site, accept=True, limits=limits())
            kev = (await today(campus))["feeds"]["kev"]
            assert (kev["entries"], kev["held_because"]) == (entries, None), fault


async def test_a_redirect_is_followed_and_unchanged_feeds_are_not_sent_again(publisher, open_test_campus, make) -> None:
    publisher.put("/epss-2026-08-21.csv.gz", make.epss_file(make.many_scores(250)))
    publisher.put(EPSS, status=302, headers={"Location": "/epss-2026-08-21.csv.gz"})
    clock = Clock()
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        first = await today(campus)
        assert first["feeds"]["epss"]["entries"] == 250
        publisher.asked.clear()
        clock.move(timedelta(days=1))
        await campus.run("refresh")
        second = await today(campus)
        conditions = {target: headers.get("if-none-match") for target, headers in publisher.asked}
        assert conditions[KEV] is not None
        assert conditions["/epss-2026-08-21.csv.gz"] is not None
        assert second["feeds"]["kev"]["version"] == first["feeds"]["kev"]["version"]
        assert [entry["epss"] for entry in second["entries"]] == [entry["epss"] for entry in first["entries"]]
        assert date.fromisoformat(second["day"]) - date.fromisoformat(first["day"]) == timedelta(days=1)


async def test_without_a_kev_of_today_the_list_is_made_from_the_one_held_and_says_so(publisher, open_test_campus, make, limits) -> None:
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        for mirror, reason in (
            ({"body": make.kev_catalog(make.listings(119), released="2026-08-19T17:00:00Z")}, "is older than"),
            ({"status": 404}, "answered 404"),
            ({"body": make.kev_catalog(make.listings(109), released="2026-08-24T12:00:00Z")}, "lacks 11 of the 120"),
        ):
            held = clock().date()
            clock.move(timedelta(days=1))
            day = clock().date()
            publisher.put(KEV, status=403)
            publisher.put(MIRROR, **mirror)
            publisher.put(EPSS, make.epss_file(make.many_scores(200), scored=f"{day}T12:00:00Z"))
            with pytest.raises(FeedError, match=f"answered 403; its mirror: .*{reason}"):
                await renew(campus.site, limits=limits())
            brief = await today(campus)
            assert (brief["day"], brief["feeds"]["epss"]["date"]) == (str(day), str(day))
            kev = brief["feeds"]["kev"]
            assert (kev["date"], kev["age_days"], kev["held_because"]) == (str(held), 1, NO_ANSWER)
            [finding] = await findings(campus)
            assert finding.startswith(f"KEV failed at {day}")
            assert re.search(f"answered 403; its mirror: .*{reason}", finding), "the operator sees all of it"
            with pytest.raises(FeedError):
                await renew(campus.site, limits=limits())
            assert await today(campus) == brief, "an attempt that changes nothing is no new edition"

            publisher.put(KEV, make.kev_catalog(make.listings(120), released=f"{day}T17:00:00Z"))
            await renew(campus.site, limits=limits())
            mended = await today(campus)
            assert (mended["edition"], mended["feeds"]["kev"]["held_because"]) == (2, None)
            assert await findings(campus) == []


async def test_without_an_epss_of_today_the_list_has_kevs_news_and_says_which_scores_it_holds(
    publisher, open_test_campus, make, limits
) -> None:
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        clock.move(timedelta(days=4))
        publisher.put(EPSS, status=503)
        new = make.kev_entry("CVE-2026-9000", date(2026, 8, 25))
        publisher.put(KEV, make.kev_catalog([new, *make.listings(120)], released="2026-08-25T12:00:00Z"))
        for _ in range(2):
            with pytest.raises(FeedError, match=r"EPSS: .* answered 503"):
                await renew(campus.site, limits=limits())
        brief = await today(campus)
        assert (brief["day"], brief["edition"], brief["entries"][0]["cve_id"]) == ("2026-08-25", 1, "CVE-2026-9000")
        epss = brief["feeds"]["epss"]
        assert (epss["date"], epss["age_days"], epss["held_because"], brief["stale"]) == ("2026-08-21", 4, NO_ANSWER, True)
        assert (await findings(campus))[1].startswith("EPSS failed at 2026-08-25")

        publisher.put(EPSS, make.epss_file(make.many_scores(200), scored="2026-08-25T12:00:00Z"))
        await renew(campus.site, limits=limits())
        mended = await today(campus)
        assert (mended["edition"], mended["stale"], mended["feeds"]["epss"]["held_because"]) == (2, False, None)
        publisher.put(EPSS, status=503)
        publisher.put(KEV, status=503)
        clock.move(timedelta(days=1))
        with pytest.raises(FeedError):
            await renew(campus.site, limits=limits())
        assert (await today(campus))["day"] == "2026-08-25", "without any news there is no list of today"
        assert [finding[:11] for finding in (await findings(campus))[:2]] == ["EPSS failed", "KEV failed "]


async def test_no_path_of_this_machine_is_shown_and_no_password_of_an_address_is_stored(
    publisher, open_test_campus, make, tmp_path, limits
) -> None:
    kev_file = tmp_path / "kev.json"
    kev_file.write_bytes(make.kev_catalog(make.listings(120)))
    settings = {"kev_url": kev_file.as_uri(), "kev_mirror_url": (tmp_path / "mirror.json").as_uri()}
    clock = Clock(NOON)
    async with open_test_campus(publisher.url.replace("//", "//me:hush-hush@"), clock=clock, settings=settings) as campus:
        await renew(campus.site, accept=True, limits=limits())
        clock.move(timedelta(days=1))
        kev_file.unlink()
        publisher.put(EPSS, make.epss_file(make.many_scores(200), scored="2026-08-22T12:00:00Z"))
        with pytest.raises(FeedError, match="does not exist"):
            await renew(campus.site, limits=limits())
        brief = await today(campus)
        assert brief["feeds"]["kev"]["held_because"] == NO_ANSWER
        assert "file:" not in str(brief)
        async with campus.site.storage.read() as session:
            rows = [str(dict(row)) for row in await session.exec(select(FeedState))]
        assert len(rows) == 3
        assert not any("hush" in row for row in rows)


async def test_parts_that_cannot_be_read_are_named_in_the_log_the_answer_and_readyz(publisher, open_test_campus, make, caplog) -> None:
    entries = make.listings(120)
    entries[3]["dueDate"] = "N/A"
    publisher.put(KEV, make.kev_catalog(entries))
    publisher.put(EPSS, gzip.compress(gzip.decompress(make.epss_file(make.many_scores(200))) + b"\n# end\n"))
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        feeds = (await today(campus))["feeds"]
        named = {"kev": ["CVE-2026-1003: dueDate 'N/A'"], "epss": ["a blank line", "'# end'"]}
        assert {name: feeds[name]["unreadable"] for name in named} == named
        found = await findings(campus)
        assert any("CVE-2026-1003: dueDate 'N/A'" in finding for finding in found)
        assert any("a blank line; '# end'" in finding for finding in found)
        logged = [vars(record).get("parts") for record in caplog.records if "cannot be read" in record.message]
        assert logged == [("CVE-2026-1003: dueDate 'N/A'",), ("a blank line", "'# end'")]


async def test_nvd_does_not_hold_up_the_list_and_its_last_answer_is_kept(publisher, open_test_campus, make, limits) -> None:
    rated = {"cvssMetricV31": [{"source": "nvd@nist.gov", "type": "Primary", "cvssData": {"version": "3.1", "baseScore": 9.8}}]}
    publisher.put(NVD, status=503)
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        brief = await today(campus)
        said = {(entry["severity"], entry["severity_source"], entry["cvss"], entry["nvd_record"]) for entry in brief["entries"]}
        assert said == {("UNKNOWN", None, None, "not_read")}, "what nobody has read has no source"
        assert set(brief["feeds"]["nvd"].values()) == {None}

        publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-1000", metrics=rated)]))
        await read_nvd(campus.site, limits=limits())
        for entries, fault in enumerate(({"status": 403}, {"body": b"<html>"}, {"body": b""}), start=121):
            publisher.put(NVD, **fault)
            clock.move(timedelta(hours=1))
            publisher.put(KEV, make.kev_catalog(make.listings(entries)))
            await renew(campus.site, limits=limits())
            verdict = (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-1000")).data
            assert (verdict["severity"], verdict["severity_source"], verdict["cvss"]["score"]) == ("CRITICAL", "nvd", 9.8)
            feeds = (await today(campus))["feeds"]
            assert (feeds["kev"]["entries"], feeds["nvd"]["date"]) == (entries, "2026-08-21")
            assert (await findings(campus))[0].startswith("NVD failed at")


async def test_old_feeds_are_published_with_their_age_and_as_stale(publisher, open_test_campus, make) -> None:
    publisher.put(KEV, make.kev_catalog(make.listings(120), released="2026-08-06T00:00:00.000Z"))
    publisher.put(EPSS, make.epss_file(make.many_scores(200), scored="2026-08-18T12:00:00Z"))
    clock = Clock()
    async with open_test_campus(publisher.url, clock=clock) as campus:
        clock.time = clock.time.replace(year=2026, month=8, day=20, hour=14)
        await campus.run("refresh", accept=True)
        brief = await today(campus)
        assert (brief["stale"], brief["feeds"]["kev"]["age_days"], brief["feeds"]["epss"]["age_days"]) == (False, 14, 2)
        assert "stale" not in (await campus.call("brief_teaser")).data
        clock.move(timedelta(days=1))
        aged = await today(campus)
        assert (aged["stale"], aged["feeds"]["kev"]["age_days"], aged["day"]) == (True, 15, "2026-08-20")
        assert json.dumps(aged["entries"]) == json.dumps(brief["entries"])
        assert (await campus.call("brief_teaser")).data["stale"] is True
        assert (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-1000")).data["stale"] is True
        archived = (await campus.call("archived_brief", key="cve", date="2026-08-20")).data
        assert archived == brief
