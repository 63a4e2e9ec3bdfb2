"""Whatever fault a feed has, the last list stays byte for byte, and the log and /readyz say why."""

import gzip
import json
import re
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlmodel import select

from buildings.cve.feeds.download import FetchLimits
from buildings.cve.feeds.errors import FeedError
from buildings.cve.refresh import read_nvd, refresh, renew
from buildings.cve.tables import FeedState
from campus.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.faults("feeds")]

NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)

KEV, EPSS, NVD, MIRROR = "/kev.json", "/epss.csv.gz", "/rest/json/cves/2.0", "/mirror.json"


async def shown(campus) -> list[bytes]:
    headers = {"Authorization": f"Bearer {await campus.key('cve')}"}
    paths = ("/v1/brief/teaser", "/v1/brief/today", "/v1/kev/fresh", "/v1/cve/CVE-2026-1000", "/v1/archive/2026-08-21")
    answers = [await campus.http.get(path, headers=headers) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return [answer.content for answer in answers]


def broken(make, feed: str, fault: str) -> dict[str, object]:
    kev, epss = make.kev_catalog, make.epss_file
    good = kev(make.listings(1201)) if feed == KEV else epss(make.many_scores(2001))
    smaller = kev(make.listings(840)) if feed == KEV else epss(make.many_scores(1400))
    late = {"released": "2026-08-20T17:00:00.000Z"} if feed == KEV else {"scored": "2026-08-20T12:00:00Z"}
    older = kev(make.listings(1200), **late) if feed == KEV else epss(make.many_scores(2000), **late)
    return {
        "down": {"status": 503},
        "cut off": {"body": good[: len(good) // 2], "promised": len(good)},
        "truncated": {"body": good[: len(good) // 2]},
        "garbled": {"body": good[:-200] + bytes(byte ^ 0x55 for byte in good[-200:])},
        "HTML with status 200": {"body": b"<!DOCTYPE html><html><title>Sorry</title></html>"},
        "empty": {"body": b""},
        "30 % fewer": {"body": smaller},
        "older": {"body": older},
        "a gzip bomb": {"body": gzip.compress(bytes(3 << 20))},
        "1 byte at a time": {"body": good, "pause": 0.05},
        "too large": {"body": b"x" * (1 << 20)},
        "a loop": {"status": 302, "headers": {"Location": feed}},
    }[fault]


REASONS = {
    "down": "answered 503",
    "cut off": "did not send a complete answer",
    "truncated": "not a KEV catalog|ends early",
    "garbled": "not a KEV catalog|damaged|not of the form",
    "HTML with status 200": "an HTML page",
    "empty": "an empty answer",
    "30 % fewer": "lacks 3?60 of|lacks 600 of",
    "older": "is older than",
    "a gzip bomb": "unpacks to more than|a line is longer than",
    "1 byte at a time": "had not finished",
    "too large": "sends more than",
    "a loop": "did not send a complete answer",
}


@pytest.mark.parametrize("feed", [KEV, EPSS], ids=["KEV", "EPSS"])
async def test_no_fault_of_a_feed_takes_the_last_list_down(publisher, open_test_campus, make, limits, subtests, feed: str) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        before = await shown(campus)
        for fault, reason in REASONS.items():
            with subtests.test(fault):
                publisher.put(feed, **broken(make, feed, fault))
                with pytest.raises(FeedError, match=reason):
                    await renew(campus.site, limits=limits(seconds=1.0, sent=900_000, unpacked=1 << 20))
                assert await shown(campus) == before
                [finding] = (await campus.service.ask("ready"))["cve"]
                assert re.match("KEV failed at" if feed == KEV else "EPSS failed at", finding)
                assert re.search(reason, finding)


async def test_the_failure_of_the_job_itself_is_shown_at_readyz(publisher, open_test_campus) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        publisher.put(KEV, b"<html>")
        with pytest.raises(FeedError, match="an HTML page"):
            await campus.run("refresh")
        ready = await campus.http.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["cve"]) == (200, "failed"), "the last good list is up"
        assert "an HTML page" in (await campus.findings())["cve"][0]


async def test_a_list_that_could_be_made_again_clears_the_failure(publisher, open_test_campus, make) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        publisher.put(EPSS, b"")
        with pytest.raises(FeedError):
            await campus.run("refresh")
        publisher.put(EPSS, make.epss_file(make.many_scores(2002)))
        await campus.run("refresh")
        assert (await campus.service.ask("ready"))["cve"] == []


async def test_without_a_first_list_a_fault_shows_as_no_list_yet(publisher, open_test_campus, make) -> None:
    publisher.put(KEV, make.kev_catalog(make.listings(999)))
    async with open_test_campus(publisher.url) as campus:
        with pytest.raises(FeedError, match="the first should have 1,000"):
            await campus.run("refresh")
        teaser = await campus.http.get("/v1/brief/teaser")
        assert (teaser.status_code, teaser.json()["code"]) == (503, "no_list_yet")
        assert int(teaser.headers["Retry-After"]) > 0
        found = (await campus.service.ask("ready"))["cve"]
        assert "no list has been made yet" in found[0]
        assert "the first should have 1,000" in found[1]


@pytest.mark.parametrize(("feed", "fault"), [(KEV, "30 % fewer"), (EPSS, "30 % fewer"), (KEV, "older"), (EPSS, "older")])
async def test_accept_takes_what_the_thresholds_refuse(publisher, open_test_campus, make, feed: str, fault: str) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        publisher.put(feed, **broken(make, feed, fault))
        await campus.run("refresh", accept=True)
        assert (await campus.service.ask("ready"))["cve"] == []


async def test_accept_does_not_take_garbage(publisher, open_test_campus) -> None:
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        publisher.put(KEV, b"<html>")
        with pytest.raises(FeedError, match="an HTML page"):
            await campus.run("refresh", accept=True)


@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 503}, {"body": b"half", "promised": 9}], ids=["403", "503", "cut off"])
async def test_when_cisa_turns_away_its_mirror_is_read(publisher, open_test_campus, make, limits, fault) -> None:
    publisher.put(KEV, **fault)
    publisher.put(MIRROR, make.kev_catalog(make.listings(1300)))
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        assert (await campus.call("top_cves_today", key="cve")).data["feeds"]["kev"]["entries"] == 1300


async def test_when_the_mirror_fails_too_both_are_named(publisher, open_test_campus, limits) -> None:
    publisher.put(KEV, status=403)
    publisher.put(MIRROR, status=500)
    async with open_test_campus(publisher.url) as campus:
        with pytest.raises(FeedError, match=r":\d+ answered 403; its mirror: .*:\d+ answered 500"):
            await renew(campus.site, limits=limits())


async def test_a_redirect_is_followed_and_unchanged_feeds_are_not_sent_again(publisher, open_test_campus, make) -> None:
    publisher.put("/epss-2026-08-21.csv.gz", make.epss_file(make.many_scores(2500)))
    publisher.put(EPSS, status=302, headers={"Location": "/epss-2026-08-21.csv.gz"})
    clock = Clock()
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        first = (await campus.call("top_cves_today", key="cve")).data
        assert first["feeds"]["epss"]["entries"] == 2500
        publisher.asked.clear()
        clock.move(timedelta(days=1))
        await campus.run("refresh")
        second = (await campus.call("top_cves_today", key="cve")).data
        conditions = {target: headers.get("if-none-match") for target, headers in publisher.asked}
        assert conditions[KEV] is not None
        assert conditions["/epss-2026-08-21.csv.gz"] is not None
        assert second["feeds"]["kev"]["version"] == first["feeds"]["kev"]["version"]
        assert [entry["epss"] for entry in second["entries"]] == [entry["epss"] for entry in first["entries"]]
        assert date.fromisoformat(second["day"]) - date.fromisoformat(first["day"]) == timedelta(days=1)


UNUSABLE = {
    "down": {"status": 503},
    "HTML": {"body": b"<!DOCTYPE html><html>"},
    "empty": {"body": b""},
    "garbled": {"body": b'{"title": "Catalog", "vulnerab'},
}


@pytest.mark.parametrize("fault", UNUSABLE.values(), ids=UNUSABLE)
async def test_what_cannot_be_used_from_cisa_is_read_from_the_mirror(publisher, open_test_campus, make, limits, fault) -> None:
    publisher.put(KEV, **fault)
    publisher.put(MIRROR, b"\xef\xbb\xbf" + make.kev_catalog(make.listings(1300)))
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        kev = (await campus.call("top_cves_today", key="cve")).data["feeds"]["kev"]
        assert (kev["entries"], kev["held_because"]) == (1300, None)


@pytest.mark.parametrize("mirror", ["lags", "is away", "lost entries"])
async def test_without_a_kev_of_today_the_list_is_made_from_the_one_held_and_says_so(
    publisher, open_test_campus, make, limits, mirror: str
) -> None:
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        clock.move(timedelta(days=1))
        publisher.put(KEV, status=403)
        answers = {
            "lags": {"body": make.kev_catalog(make.listings(1190), released="2026-08-19T17:00:00Z")},
            "is away": {"status": 404},
            "lost entries": {"body": make.kev_catalog(make.listings(1189), released="2026-08-22T12:00:00Z")},
        }
        publisher.put(MIRROR, **answers[mirror])
        publisher.put(EPSS, make.epss_file(make.many_scores(2100), scored="2026-08-22T12:00:00Z"))
        reason = {"lags": "is older than", "is away": "answered 404", "lost entries": "lacks 11 of the 1,200"}[mirror]
        with pytest.raises(FeedError, match=f"answered 403; its mirror: .*{reason}"):
            await renew(campus.site, limits=limits())
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert (brief["day"], brief["feeds"]["epss"]["entries"]) == ("2026-08-22", 2100)
        assert (brief["feeds"]["kev"]["date"], brief["feeds"]["kev"]["age_days"]) == ("2026-08-21", 1)
        assert brief["feeds"]["kev"]["held_because"] == "its publisher does not answer, or answers with an error"
        [finding] = (await campus.service.ask("ready"))["cve"]
        assert re.search(f"answered 403; its mirror: .*{reason}", finding), "the operator sees all of it"
        assert (await campus.service.ask("ready"))["cve"][0].startswith("KEV failed at 2026-08-22")
        with pytest.raises(FeedError):
            await renew(campus.site, limits=limits())
        assert (await campus.call("top_cves_today", key="cve")).data == brief, "an attempt that changes nothing is no new edition"

        publisher.put(KEV, make.kev_catalog(make.listings(1200), released="2026-08-22T17:00:00Z"))
        clock.move(timedelta(minutes=4))
        await renew(campus.site, limits=limits())
        mended = (await campus.call("top_cves_today", key="cve")).data
        assert (mended["edition"], mended["feeds"]["kev"]["held_because"]) == (2, None)
        assert (await campus.service.ask("ready"))["cve"] == []


async def test_without_an_epss_of_today_the_list_has_kevs_news_and_says_which_scores_it_holds(
    publisher, open_test_campus, make, limits, tmp_path
) -> None:
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        clock.move(timedelta(days=4))
        publisher.put(EPSS, status=503)
        new = make.kev_entry("CVE-2026-9000", date(2026, 8, 25))
        publisher.put(KEV, make.kev_catalog([new, *make.listings(1200)], released="2026-08-25T12:00:00Z"))
        for _ in range(2):
            with pytest.raises(FeedError, match=r"EPSS: .* answered 503"):
                await renew(campus.site, limits=limits())
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert (brief["day"], brief["edition"], brief["entries"][0]["cve_id"]) == ("2026-08-25", 1, "CVE-2026-9000")
        epss = brief["feeds"]["epss"]
        assert (epss["date"], epss["age_days"], brief["stale"]) == ("2026-08-21", 4, True)
        assert epss["held_because"] == "its publisher does not answer, or answers with an error"
        assert (await campus.service.ask("ready"))["cve"][1].startswith("EPSS failed at 2026-08-25")

        publisher.put(EPSS, make.epss_file(make.many_scores(2000), scored="2026-08-25T12:00:00Z"))
        await renew(campus.site, limits=limits())
        mended = (await campus.call("top_cves_today", key="cve")).data
        assert (mended["edition"], mended["stale"], mended["feeds"]["epss"]["held_because"]) == (2, False, None)
        publisher.put(EPSS, status=503)
        publisher.put(KEV, status=503)
        clock.move(timedelta(days=1))
        with pytest.raises(FeedError):
            await renew(campus.site, limits=limits())
        assert (await campus.call("top_cves_today", key="cve")).data["day"] == "2026-08-25", "without any news there is no list of today"
        findings = (await campus.service.ask("ready"))["cve"]
        assert [finding[:11] for finding in findings[:2]] == ["EPSS failed", "KEV failed "]


async def test_no_path_of_this_machine_is_shown_to_customers(publisher, open_test_campus, make, tmp_path, limits) -> None:
    kev_file = tmp_path / "kev.json"
    kev_file.write_bytes(make.kev_catalog(make.listings(1200)))
    settings = {"kev_url": kev_file.as_uri(), "kev_mirror_url": (tmp_path / "mirror.json").as_uri()}
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock, settings=settings) as campus:
        await renew(campus.site, accept=True, limits=limits())
        clock.move(timedelta(days=1))
        kev_file.unlink()
        publisher.put(EPSS, make.epss_file(make.many_scores(2000), scored="2026-08-22T12:00:00Z"))
        with pytest.raises(FeedError, match="does not exist"):
            await renew(campus.site, limits=limits())
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert brief["feeds"]["kev"]["held_because"] == "its publisher does not answer, or answers with an error"
        assert "file:" not in str(brief)


