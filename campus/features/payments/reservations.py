"""Reservations: one row per payment, on disk before its tool runs; its lease, its stored answer, and each change of its state."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from secrets import token_bytes, token_hex

from sqlalchemy import and_, delete, or_, update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.backoff import Backoff
from campus.errors import StorageError
from campus.features.payments.chain import Transfer
from campus.features.payments.ledger import Event, entry
from campus.features.payments.networks import with_checksum
from campus.features.payments.payment import Payment, Sale
from campus.features.payments.states import LATEST_LEASE, TRANSITIONS, State, is_worked_on, next_step, not_sold
from campus.features.payments.tables import PaymentRow
from campus.keys.sales import KeySales
from campus.keys.tables import SecretRow
from campus.secrets import seal, unseal
from campus.storage import Storage
from campus.storage.leases import Lease

PAUSES = Backoff.doubling(5, longest=20)
"""The waits after submissions in vain: so long nobody submits that payment again, or takes it up to ask the chain."""
SEALING = "payments"
"""The name of the secret that seals signed payments, which a migration made."""
ANSWER_RETENTION = timedelta(minutes=15)
"""How long after its settlement an answer is returned again."""
SECRET_ANSWER_RETENTION = timedelta(hours=24)
"""The same for an answer that is encrypted under the caller's Idempotency-Key, by which it is also found."""
RELEASED_RETENTION = timedelta(days=1)
"""How long a payment that was not charged is kept after its authorization has ended, when it cannot be charged any more."""
LEASE = Lease(timedelta(seconds=10))
ID_BYTES = 12
IS_OPEN = col(PaymentRow.state).in_(("reserved", "settling", "unknown"))
"""Whether a payment is neither settled nor released."""
log = logging.getLogger(__name__)


