"""The interface of a channel, such as a webhook, Discord or e-mail. A new one is one new file here, such as slack.py.

The file has one class derived from `Channel`. It says its `kind`, which addresses it recognizes, and how it sends a message:

    class Slack(Channel):
        kind = "slack"

        def recognizes(self, address: str) -> bool:
            return address.startswith("https://hooks.slack.com/services/")

        async def send(self, attempt: Attempt, content: Content) -> Outcome:
            lines = [line for text in content.texts for line in (text.headline, *text.details)]
            answer = await post(attempt.client, attempt.message.address, to_json({"text": "\\n".join(lines)}), {})
            ...

A building lists its channels where it opens its dispatcher, the most specific first:
`channels=(Slack(), Discord(hosts), Email(mail, links=…), Webhook())`. A building may add channels of its own (tests/alerts/floods has one).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import urlsplit

import httpx

from campus.alerts.message import Content, Message, Outcome, Question
from campus.errors import TargetRefused
from campus.outbound.http_clients import GuardedClient


@dataclass(frozen=True)
class Attempt:
    """One try to deliver a message. `client` connects to public hosts only."""

    message: Message
    client: GuardedClient
    now: datetime


class Channel(ABC):
    """One way to send alerts. `kind` is stored with each target, so it must not change once targets exist."""

    kind: ClassVar[str]
    confirms: ClassVar[bool] = False
    """Whether a target's owner must confirm it before any alert is sent there. Such a channel has a method `ask`."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.confirms and cls.ask is Channel.ask:
            raise TypeError(f"{cls.__name__} sets confirms = True and has no method `ask`; add one that sends the question")

    @abstractmethod
    def recognizes(self, address: str) -> bool:
        """Whether this channel can send to an address, decided without a connection. The first channel that recognizes it is used."""

    def host_of(self, address: str) -> str:
        """The host that receives messages to this address. How many it gets in a minute is limited."""
        return urlsplit(address).hostname or ""

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


async def post(client: GuardedClient, url: httpx.URL | str, body: bytes, headers: dict[str, str]) -> httpx.Response | Outcome:
    """Send one POST; returns the response, or an Outcome if there is none."""
    try:
        return await client.post(url, content=body, headers=headers)
    except TargetRefused as refused:
        return Outcome("retry", f"its address may not be used: {refused}")
    except httpx.TransportError as error:
        return Outcome("retry", f"it cannot be reached ({type(error).__name__})")
