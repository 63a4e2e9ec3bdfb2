"""Twenty days of real KEV releases with a list on every second, including an empty week, edits and a removal."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cve.thinned import thinned

from campus.errors import JobFailed
from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
FIRST, LISTED = date(2024, 10, 20), range(0, 20, 2)
REMOVED, REMOVED_ON = "CVE-2021-4043", date(2024, 11, 7)


def releases(folder: Path) -> Iterator[tuple[date, dict[str, Any]]]:
    """The releases of these days, with their newer entries and the one that was removed."""
    with tarfile.open(folder / "kev_releases_2023-04-10_2026-08-21.tar.xz") as archive:
        for member in archive:
            day = date.fromisoformat(member.name[4:14])
            if day >= FIRST + timedelta(days=LISTED.stop):
                return
            if day >= FIRST - timedelta(days=10):
                catalog = json.loads(archive.extractfile(member).read())
                kept = [one for one in catalog["vulnerabilities"] if one["dateAdded"] >= "2024-06-01" or one["cveID"] == REMOVED]
                yield day, catalog | {"count": len(kept), "vulnerabilities": kept}


async def test_each_list_of_twenty_days_is_archived_as_it_was_published(real_feeds: Path, open_test_campus, tmp_path, make) -> None:
    published = dict(releases(real_feeds))
    listed = {one["cveID"]: one for catalog in published.values() for one in catalog["vulnerabilities"]}
    kev_file, epss_file, nvd_file = tmp_path / "kev.json", tmp_path / "epss.csv.gz", tmp_path / "nvd.json"
    scores = thinned(real_feeds / "epss_scores-2026-01-30.ORIGINAL.csv.gz", lambda cve_id: cve_id in listed and cve_id != REMOVED)
    epss_file.write_bytes(gzip.compress(gzip.decompress(scores).replace(b"2026-01-30", str(FIRST).encode(), 1)))
    nvd_file.write_bytes(make.nvd_page([make.nvd_record("CVE-1999-0001")]))
    settings = {"kev_url": kev_file.as_uri(), "epss_url": epss_file.as_uri(), "nvd_url": nvd_file.as_uri()}
    clock, fresh_counts, briefs = Clock(), [], {}
    async with open_test_campus(settings=settings | {"archive_start": FIRST.isoformat()}, clock=clock) as campus:
        key = await campus.key("cve")
        for day in (FIRST + timedelta(days=n) for n in LISTED):
            clock.time = datetime(day.year, day.month, day.day, 23, 59, tzinfo=UTC)
            catalog = published[max(released for released in published if released <= day)]
            kev_file.write_text(json.dumps(catalog))
            await campus.run("refresh", accept=day == FIRST)
            briefs[day] = (await campus.http.get("/v1/brief/today", headers={"Authorization": f"Bearer {key}"})).json()
            fresh = (await campus.call("kev_fresh", key=key)).data
            window = {(day - timedelta(days=n)).isoformat() for n in range(7)}
            assert {entry["cve_id"] for entry in fresh["entries"]} == {
                one["cveID"] for one in catalog["vulnerabilities"] if one["dateAdded"] in window
            }
            assert (fresh["from"], fresh["to"], fresh["count"]) == (min(window), max(window), len(fresh["entries"]))
            products = {one["cveID"]: one["product"].strip() for one in catalog["vulnerabilities"]}
            assert all(entry["product"] == products[entry["cve_id"]] for entry in briefs[day]["entries"])
            fresh_counts.append(fresh["count"])
            verdict = (await campus.call("cve_verdict", key=key, cve_id=REMOVED)).data
            assert verdict["found"] is (day < REMOVED_ON)
        assert verdict["miss"]["reason"] == "removed_from_kev"

        assert fresh_counts[6:8] == [0, 0]
        for day, brief in briefs.items():
            reply = await campus.call("archived_brief", key=key, date=day)
            assert (reply.status, reply.data) == (200, brief), day
            assert (brief["day"], brief["count"]) == (day.isoformat(), 25)
        for day in (FIRST - timedelta(days=1), FIRST + timedelta(days=1), FIRST + timedelta(days=LISTED.stop)):
            assert (await campus.call("archived_brief", key=key, date=day)).code == "no_data_for_date"
        assert (await campus.service.ask("audit"))["cve"] == []


async def test_a_past_day_is_not_made_from_later_feeds_and_a_correction_stands_beside_it(publisher, open_test_campus, make, limits) -> None:
    clock = Clock(datetime(2026, 8, 20, 21, tzinfo=UTC))
    before = {"kev": make.kev_catalog(make.listings(120), released="2026-08-20T17:00:00Z")}
    before |= {"epss": make.epss_file(make.many_scores(200), scored="2026-08-20T12:00:00Z")}
    async with open_test_campus(publisher.url, clock=clock) as campus:
        publisher.put(KEV, before["kev"])
        publisher.put(EPSS, before["epss"])
        await campus.run("refresh", accept=True)
        published = (await campus.call("archived_brief", key="cve", date="2026-08-20")).data
        publisher.put(KEV, make.kev_catalog(make.listings(148)))
        publisher.put(EPSS, make.epss_file(make.many_scores(210)))
        clock.move(timedelta(days=1))
        await campus.run("refresh")
        today = (await campus.call("top_cves_today", key="cve")).data
        for day, accept, reason in (
            (date(2026, 8, 22), True, "2026-08-22 is in the future"),
            (date(2026, 8, 20), False, "the list of 2026-08-20 is archived and stays as it was published"),
            (date(2026, 8, 20), True, "KEV 2026.08.21 of 2026-08-21 was issued after 2026-08-20"),
            (date(2026, 8, 19), False, "KEV 2026.08.21 of 2026-08-21 was issued after 2026-08-19"),
        ):
            with pytest.raises(JobFailed, match=reason):
                await campus.run("refresh", day=day, accept=accept)
        publisher.put(KEV, before["kev"])
        with pytest.raises(JobFailed, match=r"EPSS v2026\.06\.15 of 2026-08-21 was issued after 2026-08-20"):
            await campus.run("refresh", day=date(2026, 8, 20), accept=True)
        assert (await campus.call("archived_brief", key="cve", date="2026-08-20")).data == published

        publisher.put(EPSS, make.epss_file(make.many_scores(205), scored="2026-08-20T12:00:00Z"))
        await campus.run("refresh", day=date(2026, 8, 20), accept=True)
        corrected = (await campus.call("archived_brief", key="cve", date="2026-08-20")).data
        assert (published["edition"], corrected["edition"]) == (1, 2)
        assert corrected["entries"] != published["entries"]
        assert (await campus.call("archived_brief", key="cve", date="2026-08-20", edition=1)).data == published
        assert (await campus.call("top_cves_today", key="cve")).data == today
        await campus.run("refresh", day=date(2026, 8, 20), accept=True)
        assert (await campus.call("archived_brief", key="cve", date="2026-08-20")).data == corrected, "the same list is no new edition"
