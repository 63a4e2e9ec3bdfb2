"""Names of other schemes: OSV's records read whole and by what changed, believed or held, and resolved for a report."""

import io
import json
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from buildings.cve.arguments import number_of
from buildings.cve.feeds.errors import FeedError, FeedRefused
from buildings.cve.names import reading
from buildings.cve.names.osv import MEMBERS, Records
from buildings.cve.names.reading import read_names
from buildings.cve.names.store import ecosystem_states, names_in_words, resolve
from buildings.cve.names.zips import Unzip
from campus.testing import Clock

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)
OSV = "/osv/PyPI"


def record(name: str, *, modified: str = "2026-08-20T10:00:00Z", **more: Any) -> dict[str, Any]:
    return {"schema_version": "1.7.4", "id": name, "modified": modified, "affected": [], **more}


def zipped(records: list[dict[str, Any]], *, streamed: bool = True) -> bytes:
    """A zip file as OSV writes it: with each checksum after its file, unless it is not `streamed`."""
    whole = io.BytesIO()
    target = Unseekable(whole) if streamed else whole
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for one in sorted(records, key=lambda one: one["id"]):
            file.writestr(f"{one['id']}.json", json.dumps(one))
    return whole.getvalue()


class Unseekable(io.RawIOBase):
    def __init__(self, whole: io.BytesIO) -> None:
        self._whole = whole

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        return self._whole.write(part)


def listed(records: list[dict[str, Any]]) -> bytes:
    lines = sorted((f"{one['modified']},{one['id']}" for one in records), reverse=True)
    return "\n".join([*lines, ""]).encode()


class Osv:
    """One ecosystem of OSV at the test's publisher."""

    def __init__(self, publisher: Any) -> None:
        self.publisher = publisher
        self.records: dict[str, dict[str, Any]] = {}

    def put(self, *records: dict[str, Any]) -> None:
        self.records |= {one["id"]: one for one in records}
        self.publish(list(self.records.values()))

    def publish(self, records: list[dict[str, Any]]) -> None:
        self.publisher.put(f"{OSV}/all.zip", zipped(records))
        self.publisher.put(f"{OSV}/modified_id.csv", listed(records))
        for one in records:
            self.publisher.put(f"{OSV}/{one['id']}.json", json.dumps(one).encode())

    def asked(self) -> list[str]:
        targets = [target.removeprefix(f"{OSV}/") for target in self.publisher.targets(OSV)]
        self.publisher.asked.clear()
        return targets


@pytest.fixture
def osv(publisher) -> Osv:
    return Osv(publisher)


@pytest.fixture
def opened(publisher, open_test_campus):
    def with_pypi(clock: Clock | None = None, **more: Any):
        return open_test_campus(
            publisher.url, clock=clock or Clock(NOON), settings={"osv_ecosystems": ["PyPI"]} | more.pop("settings", {}), **more
        )

    return with_pypi


def advisories(count: int) -> list[dict[str, Any]]:
    return [record(f"PYSEC-2026-{n}", aliases=[f"CVE-2026-{1000 + n}"]) for n in range(count)]


async def resolved(campus, *names: str) -> dict[str, tuple[str, ...]]:
    found = await resolve(campus.site.storage, names)
    return {name: tuple(f"CVE-2026-{number % 10**12}" for number in numbers) for name, numbers in found.items()}


def as_of(moment: datetime, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one | {"modified": moment.isoformat()} for one in records]


async def test_records_whose_times_are_none_and_more_names_than_memory_has_room_for_are_refused(osv, opened, limits, monkeypatch) -> None:
    async with opened() as campus:
        osv.put(*as_of(datetime.min, advisories(30)))
        with pytest.raises(FeedRefused, match="30 of 30 records cannot be read"):
            await read_names(campus.site, limits=limits())
        monkeypatch.setattr(reading, "MOST_PAIRS", 29)
        osv.put(*advisories(30))
        with pytest.raises(FeedRefused, match="over 29 names"):
            await read_names(campus.site, limits=limits())


