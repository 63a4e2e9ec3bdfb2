"""Mailboxes: when each was asked whether it wants alerts, how often, and whether its holder refuses; one record for the whole campus.

The record is stored in campus's own database, and outlives targets, keys and buildings. A question is counted before it is sent: when
the process ends between the two, no second one follows on the same day.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from campus.features.alerts.message import Outcome
from campus.features.alerts.tables import Tables
from campus.secrets import Entropy, random_id
from campus.storage import Storage, in_snapshot, in_transaction

ASK_AGAIN = timedelta(days=1)
"""A mailbox is asked at most once in this time, whoever names it."""
MOST_UNANSWERED = 3
"""Questions to one mailbox that nobody answers. After them it is asked no more, until its holder allows it."""
QUESTIONS_PER_DAY = 20
"""Questions that one key may cause in a day, in all buildings. Without this limit anyone could make the service send unwanted mail."""
IGNORED = {
    **dict.fromkeys(("gmail.com", "googlemail.com"), ("gmail.com", ".")),
    **dict.fromkeys(("proton.me", "protonmail.com", "pm.me"), ("proton.me", ".-_")),
}
"""Of providers' domains: the domain whose mailboxes they share, and the characters of names that they ignore."""
REFUSED = Outcome(
    "gone",
    f"its holder refuses questions of this service, or left {MOST_UNANSWERED} unanswered; the link in an earlier one allows them again",
)
ASKED_TODAY = Outcome("retry", "this mailbox was asked within the last day, and is asked once a day at most")
TOO_MANY = Outcome("retry", f"this key has had {QUESTIONS_PER_DAY} mailboxes asked within a day, the maximum")
AGREED = Outcome("withheld", confirms=True)


MAILBOXES, SENDERS = (Tables.metadata.tables[name] for name in ("alerts_mailboxes", "alerts_senders"))


def normalised_mailbox(address: str) -> str:
    """One text for all spellings of a mailbox: without case, without `+tag`, and without what its provider ignores in names."""
    name, _, host = address.casefold().rpartition("@")
    host, ignored = IGNORED.get(host, (host, ""))
    plain = name.partition("+")[0] or name
    return f"{plain.translate(dict.fromkeys(map(ord, ignored)))}@{host}"


def _mailbox(address: str) -> bytes:
    return sha256(normalised_mailbox(address).encode()).digest()


def _address(address: str) -> bytes:
    return sha256(address.casefold().encode()).digest()


@dataclass(frozen=True)
class Mailboxes:
    """The records of all mailboxes."""

    storage: Storage
    now: Callable[[], datetime]
    entropy: Entropy

    async def has_agreed(self, address: str, sender: str) -> bool:
        """Whether the holder agreed to the alerts of a sender, in any building, and has not unsubscribed since."""
        return await in_snapshot(self.storage, lambda connection: _agreed(connection, address, sender))

    async def count_question(self, address: str, sender: str) -> str | Outcome:
        """Count a question that is sent next; returns the token of the page that refuses questions, or why it may not be sent."""
        return await in_transaction(self.storage, partial(self._count_question, address=address, sender=sender))

    async def discount(self, address: str, sender: str) -> None:
        """Take back a question that was counted, because it was not sent."""

        def work(connection: Connection) -> None:
            mailbox = update(MAILBOXES).where(MAILBOXES.c.digest == _mailbox(address))
            connection.execute(mailbox.values(asked_at=None, unanswered=MAILBOXES.c.unanswered - 1))
            connection.execute(update(SENDERS).where(_pair(address, sender)).values(asked_at=None))

        await in_transaction(self.storage, work)

    async def agree(self, address: str, sender: str) -> None:
        """Note that the holder agreed to the alerts of a sender."""

        def work(connection: Connection) -> None:
            connection.execute(update(MAILBOXES).where(MAILBOXES.c.digest == _mailbox(address)).values(unanswered=0))
            _put(connection, address, sender, agreed_at=self.now())

        await in_transaction(self.storage, work)

    async def unsubscribe(self, address: str, sender: str) -> str:
        """Withdraw the agreement, and refuse further questions; returns the token of the page that allows them again."""

        def work(connection: Connection) -> str:
            connection.execute(delete(SENDERS).where(_pair(address, sender)))
            token = self._token(connection, address)
            connection.execute(update(MAILBOXES).where(MAILBOXES.c.token == token).values(refused_at=self.now()))
            return token

        return await in_transaction(self.storage, work)

    async def is_refused(self, token: str) -> bool | None:
        """Whether the mailbox with this token refuses questions; None if no mailbox has it."""
        chosen = select(MAILBOXES.c.refused_at).where(MAILBOXES.c.token == token)
        row = await in_snapshot(self.storage, lambda connection: connection.execute(chosen).one_or_none())
        return None if row is None else row.refused_at is not None

    async def refuse(self, token: str) -> None:
        """Refuse all further questions to the mailbox with this token, whoever names it."""
        refused = update(MAILBOXES).where(MAILBOXES.c.token == token).values(refused_at=self.now())
        await in_transaction(self.storage, lambda connection: connection.execute(refused))

    async def allow(self, token: str) -> None:
        """Allow questions again, as if none had been sent yet."""
        allowed = update(MAILBOXES).where(MAILBOXES.c.token == token).values(refused_at=None, asked_at=None, unanswered=0)
        await in_transaction(self.storage, lambda connection: connection.execute(allowed))

    def _count_question(self, connection: Connection, address: str, sender: str) -> str | Outcome:
        if _agreed(connection, address, sender):
            return AGREED
        token = self._token(connection, address)
        mailbox = connection.execute(select(MAILBOXES).where(MAILBOXES.c.token == token)).one()
        if mailbox.refused_at is not None or mailbox.unanswered >= MOST_UNANSWERED:
            return REFUSED
        now = self.now()
        if mailbox.asked_at is not None and abs(now - mailbox.asked_at) < ASK_AGAIN:
            return ASKED_TODAY
        recent = SENDERS.c.asked_at.between(now - ASK_AGAIN, now)
        if (connection.scalar(select(func.count()).where(SENDERS.c.sender == sender, recent)) or 0) >= QUESTIONS_PER_DAY:
            return TOO_MANY
        counted = update(MAILBOXES).where(MAILBOXES.c.token == token)
        connection.execute(counted.values(asked_at=now, unanswered=mailbox.unanswered + 1))
        _put(connection, address, sender, asked_at=now)
        return token

    def _token(self, connection: Connection, address: str) -> str:
        """The token of a mailbox, whose record is made if there is none."""
        digest = _mailbox(address)
        token = connection.scalar(select(MAILBOXES.c.token).where(MAILBOXES.c.digest == digest))
        if token is None:
            token = random_id("mbx", self.entropy)
            connection.execute(insert(MAILBOXES).values(digest=digest, token=token, unanswered=0))
        return token


def _pair(address: str, sender: str) -> ColumnElement[bool]:
    return (SENDERS.c.address == _address(address)) & (SENDERS.c.sender == sender)


def _agreed(connection: Connection, address: str, sender: str) -> bool:
    return connection.scalar(select(SENDERS.c.agreed_at).where(_pair(address, sender))) is not None


def _put(connection: Connection, address: str, sender: str, **values: object) -> None:
    """Set values of an address that a sender named; the row is made if there is none."""
    if not connection.execute(update(SENDERS).where(_pair(address, sender)).values(**values).returning(SENDERS.c.sender)).all():
        connection.execute(insert(SENDERS).values(address=_address(address), sender=sender, **values))
