"""[audit_log] of campus.toml, and `campus audit-log`."""

from pydantic import Field

from campus.feature import Command, Feature, Settings


class AuditLogTable(Settings):
    """[audit_log]: notes who called which tool, how that ended and what was paid; without the table only changes of keys are noted."""

    days: int = Field(default=90, ge=1, le=3_660)
    """How many days an entry is kept."""


feature = Feature(
    "campus.features.audit_log.step:building",
    settings=AuditLogTable,
    tables="campus.features.audit_log.tables:Tables",
    commands=[
        Command(
            "audit-log",
            "campus.features.audit_log.command:audit_log",
            "Write the audit log to standard output, the oldest entry first; a running server's entries appear within 10 seconds.\n\n"
            "Changes of keys are always in it, calls and acts of the operator's pages while campus.toml has [audit_log].",
        )
    ],
)
