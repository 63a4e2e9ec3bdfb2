"""Black Duck: the vulnerable components of a project version, as its API lists them."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, has, table, total, words

REMEDIATION = words(
    open="new needs_review remediation_required affected under_investigation reopened",
    fixed="remediation_complete patched mitigated remediated",
    suppressed="ignored duplicate",
    not_affected="not_affected",
)
OF_COMPONENT = "vulnerabilityWithRemediation"


def _components(at: str) -> Items:
    return Items(
        at=at,
        ids=(f"{OF_COMPONENT}.vulnerabilityName", "vulnerability.vulnerabilityId"),
        named_in=(
            *(f"{OF_COMPONENT}.relatedVulnerability", "vulnerability.relatedVulnerability", "vulnerability.relatedVulnerabilities"),
            *("vulnerability.cveId", f"{OF_COMPONENT}.cveId"),
        ),
        states=(
            State(f"{OF_COMPONENT}.remediationStatus", REMEDIATION, by=f"{OF_COMPONENT}.remediationUpdatedBy"),
            State("vulnerability.remediationStatus", REMEDIATION, by="vulnerability.remediationUpdatedBy"),
            State("ignored", words(suppressed="true")),
        ),
        package="componentName",
        version="componentVersionName",
        place="componentVersionOriginId",
        severity=(f"{OF_COMPONENT}.severity", "vulnerability.severity"),
    )


FORMS = (
    Form(
        name="Black Duck",
        syntax="json",
        recognises=lambda value: has(f"items.{OF_COMPONENT}")(value) or has("items.vulnerability", "items.componentName")(value),
        read=table(_components("items")),
        claimed=total("totalCount"),
    ),
    Form(name="Black Duck", syntax="json", recognises=has("componentName", OF_COMPONENT), read=table(_components("."))),
)
