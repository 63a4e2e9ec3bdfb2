"""Amazon: Inspector v2, Security Hub (ASFF) and the scans of images in ECR."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, has, table, total, words
from buildings.cve.reports.paths import match

PACKAGES = "packageVulnerabilityDetails.vulnerablePackages"


def _inspector(at: str) -> Items:
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
        severity="severity",
    )


def _security_hub(at: str) -> Items:
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
        syntax="json",
        recognises=lambda value: has("findings.findingArn")(value) or has("detail.findingArn")(value),
        read=table(_inspector("findings"), _inspector("detail")),
    ),
    Form(name="Amazon Inspector", syntax="json", recognises=has("findingArn", "awsAccountId"), read=table(_inspector("."))),
    Form(name="AWS Security Hub", syntax="json", recognises=has("SchemaVersion", "ProductArn"), read=table(_security_hub("."))),
    Form(
        name="AWS Security Hub",
        syntax="json",
        recognises=lambda value: any(
            has(path)(value) for path in ("Findings.SchemaVersion", "findings.SchemaVersion", "detail.findings.SchemaVersion")
        ),
        read=table(*(_security_hub(at) for at in ("Findings", "findings", "detail.findings"))),
    ),
    Form(
        name="AWS ECR",
        syntax="json",
        recognises=has("imageScanFindings"),
        read=table(
            Items(
                at="imageScanFindings.findings",
                ids="name",
                package="attributes.[key=package_name].value",
                version="attributes.[key=package_version].value",
                place="^^repositoryName + ^^imageId.imageTag",
                severity="severity",
            ),
            _inspector("imageScanFindings.enhancedFindings"),
        ),
        claimed=total("imageScanFindings.findingSeverityCounts.{}"),
    ),
)
