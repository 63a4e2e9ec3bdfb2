"""The stored answers of registrations with an Idempotency-Key: for a day the same request gets the same answer.

An answer is sealed under its key, which is not stored, because it holds the monitor's secret.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import Connection, insert, select
from starlette.types import Scope

from buildings.recorder.tables import REPLIES
from campus import Entropy, Problem, check_idempotency_key, seal, unseal
from twins import RequestDependency

ANSWER_RETENTION = timedelta(hours=24)


class _IdempotencyKey(RequestDependency[str | None]):
    """The Idempotency-Key header of the request."""

    def from_scope(self, scope: Scope) -> str | None:
        found = next((value for name, value in scope.get("headers", ()) if name == b"idempotency-key"), None)
        if found is None:
            return None
        key: str = found.decode("latin-1")
        check_idempotency_key(key)  # without a recorder key, callers behind one address are told apart by it alone
        return key

    def without_request(self) -> str | None:
        return None


def CurrentIdempotencyKey() -> str | None:
    """The request's Idempotency-Key, as the default of a tool's parameter. Problem 400 `weak_idempotency_key` for a weak one."""
    return _IdempotencyKey()  # type: ignore[return-value]  # twins replaces it by the value at each call


@dataclass(frozen=True)
class IdempotentRequest:
    """A request that may be repeated: its sender, its Idempotency-Key, and its arguments."""

    sender: str
    key: str
    arguments: bytes

    @property
    def secret(self) -> str:
        """The secret that the answer is sealed under."""
        return f"{self.sender}\n{self.key}"

    @property
    def key_digest(self) -> bytes:
        """The digest under which the answer is stored."""
        return sha256(f"find\n{self.secret}".encode()).digest()

    @property
    def request_digest(self) -> bytes:
        """The digest of the arguments; another request with the same key has another one."""
        return sha256(self.arguments).digest()


def stored_answer(connection: Connection, request: IdempotentRequest | None, *, now: datetime) -> bytes | None:
    """The answer that the same request got before, None if it got none. Problem 422 if its key was sent with another request."""
    if request is None:
        return None
    row = connection.execute(select(REPLIES).where(REPLIES.c.key_digest == request.key_digest)).one_or_none()
    if row is None or now - row.at >= ANSWER_RETENTION:
        return None
    if row.request_digest != request.request_digest:
        raise Problem(
            422,
            "idempotency_key_reused",
            "this Idempotency-Key was already sent with a different body; use a new one for a new registration",
        )
    return unseal(row.sealed, request.secret)


def answer_once(
    connection: Connection, request: IdempotentRequest | None, work: Callable[[], bytes], *, now: datetime, entropy: Entropy
) -> bytes:
    """Run the work and store its answer, or return the answer that the same request got before."""
    if request is None:
        return work()
    if (before := stored_answer(connection, request, now=now)) is not None:
        return before
    answer = work()
    connection.execute(REPLIES.delete().where(REPLIES.c.key_digest == request.key_digest))
    sealed = seal(answer, request.secret, entropy=entropy)
    values = {"key_digest": request.key_digest, "request_digest": request.request_digest, "at": now, "sealed": sealed}
    connection.execute(insert(REPLIES).values(**values))
    return answer
