"""The table of sales by card, in campus's own database."""

from datetime import datetime

from sqlmodel import BigInteger, Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """Base of the feature's tables."""


class CardSale(Tables, table=True):
    """One sale by card; what it sells is the KeySale with its id. One that ends unpaid is deleted.

    `state`: open, paid, disputed, won (a dispute that had ended the key), refunded, or unclear where Stripe's words do not fit the sale.
    `amount` and `refunded` are millionths of a dollar, as in the ledger. `client` is the network of who buys, until it is paid. `sealed` is
    the key's token, empty for a renewal, under the secret of the browser that buys. `session`, `url` and `intent` are Stripe's; `dispute`
    is the last one that was decided for the seller. `reason` is what the operator should know.
    """

    __tablename__ = "cards_sales"

    id: str = Field(primary_key=True)
    product: str
    renews: str | None = None
    amount: int = Field(sa_type=BigInteger)
    refunded: int = Field(default=0, sa_type=BigInteger)
    livemode: bool
    state: str = Field(index=True)
    client: str | None = None
    sealed: bytes | None = None
    session: str | None = None
    url: str | None = None
    intent: str | None = Field(default=None, index=True)
    dispute: str | None = None
    started_at: datetime = Field(sa_type=UtcDateTime)
    ends_at: datetime = Field(sa_type=UtcDateTime, index=True)
    paid_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    reason: str = ""
