"""Severity with its source, patch status with its evidence, and names: every case of the fallback chain."""

import gzip
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.nvd import parse_nvd
from buildings.cve.ranking.enrichment import (
    CISA_ADP,
    NVD,
    Metric,
    NvdRecord,
    Reference,
    names_in,
    patch_of,
    ratings_of,
    says_end_of_life,
    severity_of,
    tagged,
)

CNA = "cna@acme.example"
LISTED = date(2026, 8, 1)


def metric(source: str, score: float, *, version: str = "3.1", severity: str = "", primary: bool = False) -> Metric:
    return Metric(source, primary, version, score, severity, None)


NVD_31 = metric(NVD, 9.8, severity="CRITICAL", primary=True)
NVD_2 = metric(NVD, 6.9, version="2.0", severity="MEDIUM", primary=True)
NVD_SECONDARY = metric(NVD, 5.0)
CNA_40 = metric(CNA, 8.7, version="4.0", severity="HIGH")
CNA_31 = metric(CNA, 6.5, severity="MEDIUM")
CNA_AS_PRIMARY = metric("psirt@other.example", 7.2, severity="HIGH", primary=True)
ADP = metric(CISA_ADP, 3.1, severity="LOW")
STRANGER = metric("someone@else.example", 10.0, severity="CRITICAL")


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([ADP, CNA_31, NVD_31], ("CRITICAL", "nvd", 9.8, "3.1")),
        ([CNA_40, NVD_2, ADP], ("MEDIUM", "nvd", 6.9, "2.0")),
        ([NVD_2, NVD_31], ("CRITICAL", "nvd", 9.8, "3.1")),
        ([ADP, CNA_31, NVD_SECONDARY], ("MEDIUM", "cna", 6.5, "3.1")),
        ([CNA_31, CNA_40], ("HIGH", "cna", 8.7, "4.0")),
        ([ADP, CNA_AS_PRIMARY], ("HIGH", "cna", 7.2, "3.1")),
        ([STRANGER, ADP], ("LOW", "cisa-adp", 3.1, "3.1")),
        ([metric(CNA, 0.0, severity="NONE"), ADP], ("LOW", "cisa-adp", 3.1, "3.1")),
        ([metric(NVD, 0.0, severity="NONE", primary=True), CNA_31], ("NONE", "nvd", 0.0, "3.1")),
    ],
    ids=[
        "NVD's own rating comes first",
        "NVD's own rating comes first in an old version too",
        "of one source the newest version counts",
        "then the authority that assigned the CVE",
        "of the authority the newest version counts",
        "an authority that NVD took for primary",
        "then CISA; a stranger does not count",
        "0.0 of an authority means not rated",
        "0.0 of NVD means NONE",
    ],
)
def test_the_first_source_of_the_chain_rates(metrics: list[Metric], expected: tuple[str, str, float, str]) -> None:
    for order in (metrics, metrics[::-1]):
        rating = NvdRecord("CVE-2026-1000", "", LISTED, ratings=ratings_of(order, cna=CNA)).rating
        assert rating is not None
        assert (rating.severity, rating.source, rating.score, rating.version) == expected


@pytest.mark.parametrize("metrics", [[], [STRANGER], [metric(CISA_ADP, 0.0)], [metric(CNA, 0.0)]])
def test_what_nobody_rated_has_no_rating_and_never_0(metrics: list[Metric]) -> None:
    assert ratings_of(metrics, cna=CNA) == ()


def test_of_each_cvss_version_one_rating_is_kept_the_newest_first() -> None:
    kept = ratings_of([NVD_2, CNA_31, NVD_31, CNA_40], cna=CNA)
    assert [(one.version, one.source, one.score) for one in kept] == [("4.0", "cna", 8.7), ("3.1", "nvd", 9.8), ("2.0", "nvd", 6.9)]


