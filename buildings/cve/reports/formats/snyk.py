"""Snyk: `snyk test --json` of one or many projects and of images, and the issues of its two APIs."""

from typing import Any

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, table, words


def _vulnerabilities(at: str, **also: Any) -> Items:
    return Items(
        at=at,
        ids=("id", "identifiers.CVE", "identifiers.GHSA"),
        package=("packageName", "moduleName", "name"),
        version="version",
        fixed=("fixedIn", "nearestFixedInVersion"),
        place=("^displayTargetFile + ^path", "^projectName", "^^displayTargetFile + ^^path", "^^projectName"),
        severity=("severityWithCritical", "severity"),
        **also,
    )


def _set_aside(project: str) -> tuple[Items, ...]:
    return (
        _vulnerabilities(f"{project}vulnerabilities"),
        _vulnerabilities(f"{project}filtered.ignore", said="suppressed", by="filtered.ignore"),
        _vulnerabilities(f"{project}filtered.patch", said="fixed", by="filtered.patch"),
    )


FORMS = (
    Form(
        name="Snyk",
        recognises=either(has("vulnerabilities", "packageManager"), has("vulnerabilities", "dependencyCount")),
        read=table(*_set_aside(""), *_set_aside("applications.")),
    ),
    Form(
        name="Snyk's issues",
        recognises=either(has("data.attributes.effective_severity_level"), has("jsonapi", "data.attributes.problems")),
        read=Items(
            at="data",
            ids=("attributes.key", "attributes.problems.id"),
            named_in="attributes.problems.url",
            states=(
                State("attributes.ignored", words(suppressed="true")),
                State("attributes.status", words(open="open", fixed="resolved")),
            ),
            package="attributes.coordinates.representations.dependency.package_name",
            version="attributes.coordinates.representations.dependency.package_version",
            place="attributes.coordinates.representations.sourceLocation.file",
            severity="attributes.effective_severity_level",
        ).read,
    ),
    Form(
        name="Snyk's aggregated issues",
        recognises=has("issues.issueData"),
        read=Items(
            at="issues",
            ids=("id", "issueData.identifiers.CVE", "issueData.identifiers.GHSA"),
            states=(State("isIgnored", words(suppressed="true"), by="ignoreReasons.reason"), State("isPatched", words(fixed="true"))),
            package="pkgName",
            version="pkgVersions",
            fixed="fixInfo.fixedIn",
            severity="issueData.severity",
        ).read,
    ),
)
