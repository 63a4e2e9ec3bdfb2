"""Audits of packages: cargo audit, bundler-audit, Composer, .NET, Retire.js and OSS Index; and of images: Harbor and Google Cloud."""

from typing import Any

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, table, total
from buildings.cve.reports.paths import match

IN_PURL = r"^pkg:[^/]+/([^@?]+)", r"^pkg:[^@]+@([^?]+)"


def _advisories(at: str, **also: Any) -> Items:
    return Items(at=at, ids=("advisoryId", "cve"), named_in="sources.remoteId", package="packageName", **also)


def _occurrences(at: str) -> Items:
    issue = "vulnerability.packageIssue."
    return Items(
        at=at,
        ids="vulnerability.shortDescription",
        named_in="noteName",
        or_else="noteName",
        package=f"{issue}affectedPackage",
        version=(f"{issue}affectedVersion.fullName", f"{issue}affectedVersion.name"),
        fixed=(f"{issue}fixedVersion.fullName", f"{issue}fixedVersion.name"),
        place="resourceUri",
        severity=("vulnerability.effectiveSeverity", "vulnerability.severity"),
        counts=lambda node: "vulnerability" in node.value,
    )


FORMS = (
    Form(
        name="cargo audit",
        recognises=has("vulnerabilities.list", "vulnerabilities.count", "lockfile"),
        read=Items(
            at="vulnerabilities.list",
            ids=("advisory.id", "advisory.aliases"),
            package="package.name",
            version="package.version",
            fixed="versions.patched",
        ).read,
        claimed=total("vulnerabilities.count"),
        note="Warnings of cargo audit, such as of unmaintained packages, are none of its vulnerabilities: they are not read.",
    ),
    Form(
        name="bundler-audit",
        recognises=lambda value: has("results", "created_at")(value) and (not value["results"] or has("results.type")(value)),
        read=Items(
            at="results",
            ids="advisory.id",
            or_else="advisory.title",
            package="gem.name",
            version="gem.version",
            fixed="advisory.patched_versions",
            severity="advisory.criticality",
            counts=lambda node: "advisory" in node.value,
        ).read,
    ),
    Form(
        name="composer audit",
        recognises=either(has("advisories", "abandoned"), has("advisories.{}.advisoryId")),
        read=table(
            _advisories("advisories.{}"),
            _advisories(
                "ignored-advisories.{}", said="suppressed", by="ignored-advisories", states=(State("ignoreReason", {"*": "suppressed"}),)
            ),
        ),
    ),
    Form(
        name="dotnet list package --vulnerable",
        recognises=has("projects", "parameters", "sources"),
        read=Items(
            at=tuple(f"projects.frameworks.{packages}.vulnerabilities" for packages in ("topLevelPackages", "transitivePackages")),
            ids=(),
            named_in="advisoryurl",
            or_else="advisoryurl",
            package="^id",
            version="^resolvedVersion",
            place="^^^path",
        ).read,
    ),
    Form(
        name="Retire.js",
        recognises=has("data.results.component"),
        read=Items(
            at="data.results.vulnerabilities",
            ids=("identifiers.CVE", "identifiers.githubID"),
            or_else=("identifiers.summary", "info"),
            package="^component",
            version="^version",
            place="^^file",
        ).read,
    ),
    Form(
        name="OSS Index",
        recognises=has("coordinates", "vulnerabilities"),
        read=Items(
            at="vulnerabilities",
            ids="id",
            named_in=("cve", "title"),
            package=match("^coordinates", IN_PURL[0]),
            version=match("^coordinates", IN_PURL[1]),
            severity="cvssScore",
        ).read,
    ),
    Form(
        name="Harbor",
        recognises=lambda value: isinstance(value, dict) and any(name.startswith("application/vnd.") for name in value),
        read=Items(
            at="{}.vulnerabilities", ids="id", package="package", version="version", fixed="fix_version", place="artifact_digests"
        ).read,
    ),
    Form(name="Google Artifact Analysis", recognises=has("noteName", "vulnerability"), read=_occurrences(".").read),
    Form(
        name="Google Artifact Analysis of an image",
        recognises=has("package_vulnerability_summary"),
        read=_occurrences("package_vulnerability_summary.vulnerabilities.{}").read,
    ),
)