@pytest.mark.parametrize(
    ("version", "score", "severity"),
    [
        *(("3.1", 0.0, "NONE"), ("3.1", 0.1, "LOW"), ("3.1", 3.9, "LOW"), ("3.1", 4.0, "MEDIUM"), ("4.0", 6.9, "MEDIUM")),
        *(("3.0", 7.0, "HIGH"), ("3.1", 8.9, "HIGH"), ("4.0", 9.0, "CRITICAL"), ("2.0", 10.0, "HIGH")),
    ],
)
def test_a_score_without_a_label_gets_that_of_its_band(version: str, score: float, severity: str) -> None:
    assert severity_of(metric(NVD, score, version=version)) == severity


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("The impacted product is end-of-life and should be disconnected if still in use.", True),
        (
            "The impacted product is end-of-life (EoL) and/or end-of-service (EoS). Users should discontinue utilization of the product.",
            True,
        ),
        ("All associated hardware revisions have reached their end-of-life (EOL) life cycle and should be retired and replaced.", True),
        ("Discontinue use of the product.", True),
        ("The impacted product could be end-of-life. Users should discontinue utilization if a mitigation is unavailable.", False),
        ("Apply updates per vendor instructions.", False),
        ("Apply mitigations per vendor instructions or discontinue use of the product if mitigations are unavailable.", False),
        ("Apply updates per vendor instructions or disconnect product if it is end-of-life.", False),
        ("As CSA 4.6.x has reached End-of-Life status, users are urged to remove it or upgrade to the 5.0.x line.", False),
        ("Versions 6 and earlier for this product are end-of-life. Versions 7 and later are not considered vulnerable.", False),
        ("Disconnect versions that have reached their end-of-life. For supported versions, please follow the mitigations.", False),
        ("", False),
    ],
)
def test_only_a_plain_statement_says_that_there_will_be_no_fix(action: str, says: bool) -> None:
    assert says_end_of_life(action) is says


RECORD = NvdRecord("CVE-2026-1000", "Analyzed", date(2026, 8, 20), fix_url="https://fix.example", advisory_url="https://advisory.example")


@pytest.mark.parametrize(
    ("record", "end_of_life", "expected"),
    [
        (
            RECORD,
            LISTED,
            ("no_fix_eol", "https://www.cisa.gov/known-exploited-vulnerabilities-catalog?search_api_fulltext=CVE-2026-1000", LISTED),
        ),
        (RECORD, None, ("fix_reference", "https://fix.example", date(2026, 8, 20))),
        (NvdRecord("CVE-2026-1000", "", LISTED, advisory_url="https://a.example"), None, ("vendor_advisory", "https://a.example", LISTED)),
        (NvdRecord("CVE-2026-1000", "", LISTED), None, ("unknown", None, None)),
        (None, None, ("unknown", None, None)),
    ],
)
def test_patch_status_comes_with_its_evidence(record, end_of_life, expected) -> None:
    patch = patch_of(record, cve_id="CVE-2026-1000", end_of_life=end_of_life)
    assert (patch.status, patch.url, patch.said_on) == expected


def test_a_broken_link_is_no_evidence() -> None:
    broken, good = Reference("https://gone.example", ["Patch", "Broken Link"]), Reference("https://here.example", ["Patch"])
    assert tagged([broken, good], "Patch") == "https://here.example"
    assert tagged([broken], "Patch") is None


def test_names_are_read_out_of_a_cpe() -> None:
    assert names_in("cpe:2.3:o:microsoft:windows_10_1507:-:*:*:*:*:*:*:*") == ("microsoft", "windows 10 1507", "-")
    assert names_in(r"cpe:2.3:a:acme\:co:an\\vil\+:1:*:*:*:*:*:*:*") == ("acme:co", r"an\vil+", "1")


def test_a_record_of_any_status_is_read(make) -> None:
    statuses = ["Received", "Awaiting Analysis", "Undergoing Analysis", "Analyzed", "Modified", "Deferred", "Rejected", "Brand New"]
    records = [make.nvd_record(f"CVE-2026-{1000 + n}", vulnStatus=status) for n, status in enumerate(statuses)]
    page = parse_nvd(make.nvd_page(records))
    assert [record.status for record in page.records] == statuses
    assert [record.is_rejected for record in page.records] == [status == "Rejected" for status in statuses]


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ({"lastModified": "yesterday"}, r"vulnerabilities\.1\.cve: lastModified: "),
        ({"references": [{"tags": ["Patch"]}]}, r"vulnerabilities\.1\.cve: references\.0\.url: Field required"),
        (
            {"metrics": {"cvssMetricV31": [{"source": "x", "type": "Primary", "cvssData": {"version": "3.1", "baseScore": 99}}]}},
            "baseScore",
        ),
    ],
)
def test_a_page_with_a_record_that_is_none_is_refused_by_its_place(make, member: dict[str, Any], place: str) -> None:
    with pytest.raises(FeedRefused, match=place):
        parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000"), make.nvd_record("CVE-2026-1001", **member)]))


