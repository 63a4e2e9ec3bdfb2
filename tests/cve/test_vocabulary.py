"""Words of feeds that no list knows: noticed, used as far as they can be, told once, and never read as "no"."""

import json
import logging
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from buildings.cve.checks import feed_facts, words_are_known
from buildings.cve.feeds.epss import parse_epss
from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.kev import parse_kev
from buildings.cve.feeds.nvd import parse_nvd
from buildings.cve.feeds.vocabulary import MOST_WORDS, Words
from buildings.cve.names.osv import Records
from buildings.cve.ranking.enrichment import CISA_ADP, NVD
from campus.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]

NOON = datetime(2026, 8, 21, 14, tzinfo=UTC)
ADDED = date(2026, 8, 20)
NULLS: tuple[Any, ...] = (None, 7, 1.5, True, "", "\x00", [], {}, [None], {"a": None})
"""What may stand where a member is expected, in ten ways."""
AS_BEFORE = "as the entry was before, else unknown"


def words_of(words: Words) -> list[tuple[str, str]]:
    return sorted((kind, word) for kind, word, _ in words.counts)


@pytest.mark.parametrize(
    ("member", "word"),
    [
        ({"knownRansomwareCampaignUse": "Suspected"}, ("value of knownRansomwareCampaignUse", "Suspected")),
        ({"knownRansomwareCampaignUse": "Yes"}, ("value of knownRansomwareCampaignUse", "Yes")),
        ({"forensicTriage": "Recommended"}, ("value of forensicTriage", "Recommended")),
        ({"exploitationStatus": "active"}, ("member of entries", "exploitationStatus")),
        ({"requiredAction": "Act in compliance with BOD 27-01 guidance."}, ("value of directives", "27-01")),
        ({"requiredAction": "Adhere to CISA's Emergency Directive (ED) 27-02."}, ("value of directives", "27-02")),
        ({"dueDate": "21.09.2026"}, ("form of dueDate", "99.99.9999")),
        ({"dateAdded": "20 August 2026"}, ("form of dateAdded", "99 August 9999")),
        ({"cveID": "GCVE-1-2026-0001", "notes": ""}, ("form of cveID", "GCVE-9-9999-9999")),
    ],
)
def test_a_new_word_in_kev_is_noticed_and_what_was_known_stays(make, member: dict[str, Any], word: tuple[str, str]) -> None:
    known = {"knownRansomwareCampaignUse": "Known", "forensicTriage": "Yes", "dueDate": "2026-09-01"}

    def release(**odd: Any):
        return parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), make.kev_entry("CVE-2026-1001", ADDED, **known | odd)]))

    used, read = release(), release(**member)
    assert (words_of(used.words), words_of(read.words)) == ([], [word])
    held = read.completed(used.entries).entries["CVE-2026-1001"]
    assert (held.ransomware, held.forensic_triage, held.due_date, held.date_added) == (True, True, date(2026, 9, 1), ADDED)
    first = read.completed({}).entries.get("CVE-2026-1001")
    assert first is None or (first.ransomware, first.forensic_triage) == tuple(
        None if name in member else True for name in ("knownRansomwareCampaignUse", "forensicTriage")
    ), "in a first release it is unknown, and not false"


@pytest.mark.parametrize(
    ("written", "read"),
    [("Yes", True), ("no", False), ("NO ", False), ("", None), (None, None), ("Unknown", None), (True, None), ("N", None)],
)
def test_forensic_triage_is_read_as_cisa_writes_it(make, written: Any, read: bool | None) -> None:
    entry = parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED, forensicTriage=written)])).entries["CVE-2026-1000"]
    assert entry.forensic_triage is read
    assert entry.unreadable == (("forensicTriage",) if written in (True, "N") else ())


