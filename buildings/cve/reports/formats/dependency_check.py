"""OWASP Dependency-Check: its JSON and XML, with what suppression files took out of it, and its CSV."""

from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import Items, either, has, table
from buildings.cve.reports.paths import match


def _vulnerabilities(at: str, up: str = "^", **also: Any) -> Items:
    purls = (f"{up}packages.id", f"{up}packages.package.id", f"{up}identifiers.package.id")
    return Items(
        at=at,
        ids="name",
        package=(*(match(purl, r"^pkg:[^/]+/([^@?]+)") for purl in purls), f"{up}identifiers.identifier.name", f"{up}fileName"),
        version=(*(match(purl, r"@([^?#]+)") for purl in purls), f"{up}evidenceCollected.versionEvidence.value"),
        place=(f"{up}filePath", f"{up}fileName"),
        severity=("severity", "cvssV3.baseSeverity", "unscored"),
        **also,
    )


XML = "analysis.dependencies.dependency.vulnerabilities"

FORMS = (
    Form(
        name="Dependency-Check",
        recognises=either(has("reportSchema", "dependencies"), has("dependencies.evidenceCollected")),
        read=table(
            _vulnerabilities("dependencies.vulnerabilities"),
            _vulnerabilities("dependencies.suppressedVulnerabilities", said="suppressed", by="a suppression file"),
        ),
    ),
    Form(
        name="Dependency-Check",
        syntax="xml",
        recognises=has("analysis.scanInfo"),
        read=table(
            _vulnerabilities(f"{XML}.vulnerability", "^^"),
            _vulnerabilities(f"{XML}.suppressedVulnerability", "^^", said="suppressed", by="a suppression file"),
        ),
    ),
    Form(
        name="Dependency-Check CSV",
        syntax="csv",
        recognises=has_columns("dependencyname", "cve"),
        read=reader_of(replace(ROW, place="dependencypath", severity=("cvssv3baseseverity", "cvssv2severity"))),
    ),
)
