"""The receipts of a key: which payments bought it and its renewals, for whoever holds it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlmodel import col, select

from campus.features.payments.networks import CARDS, network_of
from campus.features.payments.states import not_sold
from campus.features.payments.tables import LedgerRow, PaymentRow
from campus.keys.tables import KeySale
from campus.pricing import Price
from campus.storage import Storage

__all__ = ["Receipt", "not_sold", "receipts_of"]

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
        found = {sale.payment: _receipt(sale, payment) for sale, payment in await session.exec(by_wallet)}
        for sale, settled in await session.exec(by_card.order_by(col(LedgerRow.id))):  # what a refund left is settled anew
            found[sale.payment] = _receipt_by_card(sale, settled)
    return sorted(found.values(), key=lambda one: one.paid_at, reverse=True)


def credits_of(sale: KeySale) -> str | None:
    return str(Price(sale.credits)) if sale.credits else None


def _receipt_by_card(sale: KeySale, settled: LedgerRow) -> Receipt:
    return Receipt(
        payment=sale.payment,
        action=sale.action,
        key_id=sale.key_id,
        product=sale.product,
        term=sale.term,
        price=f"{Decimal(settled.amount or 0) / ATOMIC_PER_DOLLAR:,.2f}",
        credits=credits_of(sale),
        network=CARDS[str(settled.network)],
        transaction=settled.transaction,
        payer=None,
        pay_to=None,
        paid_at=sale.delivered_at or settled.at,
        ends_at=sale.ends_at,
        state="paid",
    )


def _receipt(sale: KeySale, payment: PaymentRow) -> Receipt:
    return Receipt(
        payment=payment.id,
        action=sale.action,
        key_id=sale.key_id,
        product=sale.product,
        term=sale.term,
        price=f"{Decimal(payment.amount) / ATOMIC_PER_DOLLAR:,.2f}",
        credits=credits_of(sale),
        network=network_of(payment.network).title,
        transaction=payment.transaction,
        payer=payment.payer,
        pay_to=payment.pay_to,
        paid_at=payment.settled_at or sale.started_at,
        ends_at=sale.ends_at,
        state=standing_of(payment.state, is_proven=payment.unproven_since is None),
    )


def standing_of(state: str, *, is_proven: bool) -> str:
    """What a receipt may say of a payment: paid only where the chain shows it."""
    if state != "settled":
        return state
    return "paid" if is_proven else "unproven"
