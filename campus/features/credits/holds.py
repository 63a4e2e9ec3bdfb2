"""Holds: what a call takes from its key before its tool runs, on disk, and then captures when it is delivered, or gives back.

The account is changed by statements that decide by its row, so that no two calls, in whichever processes, spend the same; all waiting
changes share one transaction. A hold has a lease, which its process renews while the call runs: that of a process that died is released.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import anyio
from sqlalchemy import Connection, delete, or_, text, update
from sqlmodel import col, select

from campus.clock_steps import ClockSteps
from campus.errors import StorageError
from campus.features.credits.tables import AnswerRow, HoldRow, Tables
from campus.secrets import random_id
from campus.storage import Storage, among, in_transaction
from campus.storage.leases import Lease

HOLDS = Tables.metadata.tables["credits_holds"]
LEASE = Lease(timedelta(seconds=10))
LATEST_LEASE = timedelta(minutes=5)
"""One that ends later than this was taken while a clock was wrong, and does not count."""
ANSWER_RETENTION = timedelta(hours=24)
LARGEST_ANSWER = 1024**2
"""The bytes of one, once it is sealed."""
LEAST_COUNTED = 8 * 1024
"""What a smaller one counts, which bounds their number too."""
OF_ONE_LINEAGE = 32 * 1024**2
"""How many bytes are kept, beside those of calls that run; beyond them the oldest end early."""
RELEASED_AT_ONCE = 500
CLAIM = text(
    "INSERT INTO credits_answers (purchase, lineage, size, request, kept_until) VALUES (:purchase, :lineage, 0, :request, :kept_until)"
    " ON CONFLICT (purchase) DO NOTHING RETURNING purchase"
)
CLAIMED = text("SELECT request, answer FROM credits_answers WHERE purchase = :purchase")
UNCLAIM = text("DELETE FROM credits_answers WHERE purchase = :purchase AND answer IS NULL")
OPEN = text("INSERT INTO credit_accounts (lineage, balance, period, calls) VALUES (:lineage, 0, '', 0) ON CONFLICT (lineage) DO NOTHING")
SPEND_CALL = text(  # a process whose clock is behind counts in the period that has begun
    "UPDATE credit_accounts SET calls = CASE WHEN period < :period THEN 1 ELSE calls + 1 END,"
    " period = CASE WHEN period < :period THEN :period ELSE period END"
    " WHERE lineage = :lineage AND (period < :period OR calls < :most) RETURNING balance, period, calls"
)
SPEND_CREDITS = text(
    "UPDATE credit_accounts SET balance = balance - :price WHERE lineage = :lineage AND balance >= :price RETURNING balance, period, calls"
)
ACCOUNT = text("SELECT balance, period, calls FROM credit_accounts WHERE lineage = :lineage")
TAKE = text(
    "DELETE FROM credits_holds WHERE id = :id AND (lease_until <= :now OR lease_until > :latest)"
    " RETURNING lineage, amount, period, purchase"
)
GIVE_BACK = text(
    "UPDATE credit_accounts SET balance = balance + :amount, calls = CASE WHEN period = :period AND calls > 0 THEN calls - 1 ELSE calls END"
    " WHERE lineage = :lineage RETURNING balance, period, calls"
)
COUNT = text(
    "INSERT INTO credits_calls (day, lineage, building, tool, calls, allowed, amount)"
    " VALUES (:day, :lineage, :building, :tool, 1, :allowed, :amount) ON CONFLICT (day, lineage, building, tool)"
    " DO UPDATE SET calls = credits_calls.calls + 1, allowed = credits_calls.allowed + excluded.allowed,"
    " amount = credits_calls.amount + excluded.amount"
)
STORE = text("UPDATE credits_answers SET answer = :answer, size = :size, kept_until = :kept_until WHERE purchase = :purchase")
KEPT = text("SELECT sum(size) FROM credits_answers WHERE lineage = :lineage")
END_OLDEST = text(
    "DELETE FROM credits_answers WHERE purchase IN (SELECT purchase FROM"
    " (SELECT purchase, sum(size) OVER (ORDER BY kept_until DESC, purchase) AS total FROM credits_answers"
    " WHERE lineage = :lineage AND size > 0) AS summed WHERE total > :most)"
)
NEVER = 2**62
log = logging.getLogger(__name__)


class Left(NamedTuple):
    """An account after a change: its balance, and how many calls of its allowance it opened in a period."""

    balance: int
    period: str
    calls: int


class Wanted(NamedTuple):
    """A call that wants a hold: a call of `most` in the `period`, else its price; None is what it cannot be opened by."""

    id: str
    lineage: str
    building: str
    tool: str
    day: str
    period: str
    most: int | None
    price: int | None
    purchase: bytes | None
    request: bytes
    lease_until: int
    kept_until: int


class Held(NamedTuple):
    """A hold that is on disk."""

    wanted: Wanted
    amount: int
    left: Left


class UsedUp(NamedTuple):
    left: Left


class Claimed(NamedTuple):
    """Another call came with the same Idempotency-Key: its answer, or None while it runs; empty if it was too large to be kept."""

    is_same: bool
    answer: bytes | None


class Captured(NamedTuple):
    wanted: Wanted
    answer: bytes | None


class Released(NamedTuple):
    """A hold to be given back; one of another process if its lease is over at `now`."""

    id: str
    lineage: str
    now: int = NEVER


Change = Wanted | Captured | Released
KINDS = (Wanted, Released, Captured)
"""In the order in which they are made, by lineage: processes that lock the same rows do so in one order."""


class Holds:
    """The holds of one process; `put` has `made` make its changes, together with those of others that wait."""

    def __init__(
        self, storage: Storage, put: Callable[[Change], Awaitable[Any]], *, now: Callable[[], datetime], steps: ClockSteps
    ) -> None:
        self._steps = steps
        self._storage = storage
        self._put = put
        self._now = now
        self._kept: set[str] = set()

    async def take(self, **call: Any) -> Held | UsedUp | Claimed:
        """Hold what a call costs; see Wanted."""
        now = self._now()
        lease, kept = _seconds(LEASE.end(now)), _seconds(now + ANSWER_RETENTION)
        wanted = Wanted(id=random_id("hold", secrets.token_bytes), lease_until=lease, kept_until=kept, **call)
        self._kept.add(wanted.id)
        found: Held | UsedUp | Claimed | None = None
        try:
            found = await _uninterrupted(self._put(wanted))
        finally:
            if not isinstance(found, Held):
                self._kept.discard(wanted.id)
        return found

    async def capture(self, held: Held, answer: bytes | None) -> bool:
        """Charge for the answer, which is stored if it is not None. False if the hold was lost and cannot be taken again."""
        now = self._now()
        again = held.wanted._replace(lease_until=_seconds(LEASE.end(now)), kept_until=_seconds(now + ANSWER_RETENTION))
        is_charged: bool = await _uninterrupted(self._put(Captured(again, answer)))
        self._kept.discard(held.wanted.id)
        return is_charged

    async def release(self, held: Held) -> Left:
        """Give back what a call took that was not delivered; what there is then. Without a database its lease lapses."""
        self._kept.discard(held.wanted.id)
        try:
            left: Left | None = await _uninterrupted(self._put(Released(held.wanted.id, held.wanted.lineage)))
        except StorageError as error:
            log.warning("a call's hold is not released, its lease will lapse: %s", error)
            return held.left
        return left or held.left

    async def keep(self) -> None:
        """Renew the leases of the calls that run, and release the holds of processes that are gone."""
        await self.release_lapsed()
        if kept := sorted(self._kept):
            until = _seconds(LEASE.end(self._now()))
            await in_transaction(self._storage, partial(_renew, ids=kept, until=until))

    async def release_lapsed(self, *, alone: bool = False) -> int:
        """Release the holds whose processes are gone, or all but this one's if it is `alone`; returns how many."""
        now = NEVER if alone else _seconds(self._now())
        lease = col(HoldRow.lease_until)
        lapsed = select(HoldRow.id, HoldRow.lineage).where(or_(lease <= now, lease > _latest(now))).limit(RELEASED_AT_ONCE)
        async with self._storage.read() as session:
            found = [each for each in (await session.exec(lapsed)).all() if not (alone and each[0] in self._kept)]
        released = [left for hold, lineage in found if (left := await self._put(Released(hold, lineage, now)))]
        if released:
            log.warning("calls were given back whose process is gone", extra={"calls": len(released)})
        return len(released)

    async def delete_answers(self) -> int:
        """Delete the answers whose time is over, and those of before the clock was set back; returns how many.

        While the clock may be wrong none is: without its answer a call that is sent again is charged again.
        """
        if not self._steps.is_settled():
            return 0
        async with self._storage.write() as session:
            ends, now = col(AnswerRow.kept_until), self._now()
            over = delete(AnswerRow).where(or_(ends <= _seconds(now), ends > _latest(_seconds(now + ANSWER_RETENTION))))
            return (await (await session.connection()).execute(over)).rowcount


