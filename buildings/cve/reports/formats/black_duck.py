"""Black Duck: the security report and the binary analysis in CSV. Its API's JSON has its own form."""

from dataclasses import replace

from buildings.cve.reports.findings import Form
from buildings.cve.reports.formats.any_csv import ROW, has_columns, reader_of
from buildings.cve.reports.items import State

STATUSES = State(
    "remediationstatus",
    dict.fromkeys(("new", "needs_review", "under_review", "remediation_required", "affected"), "open")
    | dict.fromkeys(("remediation_complete", "mitigated", "patched"), "fixed")
    | dict.fromkeys(("ignored", "duplicate"), "suppressed")
    | {"not_affected": "not_affected"},
)
REPORT = replace(
    ROW,
    scheme="BLACKDUCK",
    states=(STATUSES,),
    package=("componentoriginid", "channelversionoriginid", "componentname", "projectname"),
    version=("componentoriginversionname", "channelversionoriginname", "componentversionname", "version"),
    place=("projectpath", "usedby", "url"),
    severity=("securityrisk", "basescore"),
)
BINARY = replace(ROW, states=(), fixed="latestversion", place=("objectfullpath", "object"), severity=("cvss3", "cvss"))

FORMS = (
    Form(
        name="Black Duck CSV",
        syntax="csv",
        recognises=has_columns("vulnerabilityid", "remediationstatus"),
        read=reader_of(REPORT),
    ),
    Form(name="Black Duck Binary Analysis CSV", syntax="csv", recognises=has_columns("cve", "objectsha1"), read=reader_of(BINARY)),
)