def test_metrics_of_versions_to_come_are_passed_over(make) -> None:
    [record] = parse_nvd(make.nvd_page([make.nvd_record("CVE-2026-1000", metrics={"cvssMetricV50": [{"any": "thing"}]})])).records
    assert record.rating is None


def independent_rating(cve: dict[str, Any]) -> tuple[str, str] | None:
    found = [(m, version) for version in ("V40", "V31", "V30", "V2") for m in cve["metrics"].get(f"cvssMetric{version}", [])]
    kinds = {
        "nvd": [m for m, _ in found if m["source"] == NVD and m["type"] == "Primary"],
        "cna": [m for m, _ in found if m["source"] == cve["sourceIdentifier"] and m["cvssData"]["baseScore"]],
        "cisa-adp": [m for m, _ in found if m["source"] == CISA_ADP and m["cvssData"]["baseScore"]],
    }
    for source, metrics in kinds.items():
        if metrics:
            return metrics[0]["cvssData"].get("baseSeverity") or metrics[0]["baseSeverity"], source
    return None


@pytest.mark.parametrize(
    ("name", "count"), [("nvd_api2_kev_subset_112.json.gz", 112), ("nvdcve-2.0-modified.ORIGINAL-2026-03.json.gz", 2286)]
)
def test_the_real_records_are_read(real_feeds: Path, name: str, count: int) -> None:
    body = (real_feeds / name).read_bytes()
    published = {item["cve"]["id"]: item["cve"] for item in json.loads(gzip.decompress(body))["vulnerabilities"]}
    page = parse_nvd(body)
    assert page.count == len(page.records) == count
    for record in page.records:
        cve = published[record.cve_id]
        assert (record.rating and (record.rating.severity, record.rating.source)) == independent_rating(cve)
        tags = {tag for one in cve["references"] if "Broken Link" not in one.get("tags", []) for tag in one.get("tags", [])}
        assert (record.fix_url is not None, record.advisory_url is not None) == ("Patch" in tags, "Vendor Advisory" in tags)
        assert (record.vendor is not None) == ("configurations" in cve)
        assert (record.exploit_url is not None) == ("Exploit" in tags)
        matches = [match for one in cve.get("configurations", []) for node in one["nodes"] for match in node["cpeMatch"]]
        vulnerable = [match for match in matches if match["vulnerable"]]
        assert len(record.affected) == min(record.affected_count, 20) <= len(vulnerable)
        assert set(record.cwes) == {
            text["value"] for one in cve.get("weaknesses", []) for text in one["description"] if text["value"].startswith("CWE-")
        }
        assert str(record.published) == cve["published"][:10]


def test_the_112_real_records_show_every_source_of_the_chain(real_feeds: Path) -> None:
    page = parse_nvd((real_feeds / "nvd_api2_kev_subset_112.json.gz").read_bytes())
    assert Counter(record.rating.source for record in page.records if record.rating) == {"nvd": 90, "cna": 20, "cisa-adp": 2}
    names = {record.cve_id: (record.vendor, record.product) for record in page.records}
    assert names["CVE-2002-0367"] == ("microsoft", "windows 2000")
    assert sum(record.exploit_url is not None for record in page.records) == 37, "41, of which 4 links are broken"


def test_the_end_of_life_listings_of_august_are_found(real_feeds: Path) -> None:
    body = (real_feeds / "known_exploited_vulnerabilities-2026.08.21.json").read_bytes()
    actions = Counter(one["requiredAction"] for one in json.loads(body)["vulnerabilities"])
    said = {action: count for action, count in actions.items() if says_end_of_life(action)}
    assert sum(said.values()) == 67
    assert not [action for action in said if "apply" in action.lower()]