async def test_parts_that_cannot_be_read_are_named_in_the_log_the_answer_and_readyz(publisher, open_test_campus, make, caplog) -> None:
    entries = make.listings(1200)
    entries[3]["dueDate"] = "N/A"
    publisher.put(KEV, make.kev_catalog(entries))
    publisher.put(EPSS, gzip.compress(gzip.decompress(make.epss_file(make.many_scores(2000))) + b"\n# end\n"))
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        feeds = (await campus.call("top_cves_today", key="cve")).data["feeds"]
        named = {"kev": ["CVE-2026-1003: dueDate 'N/A'"], "epss": ["a blank line", "'# end'"]}
        assert {name: feeds[name]["unreadable"] for name in named} == named
        findings = (await campus.service.ask("ready"))["cve"]
        assert any("CVE-2026-1003: dueDate 'N/A'" in finding for finding in findings)
        assert any("a blank line; '# end'" in finding for finding in findings)
        logged = [vars(record).get("parts") for record in caplog.records if "cannot be read" in record.message]
        assert logged == [("CVE-2026-1003: dueDate 'N/A'",), ("a blank line", "'# end'")]


async def test_a_feed_of_the_future_is_never_used(publisher, open_test_campus, make, limits) -> None:
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        publisher.put(EPSS, make.epss_file(make.many_scores(2000), scored="2026-08-23T12:00:00Z"))
        with pytest.raises(FeedError, match=r"EPSS: .* dated in the future"):
            await renew(campus.site, accept=True, limits=limits())
        publisher.put(EPSS, make.epss_file(make.many_scores(2000)))
        publisher.put(KEV, make.kev_catalog(make.listings(1200), released="2036-08-23T12:00:00Z"))
        with pytest.raises(FeedError, match=r"KEV: .* dated in the future"):
            await renew(campus.site, accept=True, limits=limits())


