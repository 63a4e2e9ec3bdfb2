"""GitHub: the alerts of Dependabot (REST and GraphQL), of code scanning and of secret scanning."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, words

ALERT = words(open="open", fixed="fixed resolved", suppressed="dismissed auto_dismissed")
BY_REST = State("state", ALERT, by=("dismissed_by.login", "dismissed_reason", "resolved_by.login", "resolution"))
IN_GRAPHQL = (
    "",
    "repository.",
    "search.nodes.",
    "search.edges.node.",
    "organization.repositories.nodes.",
    "viewer.repositories.nodes.",
    "node.",
)


FORMS = (
    Form(
        name="Dependabot alerts",
        recognises=either(has("security_advisory", "security_vulnerability"), has("dependency", "security_advisory")),
        read=Items(
            at=".",
            ids=("security_advisory.ghsa_id", "security_advisory.cve_id", "security_advisory.identifiers.value"),
            states=(BY_REST,),
            package=("dependency.package.name", "security_vulnerability.package.name"),
            fixed="security_vulnerability.first_patched_version.identifier",
            place="repository.full_name + dependency.manifest_path",
            severity=("security_vulnerability.severity", "security_advisory.severity"),
        ).read,
    ),
    Form(
        name="Dependabot alerts of GraphQL",
        recognises=either(*(has(f"data.{inside}vulnerabilityAlerts") for inside in IN_GRAPHQL)),
        read=Items(
            at=tuple(f"data.{inside}vulnerabilityAlerts.{each}" for inside in IN_GRAPHQL for each in ("nodes", "edges.node")),
            ids=(
                *("securityAdvisory.ghsaId", "securityVulnerability.advisory.ghsaId", "securityAdvisory.identifiers.value"),
                "securityVulnerability.advisory.identifiers.value",
            ),
            states=(
                State("state", ALERT, by=("dismisser.login", "dismissReason")),
                State("dismissedAt", words(suppressed="*"), by=("dismisser.login", "dismissReason", "dismissedAt")),
                State("fixedAt", words(fixed="*")),
            ),
            package="securityVulnerability.package.name",
            version="vulnerableRequirements",
            fixed="securityVulnerability.firstPatchedVersion.identifier",
            place="^^nameWithOwner + vulnerableManifestPath",
            severity=("securityVulnerability.severity", "securityAdvisory.severity"),
        ).read,
    ),
    Form(
        name="Code scanning alerts",
        recognises=either(has("rule", "most_recent_instance"), has("rule", "tool", "number")),
        read=Items(
            at=".",
            ids="rule.id",
            named_in=("rule.name", "rule.description", "most_recent_instance.message.text"),
            states=(BY_REST,),
            place="most_recent_instance.location.path + most_recent_instance.location.start_line",
            severity=("rule.security_severity_level", "rule.severity"),
        ).read,
    ),
    Form(
        name="Secret scanning alerts",
        recognises=has("secret_type", "number"),
        read=Items(at=".", ids="secret_type", states=(BY_REST,), place=("first_location_detected.path", "html_url")).read,
    ),
)
