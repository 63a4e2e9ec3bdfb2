"""Dependency-Track: exported findings, and those of its API."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, words

ALIASES = ("ghsaId", "osvId", "snykId", "sonatypeId", "gsdId", "vulnDbId")


def _findings(at: str) -> Items:
    return Items(
        at=at,
        ids=("vulnerability.vulnId", *(f"vulnerability.aliases.{name}" for name in ALIASES)),
        named_in="vulnerability.aliases.cveId",
        states=(
            State(
                "analysis.state",
                words(open="exploitable in_triage not_set", fixed="resolved", not_affected="not_affected false_positive"),
                by=("analysis.justification", "analysis.detail"),
            ),
            State("analysis.isSuppressed", words(suppressed="true")),
        ),
        package="component.group + component.name",
        version="component.version",
        fixed=("vulnerability.patchedVersions", "component.fixedVersion"),
        place=("component.projectName + component.projectVersion", "^project.name + ^project.version"),
        severity="vulnerability.severity",
    )


FORMS = (
    Form(
        name="Dependency-Track",
        recognises=either(has("meta", "project", "version"), has("findings.vulnerability", "findings.component")),
        read=_findings("findings").read,
    ),
    Form(name="Findings of Dependency-Track", recognises=has("component", "vulnerability", "matrix"), read=_findings(".").read),
)
