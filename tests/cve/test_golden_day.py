"""The list of 2026-08-21 from the real KEV and EPSS, with hand-written NVD records: every case of severity and patch status."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cve.thinned import thinned

from campus.testing import Clock

pytestmark = pytest.mark.anyio

GOLDEN = [("CVE-2026-8037", 86.009), ("CVE-2026-33824", 85.614), ("CVE-2026-34486", 79.492), ("CVE-2026-73570", 75.135)]
CNA = "cna@acme.example"
ADP = "134c704f-9b21-4f2e-91b3-4a467353bcc0"


def metric(source: str, score: float, *, version: str = "3.1", primary: bool = False, severity: str | None = None) -> dict[str, Any]:
    cvss = {"version": version, "baseScore": score, "vectorString": f"CVSS:{version}/…"} | ({"baseSeverity": severity} if severity else {})
    return {"source": source, "type": "Primary" if primary else "Secondary", "cvssData": cvss}


def record(**more: Any) -> dict[str, Any]:
    return {"metrics": {}, "references": []} | more


NVD_31, CNA_40, CISA = metric("nvd@nist.gov", 9.8, primary=True), metric(CNA, 8.7, version="4.0"), metric(ADP, 5.5)
NVD_2 = metric("nvd@nist.gov", 6.8, version="2.0", primary=True) | {"baseSeverity": "MEDIUM"}
FIX, ADVISORY = {"url": "https://fix.example", "tags": ["Patch"]}, {"url": "https://advisory.example", "tags": ["Vendor Advisory"]}
BROKEN = {"url": "https://gone.example", "tags": ["Patch", "Broken Link"]}

CASES: list[tuple[dict[str, Any] | None, tuple[Any, ...]]] = [
    (
        record(metrics={"cvssMetricV31": [NVD_31, CISA], "cvssMetricV40": [CNA_40]}, references=[FIX]),
        ("CRITICAL", "nvd", 9.8, "fix_reference"),
    ),
    (record(metrics={"cvssMetricV2": [NVD_2], "cvssMetricV31": [CISA]}, references=[ADVISORY]), ("MEDIUM", "nvd", 6.8, "vendor_advisory")),
    (
        record(metrics={"cvssMetricV40": [CNA_40], "cvssMetricV31": [CISA]}, references=[BROKEN, ADVISORY]),
        ("HIGH", "cna", 8.7, "vendor_advisory"),
    ),
    (
        record(metrics={"cvssMetricV31": [metric(CNA, 0.0, severity="NONE"), CISA]}, references=[ADVISORY, FIX]),
        ("MEDIUM", "cisa-adp", 5.5, "fix_reference"),
    ),
    (record(metrics={"cvssMetricV31": [metric(ADP, 0.0, severity="NONE")]}, references=[BROKEN]), ("UNKNOWN", None, None, "unknown")),
    (record(vulnStatus="Awaiting Analysis"), ("UNKNOWN", None, None, "unknown")),
    (None, ("UNKNOWN", None, None, "unknown")),
]


async def test_the_25_of_the_golden_day_and_what_is_said_of_them(real_feeds: Path, open_test_campus, make, tmp_path: Path) -> None:
    kev_file = real_feeds / "known_exploited_vulnerabilities-2026.08.21.json"
    listed = {one["cveID"]: one for one in json.loads(kev_file.read_bytes())["vulnerabilities"]}
    epss_file, nvd_file = tmp_path / "epss.csv.gz", tmp_path / "nvd.json"
    scores = real_feeds / "epss_scores-2026-08-15.reconstructed.csv.gz"
    epss_file.write_bytes(thinned(scores, lambda cve_id: cve_id in listed or cve_id.endswith("88")))
    nvd_file.write_bytes(make.nvd_page([make.nvd_record("CVE-1999-0001")]))
    settings = {"kev_url": kev_file.as_uri(), "epss_url": epss_file.as_uri(), "nvd_url": nvd_file.as_uri()}
    async with open_test_campus(settings=settings, clock=Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))) as campus:
        key = await campus.key("cve")
        await campus.run("refresh", accept=True)
        bare = (await campus.call("top_cves_today", key=key)).data["entries"]
        assert [(entry["cve_id"], entry["score"]) for entry in bare[:4]] == GOLDEN

        given = {entry["cve_id"]: CASES[place % len(CASES)] for place, entry in enumerate(bare)}
        nvd_file.write_bytes(make.nvd_page([make.nvd_record(cve_id, **said) for cve_id, (said, _) in given.items() if said]))
        await campus.run("refresh")
        brief = (await campus.call("top_cves_today", key=key)).data

    assert [entry["cve_id"] for entry in brief["entries"]] == [entry["cve_id"] for entry in bare]
    assert (brief["count"], brief["stale"], brief["feeds"]["epss"]["age_days"]) == (25, True, 6)
    for entry in brief["entries"]:
        kev = listed[entry["cve_id"]]
        said = (entry["severity"], entry["severity_source"], entry["cvss"] and entry["cvss"]["score"], entry["patch_status"])
        assert said == given[entry["cve_id"]][1], entry["cve_id"]
        assert (entry["patch_evidence"] is None) == (entry["patch_status"] == "unknown")
        assert (entry["vendor"], entry["product"]) == (kev["vendorProject"].strip(), kev["product"].strip())
        assert (entry["kev_date_added"], entry["kev_due_date"]) == (kev["dateAdded"], kev["dueDate"])