def test_null_and_nine_other_values_for_every_member_of_kev_are_read_or_named(make) -> None:
    listed = make.kev_entry("CVE-2026-1001", ADDED, knownRansomwareCampaignUse="Known", forensicTriage="Yes", notes="https://a.example/b")
    good = parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), listed])).entries
    for member in listed:
        for value in NULLS:
            catalog = parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), listed | {member: value}]))
            held = catalog.completed(good).entries["CVE-2026-1001"]
            assert (held.ransomware, held.date_added) == (True, ADDED), (member, value)
            if value is None and member in ("notes", "vulnerabilityName", "shortDescription", "cwes", "dueDate", "forensicTriage"):
                assert catalog.issue.unreadable == (), member
    document = json.loads(make.kev_catalog([listed]))
    for member in document:
        for value in NULLS:
            body = json.dumps(document | {member: value}).encode()
            try:
                catalog = parse_kev(body)
            except FeedRefused:
                assert member != "title", "it is not read"
            else:
                assert len(catalog.entries) == 1, (member, value)
    assert words_of(parse_kev(json.dumps(document | {"license": "CC0"}).encode()).words) == [("member of the catalog", "license")]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"#model_version:v5,score_date:2026-08-21T12:00:00Z", []),
        (b"#model_version:v5,score_date:2026-08-21T12:00:00Z,generated_by:run 7", [("field of the first line", "generated_by")]),
        (b"# score_date: 2026-08-21T12:00:00Z , model_version: v5, beta", [("field of the first line", "beta")]),
        (b"#schema:2,model_version:v5,score_date:2026-08-21T12:00:00Z", [("field of the first line", "schema")]),
    ],
)
def test_more_fields_and_columns_of_epss_are_ignored_and_noticed(head: bytes, words: list[tuple[str, str]]) -> None:
    day = parse_epss(head + b"\ncve,epss,percentile\nCVE-2026-1000,0.5,1\n")
    assert (day.model_version, day.scored_at, list(day.scores.epss), words_of(day.words)) == ("v5", NOON - timedelta(hours=2), [0.5], words)
    day = parse_epss(head + b"\ncve,epss,percentile,lev,trend\nCVE-2026-1000,0.5,1,,up\n")
    assert words_of(day.words) == [("column", "lev"), ("column", "trend"), *words]
    assert day.unreadable == ()


def metric(**more: Any) -> dict[str, Any]:
    data = {"version": "4.1", "baseScore": 9.8, "baseSeverity": "CRITICAL"} | more.pop("data", {})
    return {"source": NVD, "type": "Primary", "cvssData": data} | more


def ssvc(*options: dict[str, str], source: str = CISA_ADP) -> list[dict[str, Any]]:
    return [{"source": source, "ssvcData": {"options": list(options)}}]


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ({"vulnStatus": "Under Dispute"}, ("value of vulnStatus", "Under Dispute")),
        ({"metrics": {"cvssMetricV41": [metric()]}}, ("member of metrics", "cvssMetricV41")),
        ({"metrics": {"cvssMetricV50": [metric(data={"version": "5.0"})]}}, ("member of metrics", "cvssMetricV50")),
        ({"metrics": {"cvssMetricV40": [metric(data={"baseSeverity": "SEVERE"})]}}, ("value of baseSeverity", "SEVERE")),
        ({"metrics": {"cvssMetricV40": [metric(), metric(type="Tertiary", source="x")]}}, ("value of type", "Tertiary")),
        ({"references": [{"url": "https://a.example", "tags": ["Exploit Code"]}]}, ("value of tags", "Exploit Code")),
        ({"metrics": {"ssvcV204": ssvc({"exploitation": "active"})}}, ("member of metrics", "ssvcV204")),
        ({"metrics": {"ssvcV203": ssvc({"exploitation": "imminent"})}}, ("value of SSVC's exploitation", "imminent")),
        ({"metrics": {"ssvcV203": ssvc({"valueDensity": "diffuse"})}}, ("decision point of SSVC", "valuedensity")),
        ({"metrics": {"ssvcV203": ssvc(source="another")}}, ("source of SSVC", "another")),
        ({"metrics": {"ssvcV203": [{"source": CISA_ADP, "ssvcData": "active"}]}}, ("form of a record's", "SSVC")),
        ({"metrics": {"vplV1": [{"score": 3}]}}, ("member of metrics", "vplV1")),
        ({"remediations": []}, ("member of records", "remediations")),
        ({"id": "GCVE-1-2026-0001"}, ("form of id", "GCVE-9-9999-9999")),
    ],
)
def test_a_new_word_in_nvd_is_noticed_and_used_as_far_as_it_can_be(make, members: dict[str, Any], word: tuple[str, str]) -> None:
    page = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000"), make.nvd_record("CVE-2026-1001", **members)]))
    assert words_of(page.words) == [word]
    if "id" in members:
        return
    record = page.records[1]
    assert record.status == members.get("vulnStatus", "Analyzed")
    if any(name.startswith("cvss") for name in members.get("metrics", ())):
        assert (record.rating.severity, record.rating.score) == ("CRITICAL", 9.8), "later versions of CVSS and other words have a score"
    if "ssvcV204" in members.get("metrics", ()):
        assert record.ssvc.exploitation == "active"