class Leases:
    """The payments that this process works on. `process` names it, and others wait until a lease ends.

    A lease saves others from doing the same work; that nothing is charged twice does not depend on it. Each lease has its own holder, so
    that a call whose lease was taken over, even by a call of the same process, cannot change or renew the new one.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        process: str,
        now: Callable[[], datetime],
        lease: Lease = LEASE,
    ) -> None:
        self._process = process
        self._storage = storage
        self._now = now
        self.lease = lease
        self._numbers = count(1)
        self._in_work: dict[str, str] = {}

    def new_holder(self) -> str:
        return f"{self._process}#{next(self._numbers)}"

    def end(self) -> datetime:
        return self.lease.end(self._now())

    @contextmanager
    def kept(self, row: PaymentRow) -> Iterator[None]:
        """Renew the lease of a payment for as long as this lasts."""
        self._in_work[row.id] = row.holder
        try:
            yield
        finally:
            if self._in_work.get(row.id) == row.holder:
                del self._in_work[row.id]

    async def renew(self) -> None:
        if not self._in_work:
            return
        holders = sorted(self._in_work.values())
        mine = col(PaymentRow.id).in_(sorted(self._in_work)) & col(PaymentRow.holder).in_(holders)
        async with self._storage.write() as session:
            await (await session.connection()).execute(update(PaymentRow).where(mine).values(lease_until=self.end()))


class Reservations:
    """The payments in campus's own storage. Every change, with its row in the ledger, is on disk when its method returns.

    Each method returns None, changing nothing, if another process changed the payment first. Each reservation of an authorization has its
    own id, so that a process whose lease was taken over cannot change the new reservation.
    """

    def __init__(
        self,
        storage: Storage,
        leases: Leases,
        purchases: KeySales,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self.leases = leases
        self._storage = storage
        self._purchases = purchases
        self._now = now
        self._secret: str | None = None

    async def find(self, payment: Payment | None, sale: Sale) -> Sequence[PaymentRow]:
        """The rows of the payment's authorization, and of purchases with the same Idempotency-Key: its payer's, or all."""
        async with self._storage.read() as session:
            return await _known(session, payment, sale)

    async def get(self, payment_id: str) -> PaymentRow | None:
        async with self._storage.read() as session:
            return await session.get(PaymentRow, payment_id)

    async def reserve(self, payment: Payment, sale: Sale, *, since: datetime | None = None) -> PaymentRow | None:
        """Reserve the authorization for this call; None if another call reserved it first. `since` is when it was first reserved."""
        async with self._storage.write() as session:
            now = self._now()
            before = await _known(session, payment, sale)
            if next_step(before, payment, sale, now=now)[0] != "reserve":
                return None
            for row in before:
                await self._conclude_abandoned(session, row)
                if (row.nonce, row.network) == (payment.nonce, payment.network):
                    await session.delete(row)
                else:  # another authorization of the same purchase, which was not charged
                    row.purchase = None
            await session.flush()
            row = _new_row(payment, sale, self.leases, payment_id=f"pay_{token_hex(ID_BYTES)}", now=since or now)
            session.add(row)
            return row

    async def store(self, payment_id: str, answer: bytes, sale: Sale, signed: bytes) -> PaymentRow | None:
        """Store the answer, and what the facilitator is sent. Only after this may the payment be sent to be charged.

        Problem 409 if what it buys cannot be delivered any more.
        """
        async with self._storage.write() as session:
            if (reason := await self._purchases.objection(session, payment_id)) is not None:
                raise not_sold(reason)
            if (row := await _moved_to(session, payment_id, "settling")) is not None:
                row.answer, row.sealed = answer, sale.idempotency_key is not None
                if sale.idempotency_key is not None:
                    row.answer = seal(answer, sale.idempotency_key, entropy=token_bytes, context=row.payment)
                row.signed = seal(signed, await self._sealing(session), entropy=token_bytes, context=payment_id.encode())
                session.add(entry(row, "admitted", at=row.reserved_at))
            return row

    async def may_be_submitted(self, row: PaymentRow) -> bool:
        """Whether campus itself may submit a payment once more: it is kept, its time is not over, and what it buys can be delivered."""
        return row.signed is not None and row.valid_before > self._now().timestamp() and await self.is_deliverable(row)

    async def signed_of(self, row: PaymentRow) -> bytes:
        """What the facilitator was sent to charge a payment; of one that may be submitted again."""
        async with self._storage.read() as session:
            signed = unseal(row.signed or b"", await self._sealing(session), context=row.id.encode())
        if signed is None:
            raise StorageError("the signed payment cannot be opened: it was sealed with another secret")
        return signed

    async def is_deliverable(self, row: PaymentRow) -> bool:
        """Whether what the payment buys can still be delivered: otherwise it must not be submitted."""
        async with self._storage.read() as session:
            return await self._purchases.objection(session, row.id) is None

    async def _sealing(self, session: AsyncSession) -> str:
        if self._secret is None:
            self._secret = (await session.get_one(SecretRow, SEALING)).value.hex()
        return self._secret

    async def settle(self, payment_id: str, transaction: str, *, block: int | None, answered: bool = True) -> PaymentRow | None:
        """Record that it was charged, and what follows from it; without a block of the chain it is unproven.

        Only after this may the answer be delivered. An answer that no caller waits for is stored as long as a secret one, because
        its caller was asked to send the payment again.
        """
        async with self._storage.write() as session:
            if (row := await _moved_to(session, payment_id, "settled")) is not None:
                row.transaction = transaction
                row.block = block
                row.signed = None
                row.settled_at = self._now()
                row.answer_until = row.settled_at + (SECRET_ANSWER_RETENTION if row.sealed or not answered else ANSWER_RETENTION)
                session.add(entry(row, "settled", at=row.settled_at))
                if block is None:
                    row.unproven_since = row.settled_at
                    session.add(entry(row, "unproven", at=row.settled_at))
                await self._purchases.deliver(session, row.id)
        if row is not None:
            log.info("payment settled", extra={"payment": payment_id, "transaction": transaction})
        return row

    async def doubt(self, held: PaymentRow, reason: str, *, submissions: int = 0, is_denied: bool = False) -> PaymentRow | None:
        """Record that its outcome is unknown, and let nobody ask again for a few seconds; None if another call holds its lease.

        `submissions` are those in vain since the last record. If the last one `is_denied`, campus itself submits it no more.
        """
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, held.id)
            if row is None or row.holder != held.holder:
                return None
            if (row := await self._doubted(session, held.id, reason)) is not None:
                row.submissions += submissions
                row.signed = None if is_denied else row.signed
                row.lease_until = self._now() + PAUSES.wait(row.submissions)
            return row

    async def release(self, payment_id: str, event: Event, reason: str) -> PaymentRow | None:
        """Record that it was not charged, and drop what its tool prepared, even if another released or replaced the reservation before."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or row.state == "released":
                await self._purchases.drop(session, payment_id)
            return await self._released(session, payment_id, event, reason)

    async def take_up(self, payment_id: str) -> PaymentRow | None:
        """Lease a payment whose outcome is unknown, so that one call at a time asks the chain. None if it is concluded or leased."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or is_worked_on(row, now=self._now()):
                return None
            await self._conclude_abandoned(session, row)
            if row.state != "unknown":
                return None
            row.holder = self.leases.new_holder()
            row.lease_until = self.leases.end()
            return row

    async def overdue(self, network: str, *, most: int) -> Sequence[PaymentRow]:
        """Payments on the network, at most `most`, that are neither settled nor released, and that nobody has leased.

        First those that were looked for longest ago.
        """
        now = self._now()
        lease_end = col(PaymentRow.lease_until)
        is_free = or_(lease_end <= now, lease_end > now + LATEST_LEASE)
        async with self._storage.read() as session:
            rows = select(PaymentRow).where(IS_OPEN, is_free, PaymentRow.network == network)
            return (await session.exec(rows.order_by(lease_end).limit(most))).all()

    async def open_elsewhere(self, networks: Collection[str]) -> Sequence[str]:
        """The networks beside these on which payments are neither settled nor released, because campus.toml named them before."""
        other = col(PaymentRow.network).not_in(networks)
        async with self._storage.read() as session:
            return (await session.exec(select(PaymentRow.network).where(IS_OPEN, other).distinct())).all()

    async def _conclude_abandoned(self, session: AsyncSession, row: PaymentRow) -> None:
        """Release the payment of a process that died, or mark its outcome as unknown."""
        if row.state == "reserved":
            await self._released(session, row.id, "released", "its process stopped before anything was charged")
        elif row.state == "settling":
            await self._doubted(session, row.id, "its process stopped while it was being charged")

    async def _doubted(self, session: AsyncSession, payment_id: str, reason: str) -> PaymentRow | None:
        row = await session.get(PaymentRow, payment_id)
        is_new = row is not None and row.state != "unknown"
        if (row := await _moved_to(session, payment_id, "unknown", reason)) is not None and is_new:
            session.add(entry(row, "unknown", reason, at=self._now()))
            log.warning("payment in doubt: %s", reason, extra={"payment": payment_id})
        return row

    async def _released(self, session: AsyncSession, payment_id: str, event: Event, reason: str) -> PaymentRow | None:
        row = await session.get(PaymentRow, payment_id)
        if row is not None and row.state == "reserved":
            session.add(entry(row, "admitted", at=row.reserved_at))
        if (row := await _moved_to(session, payment_id, "released", reason)) is not None:
            row.answer = row.signed = None
            session.add(entry(row, event, reason, at=self._now()))
            await self._purchases.drop(session, payment_id)
            log.info("payment released: %s", reason, extra={"payment": payment_id})
        return row


async def delete_expired(storage: Storage, *, now: datetime) -> int:
    """Delete the answers and signed payments whose time is over, and what answers are found by; returns how many answers."""
    over = col(PaymentRow.valid_before) <= int(now.timestamp())
    async with storage.write() as session:
        kept = update(PaymentRow).where(IS_OPEN, over, col(PaymentRow.signed).is_not(None))
        await (await session.connection()).execute(kept.values(signed=None))
        past = update(PaymentRow).where(col(PaymentRow.answer_until) <= now)
        wiped = await (await session.connection()).execute(past.values(answer=None, answer_until=None, purchase=None, client=None))
        return wiped.rowcount


async def delete_released(storage: Storage, *, now: datetime) -> int:
    """Delete the payments that were not charged and cannot be charged any more, and return how many; the ledger keeps their history."""
    dead = col(PaymentRow.valid_before) < int((now - RELEASED_RETENTION).timestamp())
    async with storage.write() as session:
        deleted = await (await session.connection()).execute(delete(PaymentRow).where(col(PaymentRow.state) == "released", dead))
        return deleted.rowcount


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
    return Transfer(asset=row.asset, payer=row.payer, pay_to=row.pay_to, amount=row.amount, nonce=row.nonce, valid_before=row.valid_before)


def stored_answer(row: PaymentRow, sale: Sale) -> bytes | None:
    """The stored answer; None if there is none, or if it is encrypted under another Idempotency-Key than the sale's."""
    if row.answer is None or not row.sealed:
        return row.answer
    return None if sale.idempotency_key is None else unseal(row.answer, sale.idempotency_key, context=row.payment)


