"""JFrog Xray: its reports, the summary of artifacts, scans of binaries, and the JSON of `jf audit` and `jf scan`."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, total, words
from buildings.cve.reports.paths import match

NAME = r"^(?:[a-z]+://)?(.+):[^:]+$"
VERSION = r":([^:]+)$"
APPLICABLE = State(
    "applicable", words(open="applicable undetermined not_covered missing_context rescan_required", not_affected="not_applicable")
)

FORMS = (
    Form(
        name="JFrog Xray report",
        recognises=either(has("rows.vulnerable_component"), has("total_rows", "rows")),
        read=Items(
            at="rows",
            ids=("issue_id", "cves.cve"),
            or_else="summary",
            package=(match("vulnerable_component", NAME), "vulnerable_component"),
            version=match("vulnerable_component", VERSION),
            fixed="fixed_versions",
            place=("path", "impacted_artifact"),
        ).read,
        claimed=total("total_rows"),
    ),
    Form(
        name="JFrog Xray's vulnerabilities",
        recognises=either(has("data.source_comp_id"), has("total_count", "data")),
        read=Items(
            at="data",
            ids=("id", "component_versions.more_details.cves.cve"),
            or_else="summary",
            package=("component", "source_id"),
            version=match("source_comp_id", r":([0-9]+:[^:]+|[^:/]+)$"),
            fixed="component_versions.fixed_versions",
            place="source_comp_id",
        ).read,
        claimed=total("total_count"),
    ),
    Form(
        name="JFrog Xray's summary of artifacts",
        recognises=has("artifacts.general", "artifacts.issues"),
        read=Items(
            at="artifacts.issues",
            ids=("issue_id", "cves.cve"),
            or_else="summary",
            package=("components.component_id", match("impact_path", r"/([^/]+?)/?$")),
            fixed="components.fixed_versions",
            place=("^general.path", "^general.name"),
        ).read,
    ),
    Form(
        name="JFrog Xray scan",
        recognises=either(has("scan_id", "component_id"), has("vulnerabilities.components", "vulnerabilities.issue_id")),
        read=Items(
            at="vulnerabilities.components.{}",
            ids=("^^issue_id", "^^cves.cve"),
            or_else="summary",
            package=(match("~", NAME), match("~", r"^[a-z0-9]+://(.+)$")),
            version=match("~", r"^[a-z]+://.+:([^:]+)$"),
            fixed="fixed_versions",
            place=("impact_paths.full_path", "impact_paths.component_id"),
            severity="^^severity",
        ).read,
    ),
    Form(
        name="JFrog CLI",
        recognises=either(has("vulnerabilities.impactedPackageName"), has("securityViolations.impactedPackageName")),
        read=Items(
            at=("vulnerabilities", "securityViolations"),
            ids=("issueId", "cves.id"),
            or_else="summary",
            states=(APPLICABLE,),
            package="impactedPackageName",
            version="impactedPackageVersion",
            fixed="fixedVersions",
            place="impactPaths.location.file",
        ).read,
    ),
)
