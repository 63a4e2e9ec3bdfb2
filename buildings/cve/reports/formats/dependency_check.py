"""OWASP Dependency-Check: its JSON and XML, with what suppression files took out, and its CSV."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from buildings.cve.reports.findings import Finding, Form, Unreadable
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import Items, has, table
from buildings.cve.reports.paths import Node, first_text, match, nodes
from buildings.cve.reports.vex import package_of

VULNERABILITY = Items(
    at="vulnerabilities.vulnerability",
    ids="name",
    package="^^package",
    version="^^version",
    place=("^^filePath", "^^fileName"),
    severity=("severity", "cvssV3.baseSeverity", "cvssV2.severity"),
)
KINDS = (
    VULNERABILITY,
    replace(VULNERABILITY, at="vulnerabilities.suppressedVulnerability", said="suppressed", by="a suppression rule"),
)
IDENTIFIERS = ("packages.package.id", "identifiers.package.id", "identifiers.identifier.name", "fileName")


def _read(root: Any) -> Iterator[Finding | Unreadable]:
    for dependency in nodes(Node(root), "analysis.dependencies.dependency"):
        identifier = first_text(dependency, IDENTIFIERS)
        package, version = package_of(identifier.partition(", ")[0])
        named = Node({**dependency.value, "package": package, "version": version}, dependency.name, dependency.within)
        for kind in KINDS:
            yield from kind.findings(named)


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
    Form(
        name="Dependency-Check",
        syntax="xml",
        recognises=has("analysis.scanInfo"),
        read=_read,
    ),
    Form(
        name="Dependency-Check CSV",
        syntax="csv",
        recognises=has_columns("dependencyname", "cve"),
        read=reader_of(replace(ROW, place="dependencypath", severity=("cvssv3baseseverity", "cvssv2severity"))),
    ),
)
