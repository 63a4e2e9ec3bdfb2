"""The table of the audit log, in campus's own database."""

from datetime import datetime

from sqlmodel import BigInteger, Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """Base of the audit log's tables."""


class AuditRow(Tables, table=True):
    """A call, or an act of the operator. `who` is a key's id, the address of a payer, `operator`, or None for a caller without a key.

    `outcome` is ok, tool_error for a result that is an error, or the code of the problem. `amount` is what was paid, in millionths of a
    US dollar. `request_id` is that of the log and of the response. `id` is unique, and grows within one process.
    """

    __tablename__ = "audit_log"

    id: str = Field(primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    who: str | None
    frame: str | None
    building: str
    tool: str
    outcome: str
    amount: int | None = Field(sa_type=BigInteger)
    request_id: str | None
