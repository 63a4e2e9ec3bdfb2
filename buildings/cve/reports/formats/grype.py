"""Grype: its JSON, with the matches that rules or VEX documents made it ignore."""

from buildings.cve.reports.findings import Form
from buildings.cve.reports.items import Items, State, either, has, table, words


def _matches(at: str, **also: object) -> Items:
    return Items(
        at=at,
        ids=("vulnerability.id", "vulnerability.aliases"),
        named_in="relatedVulnerabilities.id",
        package="artifact.name",
        version="artifact.version",
        fixed="vulnerability.fix.versions",
        place="^source.target + ^source.target.userInput + artifact.locations.path",
        severity="vulnerability.severity",
        **also,  # type: ignore[arg-type]  # the fields of Items
    )


FORMS = (
    Form(
        name="Grype",
        recognises=either(has("matches", "descriptor"), has("matches.vulnerability", "matches.artifact")),
        read=table(
            _matches("matches"),
            _matches(
                "ignoredMatches",
                said="suppressed",
                by="an ignore rule",
                states=(
                    State(
                        "appliedIgnoreRules.vex-status",
                        words(not_affected="not_affected", fixed="fixed", suppressed="*"),
                        by=("appliedIgnoreRules.vex-justification", "appliedIgnoreRules.namespace"),
                    ),
                    State("appliedIgnoreRules.reason", words(suppressed="*"), by="appliedIgnoreRules.reason"),
                ),
            ),
        ),
    ),
)
