"""Statements on vulnerabilities: the last of each author counts, words that no list knows stay unknown, contradictions are no answer."""

import json
from typing import Any

import pytest

from buildings.cve.reports.findings import Finding
from buildings.cve.reports.reader import read_report
from buildings.cve.reports.vex import package_of

LOG4J = "CVE-2021-44228"
PRODUCT = "pkg:maven/org.example/shop@1.2?type=jar"


def findings_of(document: Any) -> list[Finding]:
    report = read_report(json.dumps(document))
    assert not report.unreadable
    return list(report.findings)


def openvex(*statements: dict[str, Any], author: str = "Example") -> dict[str, Any]:
    given = [{"vulnerability": {"name": LOG4J}, "products": [{"@id": PRODUCT}], **statement} for statement in statements]
    return {"@context": "https://openvex.dev/ns/v0.2.0", "author": author, "timestamp": "2026-01-02T00:00:00Z", "statements": given}


@pytest.mark.parametrize(
    ("statements", "state"),
    [
        ([{"status": "affected"}, {"status": "fixed"}], "fixed"),
        ([{"status": "fixed"}, {"status": "affected"}], "affected"),
        ([{"status": "fixed", "timestamp": "2026-02-01T00:00:00Z"}, {"status": "affected"}], "fixed"),
        (
            [{"status": "fixed", "timestamp": "2026-01-01T00:30:00+02:00"}, {"status": "affected", "timestamp": "2025-12-31T23:00Z"}],
            "affected",
        ),
        ([{"status": "fixed", "timestamp": "soon"}, {"status": "affected", "timestamp": "2026-01-01"}], "affected"),
    ],
)
def test_the_last_statement_of_an_author_on_a_product_counts(statements: list[dict[str, Any]], state: str) -> None:
    (finding,) = findings_of(openvex(*statements))
    assert (finding.ids, finding.state, finding.package, finding.version) == ((LOG4J,), state, "org.example:shop", "1.2")


def test_statements_of_other_authors_and_on_other_products_stand_beside_each_other() -> None:
    other = {"status": "not_affected", "products": [{"@id": "pkg:npm/shop@2"}]}
    found = findings_of([openvex({"status": "affected"}, other), openvex({"status": "NOT_AFFECTED"}, author="Someone else")])
    assert [(each.said, each.by, each.package) for each in found] == [
        ("open", "", "org.example:shop"),
        ("not_affected", "Example", "shop"),
        ("not_affected", "Someone else", "org.example:shop"),
    ]


def test_a_status_that_no_version_of_openvex_knows_is_unknown_and_a_component_is_the_package() -> None:
    (finding,) = findings_of(
        openvex({"status": "probably_fine", "products": [{"@id": PRODUCT, "subcomponents": [{"@id": "pkg:npm/a@1"}]}]})
    )
    assert (finding.said, finding.state, finding.package, finding.place) == ("unknown", "probably_fine", "a", PRODUCT)


@pytest.mark.parametrize(
    ("status", "said", "state"),
    [
        ({"known_affected": ["P"]}, "open", "known_affected"),
        ({"first_affected": ["P"], "known_affected": ["P"]}, "open", "first_affected, known_affected"),
        ({"known_not_affected": ["P"]}, "not_affected", "known_not_affected"),
        ({"recommended": ["P"], "fixed": ["P"]}, "fixed", "recommended, fixed"),
        ({"known_affected": ["P"], "fixed": ["P"]}, "unknown", "known_affected, fixed"),
        ({"unknown": ["P"]}, "unknown", "unknown"),
        ({}, "unknown", "no product_status"),
    ],
)
def test_csaf_says_of_each_product_what_its_groups_say(status: dict[str, list[str]], said: str, state: str) -> None:
    product = {"product_id": "P", "name": "Shop 1.2"}
    vulnerability = {
        "cve": LOG4J,
        "product_status": status,
        "remediations": [{"category": "vendor_fix", "details": "1.3", "product_ids": ["P"]}],
    }
    document = {
        "document": {"csaf_version": "2.0", "publisher": {"name": "Example"}, "aggregate_severity": {"text": "Important"}},
        "product_tree": {
            "branches": [
                {"category": "vendor", "name": "Example", "branches": [{"category": "product_version", "name": "1.2", "product": product}]}
            ]
        },
        "vulnerabilities": [vulnerability],
    }
    (finding,) = findings_of(document)
    assert (finding.said, finding.state, finding.severity) == (said, state, "Important")
    if status:
        assert (finding.package, finding.version, finding.fixed) == ("Shop 1.2", "1.2", "1.3")
    assert finding.by == ("Example" if said in ("fixed", "not_affected") else "")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("exploitable", "open"),
        ("In Triage", "open"),
        ("RESOLVED", "fixed"),
        ("resolved_with_pedigree", "fixed"),
        ("not_affected", "not_affected"),
        ("false_positive", "not_affected"),
        ("deferred", "unknown"),
        (None, "open"),
    ],
)
@pytest.mark.parametrize("form", ["json", "xml"])
def test_cyclonedx_says_what_its_analysis_says(state: str | None, said: str, form: str) -> None:
    if form == "json":
        vulnerability = {"id": LOG4J, "affects": [{"ref": "urn:cdx:f08a6ccd-4dce-4759-bd84-c626675d60a7/1#pkg:npm/shop@1.2"}]}
        sent = json.dumps(
            {"bomFormat": "CycloneDX", "vulnerabilities": [vulnerability | ({"analysis": {"state": state}} if state else {})]}
        )
    else:
        analysis = f"<analysis><state>{state}</state></analysis>" if state else ""
        sent = (
            '<bom xmlns="http://cyclonedx.org/schema/bom/1.6"><components><component bom-ref="c">'
            "<name>shop</name><version>1.2</version></component>"
            f"</components><vulnerabilities><vulnerability><id>{LOG4J}</id>{analysis}<affects><target><ref>c</ref></target></affects>"
            "</vulnerability></vulnerabilities></bom>"
        )
    (finding,) = read_report(sent).findings
    assert (finding.ids, finding.said, finding.state, finding.package, finding.version) == ((LOG4J,), said, state or "", "shop", "1.2")


def test_spdx_3_reads_relationships_and_the_later_one_counts() -> None:
    def relation(kind: str, at: str) -> dict[str, Any]:
        return {"type": "x", "spdxId": f"r{at}", "from": "v", "to": ["p"], "relationshipType": kind, "security_publishedTime": at}

    graph = [
        {"type": "security_Vulnerability", "spdxId": "v", "externalIdentifier": [{"identifier": LOG4J}]},
        {"type": "software_Package", "spdxId": "p", "name": "shop", "software_packageVersion": "1.2"},
        relation("fixedIn", "2026-02-01T00:00:00Z"),
        relation("affects", "2026-01-01T00:00:00Z"),
    ]
    (finding,) = findings_of({"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": graph})
    assert (finding.said, finding.state, finding.package, finding.version) == ("fixed", "fixedIn", "shop", "1.2")


@pytest.mark.parametrize(
    ("purl", "package"),
    [
        ("pkg:npm/%40angular/core@12.0.0?x=1#src/main", ("@angular/core", "12.0.0")),
        ("pkg:deb/debian/tar@1.30%2Bdfsg-6", ("tar", "1.30+dfsg-6")),
        ("pkg:pypi/django", ("django", "")),
        ("log4j-core", ("log4j-core", "")),
        ("pkg:", ("", "")),
    ],
)
def test_a_package_url_names_a_package_and_its_version(purl: str, package: tuple[str, str]) -> None:
    assert package_of(purl) == package
