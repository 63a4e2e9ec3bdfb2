"""Prisma Cloud (Twistlock): `twistcli` and the scans of its API."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, has, table, total
from buildings.cve.reports.paths import match


def _vulnerabilities(at: str) -> Items:
    return Items(
        at=at,
        ids=("id", "cve"),
        package="packageName",
        version="packageVersion",
        fixed=("fixedVersion", match("status", r"fixed in (.+)"), match("fixStatus", r"fixed in (.+)")),
        place=("^name + packagePath", "^repoTag.repo + ^repoTag.tag", "^hostname", "^id"),
        severity="severity",
    )


COMPLIANCE = Items(at="results.compliances", ids="id", or_else="title", place=("^name", "^id"), severity="severity")

FORMS = (
    Form(
        name="Prisma Cloud",
        syntax="json",
        recognises=lambda value: any(has(f"results.{name}")(value) for name in ("vulnerabilityDistribution", "complianceDistribution")),
        read=table(_vulnerabilities("results.vulnerabilities"), COMPLIANCE),
        claimed=total("results.vulnerabilityDistribution.total", "results.complianceDistribution.total"),
    ),
    Form(
        name="Prisma Cloud's scans",
        syntax="json",
        recognises=lambda value: (
            has("vulnerabilities.packageName", "vulnerabilities.cve")(value) or has("vulnerabilitiesCount", "_id")(value)
        ),
        read=table(_vulnerabilities("vulnerabilities")),
    ),
)