def test_a_zip_file_is_read_in_whatever_parts_it_arrives() -> None:
    records = advisories(30)
    for streamed in (True, False):
        whole = zipped(records, streamed=streamed)
        for step in (1, 7, 29, 4096, len(whole)):
            unzip = Unzip("OSV PyPI")
            parts = (whole[start : start + step] for start in range(0, len(whole), step))
            files = {name: json.loads(content) for part in parts for name, content in unzip.take(part)}
            unzip.finish()
            assert list(files.values()) == sorted(records, key=lambda one: one["id"]), (streamed, step)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>no zip file, but a page of some length</html>", "not a zip file"),
        (b"", "ends early, after 0 files"),
        (zipped(advisories(30))[:900], "ends early"),
        (zipped(advisories(30)).replace(b"PK\x07\x08", b"PK\x07\x09", 1), "has no checksum"),
        (zipped(advisories(3), streamed=False)[:50] + b"\xff\xff" + zipped(advisories(3), streamed=False)[52:], "damaged"),
        (zipped(advisories(3), streamed=False)[:14] + b"\x00\x00\x00\x00" + zipped(advisories(3), streamed=False)[18:], "checksum differs"),
    ],
    ids=["page", "empty", "short", "marks", "bits", "sum"],
)
def test_a_zip_file_that_is_damaged_is_refused(body: bytes, reason: str) -> None:
    unzip = Unzip("OSV PyPI")
    with pytest.raises(FeedRefused, match=reason):  # noqa: PT012 - it may be seen at either step
        list(unzip.take(body))
        unzip.finish()


def test_a_record_stands_for_its_aliases_and_what_it_is_about_and_for_nothing_related() -> None:
    records = Records()
    for one in (
        record("GHSA-2222-3333-4444", aliases=["CVE-2026-1001", "CVE-2026-1002", "SNYK-PYTHON-ACME-7"], related=["CVE-2026-1009"]),
        record("USN-7000-1", upstream=["CVE-2026-1003", "UBUNTU-CVE-2026-1003", "CVE-2026-1004"], aliases=None),
        record("PYSEC-2026-1"),
    ):
        records.add(one["id"], json.dumps(one).encode())
    one, two, three, four = (number_of(f"CVE-2026-100{n}") for n in (1, 2, 3, 4))
    assert records.pairs == {
        "GHSA-2222-3333-4444": {(name, n) for name in ("GHSA-2222-3333-4444", "SNYK-PYTHON-ACME-7") for n in (one, two)},
        "USN-7000-1": {("USN-7000-1", three), ("USN-7000-1", four)},
        "PYSEC-2026-1": frozenset(),
    }
    assert (records.words.counts, records.unreadable) == ({}, [])


def test_null_and_other_kinds_for_every_member_leave_a_record_out_at_worst() -> None:
    whole = record("PYSEC-2026-1", aliases=["CVE-2026-1000"], upstream=[], related=[], withdrawn="2026-01-01T00:00:00Z")
    for member in MEMBERS:
        for value in (None, 7, "", [], {}, [None], [[]], True, "\x00", [7]):
            records = Records()
            records.add("PYSEC-2026-1", json.dumps(whole | {member: value}).encode())
            assert len(records.pairs) + len(records.unreadable) == 1, (member, value)
            if member not in ("id", "modified", "aliases", "upstream"):
                assert records.pairs["PYSEC-2026-1"] == {("PYSEC-2026-1", number_of("CVE-2026-1000"))}, (member, value)


@pytest.mark.both_databases
async def test_all_records_are_read_once_then_only_what_changed(osv, opened, storage_url) -> None:
    malicious = record("MAL-2026-5", aliases=["CVE-2026-9999"])
    osv.put(*advisories(3), malicious, record("GHSA-2222-3333-4444", aliases=["CVE-2026-1001", "CVE-2026-1002"]))
    clock = Clock(NOON)
    async with opened(clock, storage=storage_url) as campus:
        await campus.run("names")
        assert osv.asked() == ["all.zip"]
        names = ("PYSEC-2026-1", "ghsa-2222-3333-4444", "MAL-2026-5", "PYSEC-2026-77", "DEBIAN-CVE-2026-4711")
        assert await resolved(campus, *names) == {
            "PYSEC-2026-1": ("CVE-2026-1001",),
            "ghsa-2222-3333-4444": ("CVE-2026-1001", "CVE-2026-1002"),
            "DEBIAN-CVE-2026-4711": ("CVE-2026-4711",),
        }
        clock.move(timedelta(hours=6))
        await campus.run("names")
        assert osv.asked() == ["modified_id.csv"], "nothing changed"
        await campus.run("names")
        assert osv.asked() == ["modified_id.csv"], "and the list itself has not"
        # A change is shown hours after its own time, one of the future day is the newest.
        osv.put(
            record("PYSEC-2026-1", modified="2026-08-20T11:00:00Z", aliases=["CVE-2026-1077"]),
            record("PYSEC-2026-50", modified="2026-08-19T23:00:00Z", aliases=["CVE-2026-1050"]),
            record("PYSEC-2026-51", modified="2026-08-21T19:00:00Z", aliases=["CVE-2026-1051"]),
        )
        await campus.run("names")
        assert sorted(osv.asked()) == ["PYSEC-2026-1.json", "PYSEC-2026-50.json", "PYSEC-2026-51.json", "modified_id.csv"]
        assert await resolved(campus, "PYSEC-2026-1", "PYSEC-2026-50", "PYSEC-2026-0") == {
            "PYSEC-2026-1": ("CVE-2026-1077",),
            "PYSEC-2026-50": ("CVE-2026-1050",),
            "PYSEC-2026-0": ("CVE-2026-1000",),
        }
        del osv.records["PYSEC-2026-0"]
        osv.put()
        clock.move(timedelta(days=30))
        await campus.run("names")
        assert osv.asked() == ["all.zip"]
        assert await resolved(campus, "PYSEC-2026-0") == {}
        assert (await campus.service.ask("check"))["cve"] == []


