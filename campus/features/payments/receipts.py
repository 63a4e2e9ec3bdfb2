"""The receipts of a key: which payments bought it and its renewals, for whoever holds it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlmodel import col, select

from campus.features.payments.networks import CARDS, network_of
from campus.features.payments.tables import LedgerRow, PaymentRow
from campus.keys.tables import KeySale
from campus.pricing import Price
from campus.storage import Storage

ATOMIC_PER_DOLLAR = 1_000_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """One payment for a key; `price` in US dollars, `transaction` the charge on the network. It holds no secret.

    One by card has no `payer` and no `pay_to`: only Stripe knows them.
    """

    payment: str
    action: str
    key_id: str
    product: str
    term: str
    price: str
    credits: str | None  # What its key got to spend on calls, in US dollars.
    network: str
    transaction: str | None
    payer: str | None
    pay_to: str | None
    paid_at: datetime
    ends_at: datetime | None  # When the key ended, or ends, by this payment.
    state: str  # paid, unproven, reversed, or the payment's own word.


async def receipts_of(storage: Storage, lineage: str) -> Sequence[Receipt]:
    """The payments that bought or renewed the keys of a lineage, the newest first."""
    delivered = KeySale.lineage == lineage, col(KeySale.delivered_at).is_not(None)
    by_wallet = select(KeySale, PaymentRow).where(col(KeySale.payment) == col(PaymentRow.id), *delivered)
    entry = col(LedgerRow.network).in_(CARDS), LedgerRow.event == "settled"
    by_card = select(KeySale, LedgerRow).where(col(KeySale.payment) == col(LedgerRow.payment_id), *entry, *delivered)
    async with storage.read() as session:
        found = {sale.payment: _by_wallet(sale, payment) for sale, payment in await session.exec(by_wallet)}
        for sale, settled in await session.exec(by_card.order_by(col(LedgerRow.id))):  # what a refund left is settled anew
            title, paid_at = CARDS[str(settled.network)], sale.delivered_at or settled.at
            found[sale.payment] = _receipt(sale, settled, network=title, payer=None, pay_to=None, paid_at=paid_at, state="paid")
    return sorted(found.values(), key=lambda one: one.paid_at, reverse=True)


def _by_wallet(sale: KeySale, payment: PaymentRow) -> Receipt:
    state = standing_of(payment.state, is_proven=payment.unproven_since is None)
    paid_at, title = payment.settled_at or sale.started_at, network_of(payment.network).title
    return _receipt(sale, payment, network=title, payer=payment.payer, pay_to=payment.pay_to, paid_at=paid_at, state=state)


def _receipt(sale: KeySale, charged: PaymentRow | LedgerRow, **more: Any) -> Receipt:
    price, deposit = Decimal(charged.amount or 0) / ATOMIC_PER_DOLLAR, str(Price(sale.credits)) if sale.credits else None
    same = {name: getattr(sale, name) for name in ("payment", "action", "key_id", "product", "term", "ends_at")}
    return Receipt(price=f"{price:,.2f}", credits=deposit, transaction=charged.transaction, **same, **more)


def standing_of(state: str, *, is_proven: bool) -> str:
    """What a receipt may say of a payment: paid only where the chain shows it."""
    if state != "settled":
        return state
    return "paid" if is_proven else "unproven"
