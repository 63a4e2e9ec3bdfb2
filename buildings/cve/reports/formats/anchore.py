"""Anchore: the vulnerabilities of Engine, Enterprise and `anchorectl`."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, has, table
from buildings.cve.reports.paths import match

ANY = r"^(?!None$)(.+)$"
"""It writes `None` for what it does not know."""


def _vulnerabilities(at: str) -> Items:
    return Items(
        at=at,
        ids=("vuln", "nvd_data.id", "nvdData.id"),
        package=("package_name", "packageName", "package"),
        version=("package_version", "packageVersion"),
        fixed=match("fix", ANY),
        place=(match("package_path", ANY), match("packagePath", ANY), "^imageDigest"),
        severity="severity",
    )


FORMS = (
    Form(
        name="Anchore",
        syntax="json",
        recognises=lambda value: has("vulnerabilities.vuln")(value) or has("imageDigest", "vulnerability_type")(value),
        read=table(_vulnerabilities("vulnerabilities")),
    ),
    Form(name="anchorectl", syntax="json", recognises=has("vuln", "packageName"), read=table(_vulnerabilities("."))),
    Form(
        name="Anchore Enterprise",
        syntax="json",
        recognises=has("securityEvaluation", "metadata"),
        read=table(
            Items(
                at="securityEvaluation",
                ids=("vulnerabilityId", "cves"),
                package="package",
                fixed=match("fixAvailable", ANY),
                place="^metadata.repository + ^metadata.tag + path",
                severity="severity",
            )
        ),
    ),
)
