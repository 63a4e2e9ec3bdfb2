"""Answers to registrations that came with an Idempotency-Key: kept for a day, sealed under that key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, insert, select
from starlette.types import Scope

from buildings.recorder.tables import REPLIES
from campus import Entropy, Problem, check_idempotency_key
from twins import RequestDependency

ANSWER_RETENTION = timedelta(hours=24)
NONCE_BYTES = 12


class _IdempotencyKey(RequestDependency[str | None]):
    """The Idempotency-Key header of the request."""

    def from_scope(self, scope: Scope) -> str | None:
        found = next((value for name, value in scope.get("headers", ()) if name == b"idempotency-key"), None)
        if found is None:
            return None
        key: str = found.decode("latin-1")
        check_idempotency_key(key)  # without a key of the recorder its secret is all that tells the callers behind one address apart
        return key

    def without_request(self) -> str | None:
        return None


def CurrentIdempotencyKey() -> str | None:
    """The request's Idempotency-Key, as the default of a tool's parameter. Problem 400 `weak_idempotency_key` for a weak one."""
    return _IdempotencyKey()  # type: ignore[return-value]  # the value is put in its place per call


@dataclass(frozen=True)
class IdempotentRequest:
    """A request that may be repeated: who sent it under which key, and what it asks."""

    who: str
    key: str
    request: bytes

    @property
    def digest(self) -> bytes:
        """What the answer is found by."""
        return sha256(f"find\n{self.who}\n{self.key}".encode()).digest()

    @property
    def request_digest(self) -> bytes:
        """What says whether another request is the same."""
        return sha256(self.request).digest()

    @property
    def seal(self) -> AESGCM:
        """What the answer is sealed with; it cannot be made from what is stored."""
        return AESGCM(sha256(f"seal\n{self.who}\n{self.key}".encode()).digest())


def stored_answer(connection: Connection, request: IdempotentRequest | None, *, now: datetime) -> bytes | None:
    """The answer that was returned to the same request before; None where there was none. Problem 422 for another request."""
    if request is None:
        return None
    row = connection.execute(select(REPLIES).where(REPLIES.c.key_digest == request.digest)).one_or_none()
    if row is None or now - row.at >= ANSWER_RETENTION:
        return None
    if row.request_digest != request.request_digest:
        raise Problem(
            422,
            "idempotency_key_reused",
            "this Idempotency-Key was already sent with a different body; use a new one for a new registration",
        )
    return request.seal.decrypt(row.sealed[:NONCE_BYTES], row.sealed[NONCE_BYTES:], None)


def once(connection: Connection, request: IdempotentRequest | None, work: Callable[[], bytes], *, now: datetime, entropy: Entropy) -> bytes:
    """The answer of the work; or the one that was returned before to the same request. Problem 422 for another request."""
    if request is None:
        return work()
    if (before := stored_answer(connection, request, now=now)) is not None:
        return before
    answer, nonce = work(), entropy(NONCE_BYTES)
    connection.execute(REPLIES.delete().where(REPLIES.c.key_digest == request.digest))
    sealed = nonce + request.seal.encrypt(nonce, answer, None)
    values = {"key_digest": request.digest, "request_digest": request.request_digest, "at": now, "sealed": sealed}
    connection.execute(insert(REPLIES).values(**values))
    return answer
