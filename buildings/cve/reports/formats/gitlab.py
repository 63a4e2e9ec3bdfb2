"""GitLab: the reports of its scanners in pipelines, and the findings of its two APIs."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, table, words
from buildings.cve.reports.paths import match

STATE = State(
    "state",
    words(open="detected confirmed", suppressed="dismissed", fixed="resolved"),
    by=("dismissed_by.name", "dismissedBy.name", "dismissal_reason", "resolved_by.name"),
)
UPGRADE = match("solution", r"(?:to|version) (?:version )?(v?[0-9][^\s,]*?)(?=[.,]?(?:\s|$))")
PACKAGE = "location.dependency.package.name"
PLACE = ("location.image", "location.file + location.start_line", "location.hostname + location.path", "location.blobPath")
IN_GRAPHQL = ("data.project.vulnerabilities.nodes", "data.group.vulnerabilities.nodes", "data.vulnerabilities.nodes")

FORMS = (
    Form(
        name="GitLab report",
        recognises=either(has("vulnerabilities", "scan"), has("vulnerabilities.identifiers", "version")),
        read=Items(
            at="vulnerabilities",
            ids="identifiers.name",
            or_else=("name", "message", "category", "id"),
            states=(STATE,),
            package=PACKAGE,
            version="location.dependency.version",
            fixed=UPGRADE,
            place=PLACE,
        ).read,
    ),
    Form(
        name="GitLab findings",
        recognises=has("report_type", "identifiers"),
        read=Items(
            at=".",
            ids=("identifiers.external_id", "identifiers.name"),
            or_else=("name", "title"),
            states=(STATE,),
            package=PACKAGE,
            version="location.dependency.version",
            fixed=UPGRADE,
            place=PLACE,
        ).read,
    ),
    Form(
        name="GitLab vulnerabilities of GraphQL",
        recognises=either(*map(has, IN_GRAPHQL)),
        read=table(
            *(
                Items(
                    at=at,
                    ids="identifiers.name",
                    or_else="title",
                    states=(STATE,),
                    package=("location.dependency.package.name", "location.vulnerableImage"),
                    version="location.dependency.version",
                    fixed=UPGRADE,
                    place=("location.image", "location.file", "location.blobPath"),
                )
                for at in IN_GRAPHQL
            )
        ),
    ),
)
