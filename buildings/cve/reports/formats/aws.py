"""Amazon: Inspector v2, Security Hub (ASFF) and the scans of images in ECR."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, table, total, words
from buildings.cve.reports.paths import match

PACKAGES = "packageVulnerabilityDetails.vulnerablePackages"

LISTS = ("Findings", "findings", "detail.findings")


def _inspector(*at: str) -> Items:
    return Items(
        at=at,
        ids="packageVulnerabilityDetails.vulnerabilityId",
        named_in=("packageVulnerabilityDetails.relatedVulnerabilities", "title"),
        or_else=("codeVulnerabilityDetails.detectorId", "title", "findingArn"),
        states=(State("status", words(open="active", fixed="closed", suppressed="suppressed")),),
        package=f"{PACKAGES}.name",
        version=f"{PACKAGES}.version",
        fixed=match(f"{PACKAGES}.fixedInVersion", r"^(?!NotAvailable$)(.+)$"),
        place=f"resources.id + {PACKAGES}.filePath",
    )


def _security_hub(*at: str) -> Items:
    return Items(
        at=at,
        ids="Vulnerabilities.Id",
        named_in=("Vulnerabilities.RelatedVulnerabilities", "Title"),
        or_else=("Compliance.SecurityControlId", "GeneratorId", "Title", "Id"),
        states=(
            State("Workflow.Status", words(open="new notified", fixed="resolved", suppressed="suppressed"), by="Note.UpdatedBy"),
            State("RecordState", words(open="active", fixed="archived")),
            State("Compliance.Status", words(open="failed warning not_available", not_affected="passed")),
        ),
        package="Vulnerabilities.VulnerablePackages.Name",
        version="Vulnerabilities.VulnerablePackages.Version",
        fixed="Vulnerabilities.VulnerablePackages.FixedInVersion",
        place="Resources.Id",
        severity=("Severity.Label", "FindingProviderFields.Severity.Label"),
    )


FORMS = (
    Form(
        name="Amazon Inspector",
        recognises=either(has("findings.findingArn"), has("detail.findingArn")),
        read=_inspector("findings", "detail").read,
    ),
    Form(name="Amazon Inspector", recognises=has("findingArn", "awsAccountId"), read=_inspector(".").read),
    Form(name="AWS Security Hub", recognises=has("SchemaVersion", "ProductArn"), read=_security_hub(".").read),
    Form(name="AWS Security Hub", recognises=either(*(has(f"{at}.SchemaVersion") for at in LISTS)), read=_security_hub(*LISTS).read),
    Form(
        name="AWS ECR",
        recognises=has("imageScanFindings"),
        read=table(
            Items(
                at="imageScanFindings.findings",
                ids="name",
                package="attributes.[key=package_name].value",
                version="attributes.[key=package_version].value",
                place="^^repositoryName + ^^imageId.imageTag",
            ),
            _inspector("imageScanFindings.enhancedFindings"),
        ),
        claimed=total("imageScanFindings.findingSeverityCounts.{}"),
    ),
)