async def test_no_password_of_a_feeds_address_is_stored(publisher, open_test_campus, limits) -> None:
    url = publisher.url.replace("//", "//me:hush-hush@")
    async with open_test_campus(url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        async with campus.site.storage.read() as session:
            rows = [str(dict(row)) for row in await session.exec(select(FeedState))]
        assert len(rows) == 3
        assert not any("hush" in row for row in rows)


@pytest.mark.parametrize("fault", [{"status": 403}, {"body": b"<html>"}, {"body": b""}])
async def test_nvd_does_not_hold_up_the_list_and_its_last_answer_is_kept(publisher, open_test_campus, make, limits, fault) -> None:
    rated = {"cvssMetricV31": [{"source": "nvd@nist.gov", "type": "Primary", "cvssData": {"version": "3.1", "baseScore": 9.8}}]}
    publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-1000", metrics=rated)]))
    clock = Clock(NOON)
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await renew(campus.site, accept=True, limits=limits())
        await read_nvd(campus.site, limits=limits())
        publisher.put(NVD, **fault)
        clock.move(timedelta(hours=1))
        publisher.put(KEV, make.kev_catalog(make.listings(1201)))
        await renew(campus.site, limits=limits())
        verdict = (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-1000")).data
        assert (verdict["severity"], verdict["severity_source"], verdict["cvss"]["score"]) == ("CRITICAL", "nvd", 9.8)
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert brief["feeds"]["kev"]["entries"] == 1201
        assert brief["feeds"]["nvd"]["date"] == "2026-08-21"
        assert (await campus.service.ask("ready"))["cve"][0].startswith("NVD failed at")


async def test_without_nvd_ever_severity_is_unknown_and_has_no_source(publisher, open_test_campus, limits) -> None:
    publisher.put(NVD, status=503)
    async with open_test_campus(publisher.url) as campus:
        await renew(campus.site, accept=True, limits=limits())
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert {(entry["severity"], entry["severity_source"], entry["cvss"]) for entry in brief["entries"]} == {("UNKNOWN", None, None)}
        assert set(brief["feeds"]["nvd"].values()) == {None}
        assert {entry["nvd_record"] for entry in brief["entries"]} == {"not_read"}


async def test_the_shipped_limits_are_those_of_the_job() -> None:
    assert FetchLimits().retry_policy.seconds == 120
    assert refresh.__kwdefaults__ == {"day": None, "accept": False, "correct": None}


async def test_old_feeds_are_published_with_their_age_and_as_stale(publisher, open_test_campus, make) -> None:
    publisher.put(KEV, make.kev_catalog(make.listings(1200), released="2026-08-06T00:00:00.000Z"))
    publisher.put(EPSS, make.epss_file(make.many_scores(2000), scored="2026-08-18T12:00:00Z"))
    clock = Clock()
    async with open_test_campus(publisher.url, clock=clock) as campus:
        clock.time = clock.time.replace(year=2026, month=8, day=20, hour=14)
        await campus.run("refresh", accept=True)
        brief = (await campus.call("top_cves_today", key="cve")).data
        assert (brief["stale"], brief["feeds"]["kev"]["age_days"], brief["feeds"]["epss"]["age_days"]) == (False, 14, 2)
        assert "stale" not in (await campus.call("brief_teaser")).data
        clock.move(timedelta(days=1))
        aged = (await campus.call("top_cves_today", key="cve")).data
        assert (aged["stale"], aged["feeds"]["kev"]["age_days"], aged["day"]) == (True, 15, "2026-08-20")
        assert json.dumps(aged["entries"]) == json.dumps(brief["entries"])
        assert (await campus.call("brief_teaser")).data["stale"] is True
        assert (await campus.call("cve_verdict", key="cve", cve_id="CVE-2026-1000")).data["stale"] is True
        archived = (await campus.call("archived_brief", key="cve", date="2026-08-20")).data
        assert archived == brief