async def _uninterrupted(work: Awaitable[Any]) -> Any:
    """Await the work; a cancellation takes effect after it."""
    with anyio.CancelScope(shield=True):
        return await work


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _latest(now: int) -> int:
    return now + int(LATEST_LEASE.total_seconds())


def _renew(connection: Connection, *, ids: Iterable[str], until: int) -> None:
    connection.execute(update(HOLDS).where(among(connection, HOLDS.c.id, ids)).values(lease_until=until))


def made(connection: Connection, changes: Sequence[Change]) -> Sequence[Any]:
    """Make the changes; a result for each, in their own order."""
    results: list[Any] = [None] * len(changes)
    for place in sorted(range(len(changes)), key=lambda each: _order(changes[each])):
        match changes[place]:
            case Wanted() as wanted:
                results[place] = _hold(connection, wanted)
            case Released() as released:
                results[place] = _release(connection, released)
            case Captured() as captured:
                results[place] = _capture(connection, captured)
    return results


def _order(change: Change) -> tuple[str, int, tuple[str, ...]]:
    wanted = change.wanted if isinstance(change, Captured) else change
    row = (wanted.day, wanted.building, wanted.tool) if isinstance(wanted, Wanted) else ()
    return wanted.lineage, KINDS.index(type(change)), row


