"""A message to one target, its content and its outcome; and `AlertContents`, the interface by which a building writes its alerts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Connection, FromClause, Row

from campus.alerts.fair_shares import Lane


@dataclass(frozen=True)
class Message:
    """One message, claimed by this process. Its id stays the same however often it is tried.

    `alerts` has what the building's AlertContents.load returned for each alert, in order.
    """

    id: str
    lane: Lane
    kind: str
    address: str
    secret: bytes
    alerts: tuple[Any, ...]
    failing_since: datetime | None

    @property
    def target_id(self) -> str:
        """The id of its target."""
        return self.lane.target_id

    @property
    def attempts(self) -> int:
        """How often it was tried so far."""
        return self.lane.attempts


@dataclass(frozen=True)
class AlertText:
    """One alert as people read it: a line that says what happened, and further lines."""

    headline: str
    details: Sequence[str]
    at: datetime
    severity: Literal["problem", "recovery", "notice"] = "notice"


@dataclass(frozen=True)
class Content:
    """What a message says, for every channel: `body` is the JSON of a webhook, `subject` and `texts` are for people.

    From `mail_until` on no e-mail is sent, and the message counts as delivered.
    """

    body: BaseModel
    subject: str
    texts: tuple[AlertText, ...]
    mail_until: datetime | None = None


@dataclass(frozen=True)
class Question:
    """The question that asks a new target for confirmation; `text` says why it is asked. For `mail_until` see Content."""

    text: str
    mail_until: datetime | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of one try: delivered, retry (not before `retry_after`, if the target asks for a pause), or gone for good."""

    result: Literal["delivered", "retry", "gone"]
    reason: str = ""
    retry_after: timedelta | None = None


DELIVERED = Outcome("delivered")


class AlertContents(ABC):
    """Composes a building's alerts. A building derives one class from it and passes an instance to `open_dispatcher`."""

    columns: ClassVar[Sequence[ColumnElement[Any]]] = ()
    """Columns of further tables that `load` needs with each alert's row; `joined` brings the tables."""

    def joined(self, waiting: FromClause) -> FromClause:
        """The alerts and their targets, joined with the tables of `columns`."""
        return waiting

    def load(self, connection: Connection, rows: Sequence[Row[Any]]) -> Sequence[Any]:
        """What `compose` needs of each alert, read in the transaction that claims it: by default the row itself."""
        return rows

    @abstractmethod
    def compose(self, alerts: Sequence[Any]) -> Content | Question:
        """Compose a message of one alert, or a digest of several, without the database. Each try composes the same message.

        For an alert of the kind `confirm` it is a Question.
        """