async def test_more_changes_than_can_be_asked_for_singly_are_read_at_once(osv, opened) -> None:
    osv.put(*advisories(1100))
    async with opened() as campus:
        await campus.run("names")
        osv.put(*(one | {"modified": "2026-08-21T10:00:00Z"} for one in advisories(1100)))
        osv.asked()
        await campus.run("names")
        assert osv.asked() == ["modified_id.csv", "all.zip"]
        found = await resolve(campus.site.storage, [f"pysec-2026-{n}" for n in range(6000)])
        assert len(found) == 1100


async def test_a_verdict_may_be_asked_for_by_another_name(osv, opened) -> None:
    pair = record("GHSA-2222-3333-4444", aliases=["CVE-2026-1001", "CVE-2026-1002"])
    osv.put(pair, record("RHSA-2026:1234", upstream=["CVE-2026-1003"]))
    async with opened() as campus:
        await campus.run("refresh", accept=True)
        await campus.run("names")
        for tool in ("cve_verdict", "cve_facts"):
            answer = await campus.call(tool, key="cve", cve_id="RHSA-2026:1234")
            assert answer.data.get("cve_id") == "CVE-2026-1003", answer
            several = await campus.call(tool, key="cve", cve_id="GHSA-2222-3333-4444")
            assert (several.code, "2 CVEs, ask for one of them: CVE-2026-1001, CVE-2026-1002" in several.data["detail"]) == (
                "no_cve_for_name",
                True,
            )
            none = await campus.call(tool, key="cve", cve_id="USN-1-1")
            assert "no CVE is known that USN-1-1 stands for; 2 records of OSV name a CVE, as of 2026-08-20: PyPI" in none.data["detail"]
            assert (await campus.call(tool, key="cve", cve_id="CVE-1")).code == "invalid_cve_id"


