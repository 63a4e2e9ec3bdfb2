"""GitLab: the reports of its scanners in pipelines, and the findings of its two APIs."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, words
from buildings.cve.reports.paths import match

STATE = State(
    "state",
    words(open="detected confirmed", suppressed="dismissed", fixed="resolved"),
    by=("dismissed_by.name", "dismissedBy.name", "dismissal_reason", "resolved_by.name"),
)
UPGRADE = match("solution", r"(?:to|version) (?:version )?(v?[0-9][^\s,]*?)(?=[.,]?(?:\s|$))")
IN_GRAPHQL = ("data.project.vulnerabilities.nodes", "data.group.vulnerabilities.nodes", "data.vulnerabilities.nodes")


def _findings(at: str | tuple[str, ...], *ids: str, or_else: tuple[str, ...]) -> Items:
    return Items(
        at=at,
        ids=ids,
        or_else=or_else,
        states=(STATE,),
        package=("location.dependency.package.name", "location.vulnerableImage"),
        version="location.dependency.version",
        fixed=UPGRADE,
        place=("location.image", "location.file + location.start_line", "location.hostname + location.path", "location.blobPath"),
    )


FORMS = (
    Form(
        name="GitLab report",
        recognises=either(has("vulnerabilities", "scan"), has("vulnerabilities.identifiers", "version")),
        read=_findings("vulnerabilities", "identifiers.name", or_else=("name", "message", "category", "id")).read,
    ),
    Form(
        name="GitLab findings",
        recognises=has("report_type", "identifiers"),
        read=_findings(".", "identifiers.external_id", "identifiers.name", or_else=("name", "title")).read,
    ),
    Form(
        name="GitLab vulnerabilities of GraphQL",
        recognises=either(*map(has, IN_GRAPHQL)),
        read=_findings(IN_GRAPHQL, "identifiers.name", or_else=("title",)).read,
    ),
)
