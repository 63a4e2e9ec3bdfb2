"""Which CVEs of a scanner's report are looked up: its findings, not what it suppresses, rules out or only refers to."""

import json
from datetime import date
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
PATH = "/v1/cve/verdicts"
FOUND, ALSO, SETTLED, OTHER = "CVE-2026-7001", "CVE-2025-5555", "CVE-2026-7002", "CVE-2026-7003"
GHSA, LONE = "GHSA-jfh8-c2jp-5v3q", "GHSA-vv2x-vrpj-qqpq"
PROSE = f"An incomplete fix of {OTHER}; see also {SETTLED}."


def grype_match(own: str, *related: str) -> dict[str, Any]:
    return {
        "vulnerability": {
            "id": own,
            "dataSource": f"https://github.com/advisories/{own}",
            "namespace": "github:language:java",
            "severity": "Critical",
            "urls": [f"https://nvd.nist.gov/vuln/detail/{OTHER}"],
            "description": PROSE,
            "fix": {"versions": ["2.15.0"], "state": "fixed"},
            "advisories": [],
        },
        "relatedVulnerabilities": [{"id": one, "namespace": "nvd:cpe", "description": PROSE} for one in related],
        "matchDetails": [{"type": "exact-direct-match", "found": {"vulnerabilityID": own, "versionConstraint": "<2.15.0"}}],
        "artifact": {"name": "log4j-core", "version": "2.14.1", "purl": "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"},
    }


GRYPE = {
    "matches": [grype_match(GHSA, FOUND), grype_match(ALSO, ALSO, OTHER), grype_match(LONE)],
    "ignoredMatches": [grype_match(SETTLED, SETTLED) | {"appliedIgnoreRules": [{"vulnerability": SETTLED}]}],
    "descriptor": {"name": "grype", "configuration": {"ignore": [{"vulnerability": SETTLED}]}},
}
TRIVY = {
    "SchemaVersion": 2,
    "Results": [
        {
            "Target": "shop (debian 12.5)",
            "Vulnerabilities": [
                {"VulnerabilityID": FOUND, "VendorIDs": ["DSA-5678-1"], "Status": "fixed", "Title": PROSE, "Description": PROSE},
                {"VulnerabilityID": ALSO, "Status": "affected", "References": [f"https://nvd.nist.gov/vuln/detail/{OTHER}"]},
                {"VulnerabilityID": LONE, "Status": "fixed", "References": [f"https://example.org/{OTHER}"]},
            ],
            "ExperimentalModifiedFindings": [
                {"Type": "vulnerability", "Status": "ignored", "Source": ".trivyignore", "Finding": {"VulnerabilityID": SETTLED}}
            ],
        }
    ],
}


def sarif_result(rule: int, **more: Any) -> dict[str, Any]:
    return {"ruleId": ["one", f"{ALSO}-tps", SETTLED, LONE][rule], "ruleIndex": rule, "message": {"text": "found"}, **more}


SARIF = {
    "version": "2.1.0",
    "runs": [
        {
            "tool": {
                "driver": {
                    "name": "scanner",
                    "rules": [
                        {"id": "one", "fullDescription": {"text": f"({FOUND}) log4j-core"}, "help": {"text": PROSE}},
                        {"id": f"{ALSO}-tps", "fullDescription": {"text": PROSE}},
                        {"id": SETTLED, "helpUri": f"https://example.org/{SETTLED}"},
                        {"id": LONE},
                        {"id": OTHER, "shortDescription": {"text": "a rule without a result"}},
                    ],
                }
            },
            "results": [
                sarif_result(0, suppressions=[{"kind": "external", "status": "rejected"}]),
                sarif_result(1),
                sarif_result(2, suppressions=[{"kind": "inSource"}]),
                sarif_result(2, suppressions=[{"kind": "external", "status": "accepted", "justification": PROSE}]),
                sarif_result(2, baselineState="absent"),
                sarif_result(3),
            ],
        }
    ],
}
CYCLONEDX = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "components": [
        {"name": "log4j-core", "pedigree": {"patches": [{"type": "backport", "resolves": [{"type": "security", "id": SETTLED}]}]}}
    ],
    "vulnerabilities": [
        {"id": GHSA, "references": [{"id": FOUND, "source": {"name": "NVD"}}], "analysis": {"state": "in_triage"}},
        {"id": ALSO, "references": [{"id": OTHER}], "detail": PROSE, "analysis": {"state": "exploitable"}},
        {"id": LONE, "advisories": [{"url": f"https://example.org/{OTHER}"}]},
        *({"id": SETTLED, "analysis": {"state": state}} for state in ("not_affected", "false_positive", "resolved")),
    ],
}
OPENVEX = {
    "@context": "https://openvex.dev/ns/v0.2.0",
    "statements": [
        {"vulnerability": {"name": FOUND, "aliases": [GHSA]}, "status": "affected", "action_statement": "Update."},
        {"vulnerability": {"name": GHSA, "aliases": [ALSO]}, "status": "under_investigation"},
        {"vulnerability": {"name": LONE}, "status": "affected"},
        {"vulnerability": {"name": SETTLED}, "status": "not_affected", "justification": "component_not_present", "impact_statement": PROSE},
        {"vulnerability": OTHER, "status": "fixed"},
    ],
}
CSAF = {
    "document": {"category": "csaf_vex", "references": [{"url": f"https://example.org/{OTHER}"}]},
    "vulnerabilities": [
        {"cve": FOUND, "product_status": {"known_affected": ["A"], "fixed": ["B"]}, "notes": [{"text": PROSE}]},
        {"cve": ALSO, "product_status": {"under_investigation": ["A"]}},
        {"ids": [{"system_name": "GitHub", "text": LONE}], "product_status": {"known_affected": ["A"]}},
        {"cve": SETTLED, "product_status": {"known_not_affected": ["A"]}},
    ],
}
OSV = {
    "results": [
        {
            "packages": [
                {
                    "vulnerabilities": [
                        {
                            "id": GHSA,
                            "aliases": [FOUND],
                            "related": [OTHER],
                            "details": PROSE,
                            "references": [{"url": f"https://x.org/{OTHER}"}],
                        },
                        {"id": "PYSEC-2021-5", "aliases": [ALSO]},
                        {"id": LONE, "summary": PROSE},
                    ],
                    "groups": [{"ids": [GHSA], "aliases": [GHSA, FOUND]}],
                }
            ]
        }
    ]
}
TEXT = f"log4j-core  2.14.1  2.15.0  {GHSA}  Critical\nanvil  1.0  {FOUND}  High\ntps  2.1  {ALSO}  Low\n"
DOCUMENTS = {"grype": GRYPE, "trivy": TRIVY, "sarif": SARIF, "cyclonedx": CYCLONEDX, "openvex": OPENVEX, "csaf": CSAF, "osv": OSV}


