"""Messages, and the two interfaces around them: `AlertContents`, by which a building writes its alerts, and `Channel`, which sends them."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import httpx
from pydantic import BaseModel
from sqlalchemy import ColumnElement, Connection, FromClause, Row

from campus.errors import TargetRefused
from campus.outbound.http_clients import GuardedClient

Health = Literal["proven", "new", "suspect"]
"""Of a target: proven if it accepted its last message promptly, new if it was never sent one, suspect if its last delivery failed or was
slow."""
HEALTHS: tuple[Health, ...] = ("proven", "new", "suspect")


class Lane(NamedTuple):
    """What decides when a target gets its next message.

    `sender` registered the target: a key's lineage or a network. `keyed` is True with a key, `answered` if the target accepted
    at least one message; `attempts` counts the tries of its current message.
    """

    target_id: str
    health: Health
    sender: str
    host: str
    keyed: bool
    answered: bool
    attempts: int

    @property
    def pair(self) -> str:
        """Sender and host, under which limits count."""
        return f"{self.sender} {self.host}"


@dataclass(frozen=True)
class Message:
    """One message, claimed by this process. Its id stays the same however often it is tried.

    `alerts` has what the building's AlertContents.load returned for each alert, in order; the first was raised at `raised_at`,
    None for a question.
    """

    id: str
    lane: Lane
    kind: str
    address: str
    secret: bytes
    alerts: tuple[Any, ...]
    failing_since: datetime | None
    raised_at: datetime | None

    @property
    def target_id(self) -> str:
        return self.lane.target_id


OUTPUT_FOLLOWS = "The end of its output, as the program wrote it:"


@dataclass(frozen=True)
class AlertText:
    """One alert as people read it: a line that says what happened, further lines, and the end of what a program wrote, shown as code.

    `about` names what the alert is about: a later recovery of the same closes an incident that a problem opened.
    """

    headline: str
    details: Sequence[str]
    at: datetime
    severity: Literal["problem", "recovery", "notice"] = "notice"
    output: str = ""
    about: str | None = None

    @property
    def lines(self) -> Sequence[str]:
        """The details; the last line introduces the output, where there is one, as words of somebody else."""
        return [*self.details, OUTPUT_FOLLOWS] if self.output else self.details


@dataclass(frozen=True)
class Content:
    """What a message says, for every channel: `body` is the JSON of a webhook, to which the `texts` are added as its `text`;
    `subject` and `texts` are for people.

    From `mail_until` on no e-mail is sent: the message is withheld.
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
    """The result of one try: delivered; withheld, as nothing needs to be sent any more; retry (not before `retry_after`, if the target
    asks for a pause); or gone for good. With `confirms`, a question was withheld because its target's owner has agreed already."""

    result: Literal["delivered", "withheld", "retry", "gone"]
    reason: str = ""
    retry_after: timedelta | None = None
    confirms: bool = False


DELIVERED = Outcome("delivered")
WITHHELD = Outcome("withheld")
JSON = {"content-type": "application/json"}


class AlertContents(ABC):
    """Composes a building's alerts. A building derives one class from it and passes an instance to its `Dispatcher`."""

    columns: ClassVar[Sequence[ColumnElement[Any]]] = ()
    """Further columns that `load` needs with each alert's row. `joined` adds their tables."""

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


@dataclass(frozen=True)
class Attempt:
    """One try to deliver a message. `client` connects to public hosts only."""

    message: Message
    client: GuardedClient
    now: datetime


class Channel(ABC):
    """One way to send alerts. `kind` is stored with each target, so it must not change once targets exist; `name` is for people."""

    kind: ClassVar[str]
    name: ClassVar[str]
    signs: ClassVar[bool] = False
    """Whether it signs messages with the target's secret, which its owner is then told."""
    confirms: ClassVar[bool] = False
    """Whether a target's owner must confirm it before any alert is sent there. Such a channel has a method `ask`."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.confirms and cls.ask is Channel.ask:
            raise TypeError(f"{cls.__name__} sets confirms = True and has no method `ask`; add one that sends the question")

    @classmethod
    def of(cls, site: Any, *, links: str) -> "Channel":
        """The channel of a building, from its Site: see `open_channels`."""
        return cls()

    @abstractmethod
    def recognizes(self, address: str) -> bool:
        """Whether this channel can send to an address, decided without a connection. The first channel that recognizes it is used."""

    @property
    def trouble(self) -> str | None:
        """Why it sends nothing at the moment, to whatever address; None if it sends."""
        return None

    def rewritten(self, address: str) -> str:
        """The address as another channel knows it: by default the same."""
        return address

    def check_text(self, address: str, client: GuardedClient) -> None:
        """Raises TargetRefused for an address whose text breaks a rule; nothing is looked up."""
        client.check_url(address)

    def host_of(self, address: str) -> str:
        """The host that receives messages to this address. How many it gets in a minute is limited."""
        return urlsplit(address).hostname or ""

    def place_of(self, address: str) -> str:
        """What identifies a target without an owner: the same text for all addresses that lead to one place.

        By default scheme, host, port and path; addresses that differ only in query, fragment or the number of slashes have one place.
        """
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.scheme}://{parts.hostname}:{port}{plain_path(parts.path)}"

    async def has_agreed(self, address: str, sender: str) -> bool:
        """Whether the owner of an address need not be asked for the alerts of a sender: see targets.sender_of."""
        return not self.confirms

    async def check(self, address: str, client: GuardedClient) -> None:
        """Check an address at registration. Raises TargetRefused if alerts cannot be sent there, and httpx.TransportError if it
        cannot be reached at the moment."""
        await client.check_target(address)

    @abstractmethod
    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Send the message; returns the outcome. An exception counts as a failed try."""

    async def ask(self, attempt: Attempt, question: Question) -> Outcome:
        """Ask a target's owner for confirmation; for channels that set `confirms`."""
        raise TypeError(f"targets of the channel {self.kind} need no confirmation: let `compose` return a Content, not a Question")


def plain_path(path: str) -> str:
    """A URL's path as most servers read it: decoded, without empty and dotted parts and without a slash at its end."""
    return posixpath.normpath("/" + unquote(path).lstrip("/"))


async def post(
    client: GuardedClient, url: httpx.URL | str, body: bytes, headers: Mapping[str, str] = JSON, *, method: str = "POST"
) -> httpx.Response | Outcome:
    """Send one POST, or another `method`; returns its Outcome, or the response if that refuses the message."""
    try:
        answer = await client.post_bytes(str(url), body, headers, method=method)
    except TargetRefused as refused:
        return Outcome("retry", f"its address may not be used: {refused}")
    except httpx.TransportError as error:
        return Outcome("retry", f"it cannot be reached ({type(error).__name__})")
    return DELIVERED if answer.is_success else answer
