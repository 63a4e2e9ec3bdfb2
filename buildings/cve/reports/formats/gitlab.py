"""GitLab: the reports of its scanners in pipelines, and the findings of its two APIs."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, has, table, words
from buildings.cve.reports.paths import match

STATE = State(
    "state",
    words(open="detected confirmed", suppressed="dismissed", fixed="resolved"),
    by=("dismissed_by.name", "dismissedBy.name", "dismissal_reason", "resolved_by.name"),
)
UPGRADE = match("solution", r"(?:to|version) (?:version )?(v?[0-9][^\s,]*?)(?=[.,]?(?:\s|$))")
PACKAGE = "location.dependency.package.name"
PLACE = ("location.image", "location.file + location.start_line", "location.hostname + location.path", "location.blobPath")

FORMS = (
    Form(
        name="GitLab report",
        syntax="json",
        recognises=lambda value: has("vulnerabilities", "scan")(value) or has("vulnerabilities.identifiers", "version")(value),
        read=table(
            Items(
                at="vulnerabilities",
                ids="identifiers.name",
                or_else=("name", "message", "category", "id"),
                states=(STATE,),
                package=PACKAGE,
                version="location.dependency.version",
                fixed=UPGRADE,
                place=PLACE,
                severity="severity",
            )
        ),
    ),
    Form(
        name="GitLab findings",
        syntax="json",
        recognises=has("report_type", "identifiers"),
        read=table(
            Items(
                at=".",
                ids=("identifiers.external_id", "identifiers.name"),
                or_else=("name", "title"),
                states=(STATE,),
                package=PACKAGE,
                version="location.dependency.version",
                fixed=UPGRADE,
                place=PLACE,
                severity="severity",
            )
        ),
    ),
    Form(
        name="GitLab vulnerabilities of GraphQL",
        syntax="json",
        recognises=lambda value: any(has(f"data.{inside}vulnerabilities.nodes")(value) for inside in ("project.", "group.", "")),
        read=table(
            *(
                Items(
                    at=f"data.{inside}vulnerabilities.nodes",
                    ids="identifiers.name",
                    or_else="title",
                    states=(STATE,),
                    package=("location.dependency.package.name", "location.vulnerableImage"),
                    version="location.dependency.version",
                    fixed=UPGRADE,
                    place=("location.image", "location.file", "location.blobPath"),
                    severity="severity",
                )
                for inside in ("project.", "group.", "")
            )
        ),
    ),
)
