"""OWASP Dependency-Check: its JSON, with what suppression files took out of it."""

from typing import Any

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, has, table
from buildings.cve.reports.paths import match

PURL = "^packages.id"


def _vulnerabilities(at: str, **also: Any) -> Items:
    return Items(
        at=at,
        ids="name",
        package=(match(PURL, r"^pkg:[^/]+/([^@?]+)"), "^fileName"),
        version=(match(PURL, r"@([^?#]+)"), "^evidenceCollected.versionEvidence.value"),
        place=("^filePath", "^fileName"),
        severity=("severity", "unscored"),
        **also,
    )


FORMS = (
    Form(
        name="Dependency-Check",
        syntax="json",
        recognises=lambda value: has("reportSchema", "dependencies")(value) or has("dependencies.evidenceCollected")(value),
        read=table(
            _vulnerabilities("dependencies.vulnerabilities"),
            _vulnerabilities("dependencies.suppressedVulnerabilities", said="suppressed", by="a suppression file"),
        ),
    ),
)
