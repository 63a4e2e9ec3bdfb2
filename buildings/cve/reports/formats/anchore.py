"""Anchore: the vulnerabilities of Engine, Enterprise and `anchorectl`."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, either, has
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
    )


FORMS = (
    Form(
        name="Anchore",
        recognises=either(has("vulnerabilities.vuln"), has("imageDigest", "vulnerability_type")),
        read=_vulnerabilities("vulnerabilities").read,
    ),
    Form(name="anchorectl", recognises=has("vuln", "packageName"), read=_vulnerabilities(".").read),
    Form(
        name="Anchore Enterprise",
        recognises=has("securityEvaluation", "metadata"),
        read=Items(
            at="securityEvaluation",
            ids=("vulnerabilityId", "cves"),
            package="package",
            fixed=match("fixAvailable", ANY),
            place="^metadata.repository + ^metadata.tag + path",
        ).read,
    ),
)