async def test_a_list_and_a_report_are_answered_by_their_other_names_and_nobody_is_asked(osv, opened) -> None:
    osv.put(record("PYSEC-2026-1", aliases=["CVE-2026-1001", "CVE-2026-1002"]), record("GHSA-2222-3333-4444", aliases=["CVE-2026-1003"]))
    found = [{"id": name, "fix_versions": ["2"], "aliases": []} for name in ("PYSEC-2026-1", "PYSEC-2026-9")]
    report = json.dumps({"dependencies": [{"name": "acme", "version": "1", "vulns": found}]})
    async with opened(frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        held = (await campus.call("cve_verdicts", key="cve", report=report)).data
        assert held["accounting"]["counts"]["not_looked_up"] == 2
        assert "no names of other schemes were read" in held["notices"][-1]
        await campus.run("names")
        osv.asked()
        answer = (await campus.call("cve_verdicts", key="cve", report=report, cve_ids=["ghsa-2222-3333-4444", "GHSA-9999-9999-9999"])).data
        assert {one["cve_id"] for one in answer["verdicts"]} == {"CVE-2026-1002", "CVE-2026-1003"}, "of two, the more urgent one"
        assert (answer["accounting"]["counts"]["not_looked_up"], answer["not_looked_up"]) == (1, ["GHSA-9999-9999-9999"])
        assert answer["notices"][-1].endswith("2 records of OSV name a CVE, as of 2026-08-20: PyPI.")
        listed = (await campus.call("cve_verdicts", key="cve", cve_ids=["GHSA-2222-3333-4444"])).data
        assert (listed["count"], listed["resolved"]) == (1, {"GHSA-2222-3333-4444": ["CVE-2026-1003"]})
        assert (await campus.call("cve_verdicts", key="cve", cve_ids=["GHSA-9999-9999-9999"])).code == "no_cve_ids"
        assert osv.asked() == []


def false_records(now: datetime) -> dict[str, tuple[list[dict[str, Any]], str, bool]]:
    """What may be published in place of 30 advisories, the reason for which it is held, and whether a person may accept it."""
    good = as_of(now, advisories(30))
    shrunken = [one | {"aliases": []} for one in good[5:]]
    renamed = [{name if name != "aliases" else "sameAs": value for name, value in one.items()} for one in good]
    ahead = as_of(now + timedelta(days=365), [record("PYSEC-2026-900", aliases=["CVE-2026-1900"])])
    return {
        "shrunken": ([*good[:5], *shrunken], "lacks 25 of the 30 entries", True),
        "renamed": (renamed, "lacks 30 of the 30 entries", True),
        "future": ([*good, *ahead], "dated in the future", False),
        "garbled": ([one | {"modified": 7} for one in good], "records cannot be read|has the line b'7,PYSEC", False),
    }


async def test_records_that_look_false_are_held_and_told(osv, opened) -> None:
    clock = Clock(NOON)
    known = {"PYSEC-2026-27": ("CVE-2026-1027",)}
    async with opened(clock) as campus:
        osv.put(*as_of(clock(), advisories(30)))
        await campus.run("names")
        for pause, what in ((timedelta(days=30), "all records"), (timedelta(hours=1), "only the changes")):
            for fault in false_records(NOON):
                held = clock().date()
                clock.move(pause)
                records, reason, may_be_accepted = false_records(clock())[fault]
                osv.publish(records)
                with pytest.raises(FeedError, match=reason):
                    await campus.run("names")
                assert await resolved(campus, "PYSEC-2026-27") == known, (fault, what)
                (failed,) = [sentence for sentence in (await campus.service.ask("ready"))["cve"] if "OSV PyPI failed" in sentence]
                said = names_in_words(await ecosystem_states(campus.site.storage))
                assert said.endswith(f"as of {held}: PyPI; those of PyPI are of {held}, since newer ones cannot be used")
                if may_be_accepted:
                    assert "run the job cve.names with --accept" in failed
                    await campus.run("names", accept=True)
                    assert await resolved(campus, "PYSEC-2026-27") == {}
                clock.move(timedelta(hours=1))
                osv.put(*as_of(clock(), advisories(30)))
                await campus.run("names")
                assert await resolved(campus, "PYSEC-2026-27") == known, (fault, what)
                assert not [sentence for sentence in (await campus.service.ask("ready"))["cve"] if "OSV" in sentence]


async def test_older_records_and_those_that_cannot_be_had_are_held(publisher, osv, opened, limits) -> None:
    osv.put(*advisories(30))
    clock = Clock(NOON)
    async with opened(clock) as campus:
        await campus.run("names")
        clock.move(timedelta(days=30))
        for put, reason in (
            (lambda: osv.publish(as_of(NOON - timedelta(days=20), advisories(30))), "is older than"),
            (lambda: publisher.put(f"{OSV}/all.zip", b"", status=404), "answered 404"),
            (lambda: publisher.put(f"{OSV}/all.zip", zipped(advisories(30))[:2000]), "ends early"),
            (lambda: publisher.put(f"{OSV}/all.zip", zipped(advisories(30)), promised=10**6), "complete answer"),
            (lambda: publisher.put(f"{OSV}/all.zip", zipped([])), "without any records"),
        ):
            put()
            with pytest.raises(FeedError, match=reason):
                await read_names(campus.site, limits=limits())
            assert await resolved(campus, "PYSEC-2026-27") == {"PYSEC-2026-27": ("CVE-2026-1027",)}
        (stale,) = [sentence for sentence in (await campus.service.ask("check"))["cve"] if "was last read" in sentence]
        assert "OSV's PyPI was last read on 2026-08-21; run the job cve.names" in stale


@pytest.mark.both_databases
async def test_one_line_turns_names_off_and_what_was_read_is_deleted(publisher, osv, opened, storage_url) -> None:
    osv.put(*advisories(3))
    async with opened(storage=storage_url) as campus:
        await campus.run("names")
        publisher.asked.clear()
    async with opened(storage=storage_url, settings={"osv_ecosystems": []}) as campus:
        await campus.run("names")
        assert (publisher.targets("/osv"), await resolved(campus, "PYSEC-2026-1")) == ([], {})
