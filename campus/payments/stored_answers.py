"""Answers as they are stored: as they are, or, where one is a secret, encrypted under a key that only its caller has."""

from collections.abc import Callable
from datetime import datetime
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import update
from sqlmodel import col

from campus.payments.payment import Sale, StoredAnswer
from campus.payments.tables import PaymentRow
from campus.storage import Storage

NONCE_BYTES = 12
Entropy = Callable[[int], bytes]


def kept(answer: StoredAnswer, sale: Sale, payment: bytes, *, entropy: Entropy) -> bytes:
    """The answer to the payment of this digest, sealed where the sale has an idempotency key."""
    if sale.idempotency_key is None:
        return answer.body
    nonce = entropy(NONCE_BYTES)
    return nonce + _cipher(sale.idempotency_key).encrypt(nonce, answer.body, payment)


def opened(row: PaymentRow, sale: Sale) -> StoredAnswer | None:
    """The stored answer; None where there is none, or where it is sealed and the sale's idempotency key is another or none."""
    if row.answer is None:
        return None
    if not row.sealed:
        return StoredAnswer(row.answer)
    if sale.idempotency_key is None:
        return None
    try:
        return StoredAnswer(_cipher(sale.idempotency_key).decrypt(row.answer[:NONCE_BYTES], row.answer[NONCE_BYTES:], row.payment))
    except InvalidTag:
        return None


async def wipe(storage: Storage, *, now: datetime) -> None:
    """Forget the answers that are given no more."""
    async with storage.write() as session:
        past = update(PaymentRow).where(col(PaymentRow.answer_until) <= now)
        await (await session.connection()).execute(past.values(answer=None, answer_until=None, purchase=None, client=None))


def _cipher(idempotency_key: str) -> AESGCM:
    return AESGCM(sha256(f"seal\n{idempotency_key}".encode()).digest())
