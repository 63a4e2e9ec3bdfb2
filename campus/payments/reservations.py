"""Reservations: a row per authorization, on disk before its tool runs, and moved from state to state in single transactions."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, or_
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.payments.leases import Leases
from campus.payments.ledger import Event, entry
from campus.payments.payment import Payment, Sale, StoredAnswer
from campus.payments.proof import Transfer
from campus.payments.states import TRANSITIONS, State, next_step
from campus.payments.stored_answers import Entropy, kept
from campus.payments.tables import PaymentRow
from campus.storage import Storage

RETRY = timedelta(seconds=5)
"""How long a payment in doubt is left alone after somebody asked about it in vain."""
KEPT = timedelta(minutes=15)
"""How long after its settlement an answer is given again."""
SECRET_KEPT = timedelta(hours=24)
"""The same where it is sealed under the caller's Idempotency-Key, by which it is found too."""
REMEMBERED = timedelta(days=1)
"""How long after its end a payment that was not charged is remembered; it cannot be charged any more."""
ID_BYTES = 12
Consequence = Callable[[AsyncSession, str], Awaitable[None]]
"""What else belongs into the transaction that settles or releases the payment of this id."""
log = logging.getLogger(__name__)


class Reservations:
    """The payments in the house's storage. Every change is on disk when it returns, its line of the ledger too.

    A change that comes too late, for another process changed the payment first, changes nothing and gives None. Every reservation of an
    authorization has an id of its own, so that whoever lost its lease to another cannot change what is now the other's.
    """

    def __init__(
        self,
        storage: Storage,
        leases: Leases,
        *,
        now: Callable[[], datetime],
        on_settled: Consequence,
        on_released: Consequence,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self._storage = storage
        self._leases = leases
        self._now = now
        self._on_settled = on_settled
        self._on_released = on_released
        self._entropy = entropy

    async def find(self, payment: Payment | None, sale: Sale) -> Sequence[PaymentRow]:
        """What is known of the payment's authorization, and of its payer's purchase, or everybody's, by the Idempotency-Key."""
        async with self._storage.read() as session:
            return await _found(session, payment, sale)

    async def get(self, payment_id: str) -> PaymentRow | None:
        """The payment of this id."""
        async with self._storage.read() as session:
            return await session.get(PaymentRow, payment_id)

    async def reserve(self, payment: Payment, sale: Sale) -> PaymentRow | None:
        """Take the authorization for this call; None when another was quicker."""
        async with self._storage.write() as session:
            now = self._now()
            before = await _found(session, payment, sale)
            if next_step(before, payment, sale, now=now)[0] != "reserve":
                return None
            for row in before:
                await self._give_up(session, row)
                await session.delete(row)
            await session.flush()
            row = _new_row(payment, sale, self._leases, payment_id=f"pay_{self._entropy(ID_BYTES).hex()}", now=now)
            session.add(row)
            return row

    async def withdraw(self, payment_id: str) -> None:
        """Forget a payment that was no good, or could not be checked: whoever has no money leaves nothing on the disk."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is not None and row.state == "reserved":
                await session.delete(row)

    async def store(self, payment_id: str, answer: StoredAnswer, sale: Sale) -> PaymentRow | None:
        """Keep the answer. Only now may the payment be sent to be charged."""
        async with self._storage.write() as session:
            if (row := await _turned(session, payment_id, "settling")) is not None:
                row.answer = kept(answer, sale, row.payment, entropy=self._entropy)
                row.sealed = sale.idempotency_key is not None
                session.add(entry(row, "admitted", at=row.reserved_at))
            return row

    async def settle(self, payment_id: str, transaction: str, *, block: int | None, answered: bool = True) -> PaymentRow | None:
        """Note that it was charged, with all that follows from it; without a block of the chain it is unproven.

        Only now may the answer be given. One that nobody waits for is kept for as long as a secret: its caller was told to come back.
        """
        async with self._storage.write() as session:
            if (row := await _turned(session, payment_id, "settled")) is not None:
                row.transaction, row.block, row.settled_at = transaction, block, self._now()
                row.answer_until = row.settled_at + (SECRET_KEPT if row.sealed or not answered else KEPT)
                session.add(entry(row, "settled", at=row.settled_at))
                if block is None:
                    row.unproven_since = row.settled_at
                    session.add(entry(row, "unproven", at=row.settled_at))
                await self._on_settled(session, row.id)
        if row is not None:
            log.info("payment settled", extra={"payment": payment_id, "transaction": transaction})
        return row

    async def doubt(self, held: PaymentRow, reason: str) -> PaymentRow | None:
        """Note that nobody can say whether it was charged, and leave it alone for a few seconds; None where its lease is another's."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, held.id)
            if row is None or row.holder != held.holder:
                return None
            if (row := await self._doubted(session, held.id, reason)) is not None:
                row.lease_until = self._now() + RETRY
            return row

    async def release(self, payment_id: str, event: Event, reason: str) -> PaymentRow | None:
        """Note that it was not charged, and drop what was prepared for it, even where it is another's by now."""
        async with self._storage.write() as session:
            if await session.get(PaymentRow, payment_id) is None:
                await self._on_released(session, payment_id)
            return await self._released(session, payment_id, event, reason)

    async def take_up(self, payment_id: str) -> PaymentRow | None:
        """Lease a payment in doubt: one at a time asks what became of it. None where it is not in doubt, or in another's hands."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or self._now() < row.lease_until:
                return None
            await self._give_up(session, row)
            if row.state != "unknown":
                return None
            row.holder, row.lease_until = self._leases.new_holder(), self._leases.end()
            return row

    async def overdue(self) -> Sequence[PaymentRow]:
        """What is neither settled nor released, and in nobody's hands; what was looked at last comes last."""
        is_open = col(PaymentRow.state).in_(("reserved", "settling", "unknown"))
        async with self._storage.read() as session:
            rows = select(PaymentRow).where(is_open, col(PaymentRow.lease_until) <= self._now())
            return (await session.exec(rows.order_by(col(PaymentRow.lease_until)))).all()

    async def _give_up(self, session: AsyncSession, row: PaymentRow) -> None:
        """What is left of a payment whose process is gone."""
        if row.state == "reserved":
            await self._released(session, row.id, "released", "its process stopped before anything was charged")
        elif row.state == "settling":
            await self._doubted(session, row.id, "its process stopped while it was being charged")

    async def _doubted(self, session: AsyncSession, payment_id: str, reason: str) -> PaymentRow | None:
        row = await session.get(PaymentRow, payment_id)
        is_news = row is not None and row.state != "unknown"
        if (row := await _turned(session, payment_id, "unknown", reason)) is not None and is_news:
            session.add(entry(row, "unknown", reason, at=self._now()))
            log.warning("payment in doubt: %s", reason, extra={"payment": payment_id})
        return row

    async def _released(self, session: AsyncSession, payment_id: str, event: Event, reason: str) -> PaymentRow | None:
        row = await session.get(PaymentRow, payment_id)
        if row is not None and row.state == "reserved":
            session.add(entry(row, "admitted", at=row.reserved_at))
        if (row := await _turned(session, payment_id, "released", reason)) is not None:
            row.answer = row.purchase = row.client = None
            session.add(entry(row, event, reason, at=self._now()))
            await self._on_released(session, payment_id)
            log.info("payment released: %s", reason, extra={"payment": payment_id})
        return row


def _new_row(payment: Payment, sale: Sale, leases: Leases, *, payment_id: str, now: datetime) -> PaymentRow:
    return PaymentRow(
        id=payment_id,
        network=sale.requirements["network"],
        asset=sale.asset.lower(),
        payer=payment.payer,
        nonce=payment.nonce,
        amount=payment.value,
        pay_to=payment.pay_to,
        valid_before=payment.valid_before,
        payment=payment.digest,
        resource=sale.digest,
        purchase=sale.purchase,
        client=sale.client,
        building=sale.building,
        tool=sale.tool,
        frame=sale.frame,
        state="reserved",
        holder=leases.new_holder(),
        lease_until=leases.end(),
        reserved_at=now,
    )


def transfer_of(row: PaymentRow) -> Transfer:
    """What a payment authorizes, as the chain knows it."""
    return Transfer(asset=row.asset, payer=row.payer, pay_to=row.pay_to, amount=row.amount, nonce=row.nonce, valid_before=row.valid_before)


async def forget(storage: Storage, *, now: datetime) -> None:
    """Delete what was not charged and cannot be any more; the ledger keeps what there was."""
    dead = col(PaymentRow.valid_before) < int((now - REMEMBERED).timestamp())
    async with storage.write() as session:
        await (await session.connection()).execute(delete(PaymentRow).where(col(PaymentRow.state) == "released", dead))


async def _found(session: AsyncSession, payment: Payment | None, sale: Sale) -> Sequence[PaymentRow]:
    known = [] if sale.purchase is None else [col(PaymentRow.purchase) == sale.purchase]
    if payment is not None:
        known = [and_(one, col(PaymentRow.payer) == payment.payer) for one in known]
        token = and_(col(PaymentRow.network) == sale.requirements["network"], col(PaymentRow.asset) == sale.asset.lower())
        known.append(and_(token, col(PaymentRow.payer) == payment.payer, col(PaymentRow.nonce) == payment.nonce))
    return (await session.exec(select(PaymentRow).where(or_(*known)))).all() if known else ()


async def _turned(session: AsyncSession, payment_id: str, state: State, reason: str = "") -> PaymentRow | None:
    """The payment in its new state; None where it is not there any more, or this state does not follow its own."""
    row = await session.get(PaymentRow, payment_id)
    if row is None or state not in TRANSITIONS[row.state]:
        return None
    row.state, row.reason = state, reason
    return row