def test_nvds_words_are_read_in_any_case(make) -> None:
    points = ({"Exploitation": "Active"}, {"Automatable": "YES"}, {"Technical Impact": "total"})
    written = {"references": [{"url": "https://a.example", "tags": ["PATCH"]}], "metrics": {"ssvcV203": ssvc(*points)}}
    page = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000", vulnStatus="REJECTED", **written)]))
    (record,) = page.records
    assert (record.is_rejected, record.fix_url) == (True, "https://a.example")
    assert (record.ssvc.exploitation, record.ssvc.automatable, record.ssvc.technical_impact) == ("active", "yes", "total")


def test_null_for_every_member_of_nvd_is_as_good_as_none_or_refuses_the_page(make) -> None:
    whole = {
        "published": "2026-08-20T10:00:00.000",
        "descriptions": [{"lang": "en", "value": "It falls."}],
        "references": [{"url": "https://a.example", "tags": ["Patch"]}],
        "metrics": {"cvssMetricV31": [metric(data={"version": "3.1"})]},
        "weaknesses": [{"description": [{"lang": "en", "value": "CWE-79"}]}],
        "configurations": [{"nodes": [{"cpeMatch": [{"vulnerable": True, "criteria": "cpe:2.3:a:acme:anvil:1:*:*:*:*:*:*:*"}]}]}],
    }
    needed = {"id", "lastModified", "metrics"}
    for member in {**make.nvd_record("CVE-2026-1000"), **whole}:
        page = make.nvd_page([make.nvd_record("CVE-2026-1000", **whole | {member: None})])
        if member in needed:
            with pytest.raises(FeedRefused):
                parse_nvd(page)
        else:
            assert len(parse_nvd(page).records) == 1, member
    odd = whole | {"references": [{"url": "https://a.example", "tags": None}, {"url": "https://b.example", "tags": ["Patch", None]}]}
    (record,) = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000", **odd)])).records
    assert (record.fix_url, record.rating.severity) == ("https://b.example", "CRITICAL")


def test_a_new_word_in_osv_is_noticed_and_the_name_is_used() -> None:
    records = Records()
    for name, more in (("ZEN-2026-1", {}), ("GHSA-2222-3333-4444", {"schema_version": "2.0.0", "siblings": []})):
        body = {"schema_version": "1.7.4", "id": name, "modified": "2026-08-20T10:00:00Z", "aliases": ["CVE-2026-1000"]} | more
        records.add(name, json.dumps(body).encode())
    assert all(records.pairs.values())
    assert words_of(records.words) == [("member of records", "siblings"), ("schema_version", "2.0.0"), ("scheme of names", "ZEN")]


async def test_a_new_word_is_told_once_and_stays_in_the_status(few, open_test_campus, make, caplog) -> None:
    caplog.set_level(logging.WARNING, "buildings.cve.feeds.vocabulary")
    clock = Clock(NOON)
    few.put("/rest/json/cves/2.0", make.nvd_page([make.nvd_record("CVE-2026-1000", vulnStatus="Under Dispute")]))
    async with open_test_campus(few.url, clock=clock) as campus:
        for day in (0, 1, 6, 7):
            clock.time = NOON + timedelta(days=day)
            rows = [row | {"exploitationStatus": "active"} for row in make.listings(40)]
            few.put("/kev.json", make.kev_catalog(rows, released=f"{clock():%Y-%m-%d}T17:00:00.000Z"))
            await campus.run("refresh", accept=True)
            told = [record.word for record in caplog.records if "exploitationStatus" in getattr(record, "word", "")]
            sentence = "KEV uses a member of entries that is not known, 'exploitationStatus', 40 times, since 2026-08-21: ignored"
            assert told == [sentence]
            assert (sentence in await words_are_known(campus.site)) is (day < 7), "news for a week"
            assert sentence in (await feed_facts(campus.site)).values()
        (nvd,) = [word for word in (await feed_facts(campus.site)).values() if "vulnStatus" in word]
        assert nvd.endswith("'Under Dispute', once, since 2026-08-21: shown as it is, and not as rejected")


async def test_a_feed_of_new_words_only_is_bounded(few, open_test_campus, make, storage_url) -> None:
    async with open_test_campus(few.url, storage=storage_url) as campus:
        for turn in range(2):
            rows = [row | {f"member{turn}_{place}": "x" * 500} for place, row in enumerate(make.listings(MOST_WORDS + 20))]
            few.put("/kev.json", make.kev_catalog(rows, released=f"2026-08-21T17:0{turn}:00.000Z"))
            await campus.run("refresh", accept=True)
        words = [word for name, word in (await feed_facts(campus.site)).items() if name.startswith("word ")]
        assert len(words) == MOST_WORDS