def as_sold(row: PaymentRow, sale: Sale) -> Sale:
    """The sale at the price and to the address of its reservation; campus.toml may have changed since."""
    requirements = {**sale.requirements, "amount": str(row.amount), "payTo": with_checksum(row.pay_to)}
    return replace(sale, amount=row.amount, requirements=requirements)


async def _known(session: AsyncSession, payment: Payment | None, sale: Sale) -> Sequence[PaymentRow]:
    known = [] if sale.purchase is None else [col(PaymentRow.purchase) == sale.purchase]
    if payment is not None:
        known = [and_(one, col(PaymentRow.payer) == payment.payer) for one in known]
        token = and_(col(PaymentRow.network) == sale.requirements["network"], col(PaymentRow.asset) == sale.asset.lower())
        known.append(and_(token, col(PaymentRow.payer) == payment.payer, col(PaymentRow.nonce) == payment.nonce))
    return (await session.exec(select(PaymentRow).where(or_(*known)))).all() if known else ()


async def _moved_to(session: AsyncSession, payment_id: str, state: State, reason: str = "") -> PaymentRow | None:
    """The payment in its new state; None if it is gone, or if this state must not follow the one it has."""
    row = await session.get(PaymentRow, payment_id)
    if row is None or state not in TRANSITIONS[row.state]:
        return None
    row.state = state
    row.reason = reason
    return row
