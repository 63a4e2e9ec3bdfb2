"""The tables of what calls take from keys: while they run, for good, and what they answered. Times are Unix seconds, amounts millionths."""

from sqlmodel import BigInteger, Field, Index, SQLModel

from campus.storage import registry


class Tables(SQLModel, registry=registry(), defer_build=True):  # no row is validated
    """Base of the feature's tables."""


class HoldRow(Tables, table=True):
    """What a call that runs has taken from the account of its lineage: `amount`, or a call of the allowance of the `period`, else "".

    Whoever captures or releases it deletes it; after `lease_until` its process is gone, and anybody releases it. `purchase` is its claim.
    """

    __tablename__ = "credits_holds"

    id: str = Field(primary_key=True)
    lineage: str = Field(index=True)
    amount: int = Field(sa_type=BigInteger)
    period: str
    purchase: bytes | None = None
    lease_until: int = Field(sa_type=BigInteger, index=True)


class CallsRow(Tables, table=True):
    """The calls of a tool that were delivered to a lineage on a day in UTC, and their sum; `allowed` are those of the allowance.

    Rows are never deleted: a balance is what events of the key added to it, without these.
    """

    __tablename__ = "credits_calls"

    day: str = Field(primary_key=True)
    lineage: str = Field(primary_key=True, index=True)
    building: str = Field(primary_key=True)
    tool: str = Field(primary_key=True)
    calls: int = Field(sa_type=BigInteger)
    allowed: int = Field(sa_type=BigInteger)
    amount: int = Field(sa_type=BigInteger)


class AnswerRow(Tables, table=True):
    """A call with an Idempotency-Key: `purchase` is a digest of the key and the lineage, `request` of what it asked for.

    While the call runs there is no `answer`; then there is, encrypted under the Idempotency-Key, until `kept_until`; empty if it is too
    large to be kept. `size` is what it counts of what is kept for the lineage.
    """

    __tablename__ = "credits_answers"
    __table_args__ = (Index(None, "lineage", "size"),)

    purchase: bytes = Field(primary_key=True)
    lineage: str
    size: int = 0
    request: bytes
    answer: bytes | None = None
    kept_until: int = Field(sa_type=BigInteger, index=True)
