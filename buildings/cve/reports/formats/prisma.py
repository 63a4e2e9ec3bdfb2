"""Prisma Cloud (Twistlock): `twistcli` and the scans of its API."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, either, has, table, total
from buildings.cve.reports.paths import match


def _vulnerabilities(at: str) -> Items:
    return Items(
        at=at,
        ids=("id", "cve"),
        package="packageName",
        version="packageVersion",
        fixed=("fixedVersion", match("status", r"fixed in (.+)"), match("fixStatus", r"fixed in (.+)")),
        place=("^name + packagePath", "^repoTag.repo + ^repoTag.tag", "^hostname", "^id"),
    )


COMPLIANCE = Items(at="results.compliances", ids="id", or_else="title", place=("^name", "^id"))

FORMS = (
    Form(
        name="Prisma Cloud",
        recognises=either(has("results.vulnerabilityDistribution"), has("results.complianceDistribution")),
        read=table(_vulnerabilities("results.vulnerabilities"), COMPLIANCE),
        claimed=total("results.vulnerabilityDistribution.total", "results.complianceDistribution.total"),
    ),
    Form(
        name="Prisma Cloud's scans",
        recognises=either(has("vulnerabilities.packageName", "vulnerabilities.cve"), has("vulnerabilitiesCount", "_id")),
        read=_vulnerabilities("vulnerabilities").read,
    ),
)