def _hold(connection: Connection, wanted: Wanted) -> Held | UsedUp | Claimed:
    if wanted.purchase is not None and (claimed := _claim(connection, wanted)) is not None:
        return claimed
    taken = _spend(connection, wanted)
    if isinstance(taken, UsedUp):
        if wanted.purchase is not None:
            connection.execute(UNCLAIM, {"purchase": wanted.purchase})
        return taken
    if wanted.purchase is not None:
        _end_oldest(connection, wanted.lineage)
    left, amount, period = taken
    row = {"id": wanted.id, "lineage": wanted.lineage, "purchase": wanted.purchase, "lease_until": wanted.lease_until}
    connection.execute(HOLDS.insert(), {**row, "amount": amount, "period": period})
    return Held(wanted, amount, left)


def _claim(connection: Connection, wanted: Wanted) -> Claimed | None:
    """Claim the Idempotency-Key for this call; the claim of another call if there is one."""
    claim = {"purchase": wanted.purchase, "lineage": wanted.lineage, "request": wanted.request, "kept_until": wanted.kept_until}
    if connection.execute(CLAIM, claim).first() is not None:
        return None
    found = connection.execute(CLAIMED, {"purchase": wanted.purchase}).first()
    return Claimed(is_same=True, answer=None) if found is None else Claimed(found.request == wanted.request, found.answer)


def _end_oldest(connection: Connection, lineage: str) -> None:
    """Make room for an answer. The account is locked by what was taken from it, so that two processes do so one after the other."""
    if (connection.execute(KEPT, {"lineage": lineage}).scalar() or 0) >= OF_ONE_LINEAGE:
        connection.execute(END_OLDEST, {"lineage": lineage, "most": OF_ONE_LINEAGE - LEAST_COUNTED})


def _spend(connection: Connection, wanted: Wanted) -> tuple[Left, int, str] | UsedUp:
    """Take a call of the allowance, else the price; what is left, and the amount or the period of what was taken."""
    account = {"lineage": wanted.lineage}
    if wanted.most is not None:
        connection.execute(OPEN, account)
        if row := connection.execute(SPEND_CALL, {**account, "period": wanted.period, "most": wanted.most}).first():
            return Left(*row), 0, row.period
    if wanted.price is not None and (row := connection.execute(SPEND_CREDITS, {**account, "price": wanted.price}).first()):
        return Left(*row), wanted.price, ""
    row = connection.execute(ACCOUNT, account).first()
    return UsedUp(Left(0, "", 0) if row is None else Left(*row))


def _taken(connection: Connection, hold: str, *, now: int = NEVER) -> Any:
    """The hold, which is ended; one of another process only if its lease is over at `now`."""
    return connection.execute(TAKE, {"id": hold, "now": now, "latest": _latest(now)}).first()


def _capture(connection: Connection, captured: Captured) -> bool:
    wanted = captured.wanted
    taken = _taken(connection, wanted.id)
    if taken is None:  # its lease lapsed while this process hung: it is delivered only if it can still be paid
        if not isinstance(_hold(connection, wanted), Held):
            return False
        taken = _taken(connection, wanted.id)
        assert taken is not None, "it is held in this transaction"
    row = {"day": wanted.day, "lineage": wanted.lineage, "building": wanted.building, "tool": wanted.tool}
    connection.execute(COUNT, {**row, "allowed": int(bool(taken.period)), "amount": taken.amount})
    if wanted.purchase is not None:
        answer = captured.answer or b""
        answer = answer if len(answer) <= LARGEST_ANSWER else b""
        size = max(len(answer), LEAST_COUNTED)
        connection.execute(STORE, {"purchase": wanted.purchase, "answer": answer, "size": size, "kept_until": wanted.kept_until})
    return True


def _release(connection: Connection, released: Released) -> Left | bool:
    """What is left once the hold is given back; False if it was captured, or released before."""
    if (row := _taken(connection, released.id, now=released.now)) is None:
        return False
    if row.purchase is not None:
        connection.execute(UNCLAIM, {"purchase": row.purchase})
    given = {"lineage": row.lineage, "amount": row.amount, "period": row.period or "none"}
    return Left(*connection.execute(GIVE_BACK, given).one())
