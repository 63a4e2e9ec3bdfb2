"""Black Duck: the vulnerable components of a project version, as its API lists them, and its security reports in CSV."""

from dataclasses import replace

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import Items, State, either, has, total, words

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


REPORT = replace(
    ROW,
    scheme="BLACKDUCK",
    states=(State("remediationstatus", REMEDIATION, by="remediationcomment"),),
    package=("componentoriginid", "channelversionoriginid", "componentname", "projectname"),
    version=("componentoriginversionname", "channelversionoriginname", "componentversionname", "version"),
    place=("projectpath", "usedby", "url"),
    severity=("securityrisk", "basescore"),
)
BINARY = replace(ROW, states=(), fixed="latestversion", place=("objectfullpath", "object"), severity=("cvss3", "cvss"))

FORMS = (
    Form(
        name="Black Duck",
        recognises=either(has(f"items.{OF_COMPONENT}"), has("items.vulnerability", "items.componentName")),
        read=_components("items").read,
        claimed=total("totalCount"),
    ),
    Form(name="Black Duck", recognises=has("componentName", OF_COMPONENT), read=_components(".").read),
    Form(name="Black Duck CSV", syntax="csv", recognises=has_columns("vulnerabilityid", "remediationstatus"), read=reader_of(REPORT)),
    Form(name="Black Duck Binary Analysis", syntax="csv", recognises=has_columns("cve", "objectsha1"), read=reader_of(BINARY)),
)