async def test_a_report_is_read_for_its_findings_and_what_it_rules_out_or_cannot_be_looked_up_is_named(
    publisher, open_test_campus, make
) -> None:
    publisher.put(EPSS, make.epss_file(make.many_scores(1200) | {FOUND: 0.9, ALSO: 0.42, SETTLED: 0.3, OTHER: 0.2}))
    publisher.put(KEV, make.kev_catalog([make.kev_entry(FOUND, date(2026, 8, 1)), *make.listings(1200)]))
    async with open_test_campus(publisher.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        bearer = {"Authorization": f"Bearer {key}"}
        for name, document in DOCUMENTS.items():
            report = json.dumps(document)
            found = (await campus.call("cve_verdicts", key=key, report=report)).data
            assert [one["cve_id"] for one in found["verdicts"]] == [FOUND, ALSO], name
            assert (found["not_looked_up"], found["not_looked_up_count"]) == ([LONE], 1), name
            mentioned = [cve_id for cve_id in (SETTLED, OTHER) if cve_id in report]
            assert (sorted(found["left_out"]), found["left_out_count"], found["malformed"]) == (mentioned, len(mentioned), []), name
            for content_type in ("application/json", "application/json; charset=utf-8", "text/plain"):
                as_body = await campus.http.post(PATH, content=report.encode(), headers=bearer | {"Content-Type": content_type})
                assert (as_body.status_code, as_body.json()) == (200, found), (name, content_type)
        found = (await campus.call("cve_verdicts", key=key, report=TEXT, cve_ids=["RHSA-2021:5137", ALSO])).data
        assert [one["cve_id"] for one in found["verdicts"]] == [FOUND, ALSO]
        assert (found["not_looked_up"], found["left_out"], found["malformed"]) == (["RHSA-2021:5137", GHSA], [], [])

        refused = await campus.call(
            "cve_verdicts", key=key, report=json.dumps({"matches": [grype_match(LONE)], "ignoredMatches": [SETTLED]})
        )
        assert (refused.status, refused.code) == (422, "no_cve_ids")
        assert LONE in refused.data["detail"]
        assert "2 that the report marks as no finding" in refused.data["detail"]
        listed = await campus.http.post(PATH, json=[grype_match(GHSA, FOUND)], headers=bearer)
        assert [one["cve_id"] for one in listed.json()["verdicts"]] == [FOUND], "a report may be a list"
        inside = json.dumps({"report": {"findings": [FOUND]}, "x": 1})
        assert (await campus.http.post(PATH, content=inside, headers=bearer | {"Content-Type": "application/json"})).status_code == 422
        as_csv = (await campus.http.post(PATH, json=GRYPE, headers=bearer | {"Accept": "text/csv"})).text
        assert f",{LONE},," in as_csv
        assert f"{LONE}{',' * 12}not_looked_up" in as_csv
        as_markdown = (await campus.http.post(PATH, json=GRYPE, headers=bearer | {"Accept": "text/markdown"})).text
        assert f"- {SETTLED}: left out" in as_markdown
        page = await campus.http.post("/cve/report", data={"report": json.dumps(GRYPE)}, headers=bearer | {"Accept": "text/html"})
        assert "Not looked up" in page.text or page.status_code != 200
