"""Discord: a message with an embed per alert, within Discord's limits and at its pace."""

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from campus.errors import TargetRefused
from campus.features.alerts.channels.webhook import RATE_LIMITED, fenced, pause_of, refused
from campus.features.alerts.message import AlertText, Attempt, Channel, Content, Outcome, plain_path, post
from campus.outbound.http_clients import GuardedClient

PATH = re.compile(r"/api(?:/v[0-9]+)?(/webhooks/[0-9]+/[A-Za-z0-9_-]+)(?:/(?:slack|github))?")
"""Discord takes a webhook's messages at each of its hosts, by each version of its interface, and in the formats of two other services."""
MOST_EMBEDS = 10
LONGEST_CONTENT, LONGEST_TITLE, LONGEST_DESCRIPTION = 2_000, 256, 4_096
LONGEST_EMBEDS = 5_500
"""The most characters of all embeds of a message. Discord takes 6,000, and may count one as two."""
COLOURS = {"problem": 0xD92D20, "recovery": 0x12B76A, "notice": 0x667085}
WEBHOOK_GONE = (401, 403, 404)


class Discord(Channel):
    """Discord's webhooks at any of `hosts`."""

    kind = "discord"
    name = "Discord"

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = hosts

    @classmethod
    def of(cls, site: Any, *, links: str) -> "Discord":
        """With the hosts that the building's settings name."""
        return cls(site.settings.discord_hosts)

    def recognizes(self, address: str) -> bool:
        """Addresses such as https://discord.com/api/webhooks/1/token."""
        parts = urlsplit(address)
        return parts.hostname in self._hosts and PATH.fullmatch(plain_path(parts.path)) is not None

    def place_of(self, address: str) -> str:
        """The webhook's id and token."""
        return f"discord:{_webhook_path(address)}"

    async def check(self, address: str, client: GuardedClient) -> None:
        await super().check(address, client)
        answer = await client.get(_url(address))
        if answer.is_client_error and answer.status_code != RATE_LIMITED:
            raise TargetRefused("discord", f"Discord returns {answer.status_code} for this webhook; create a new one")

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Post the message and wait until Discord confirms that it is stored."""
        url = _url(attempt.message.address).copy_merge_params({"wait": "true"})
        answer = await post(attempt.client, url, to_json(message_of(content)))
        if isinstance(answer, Outcome):
            return answer
        if answer.status_code in WEBHOOK_GONE:
            return Outcome("gone", f"Discord answered {answer.status_code}: the webhook no longer exists")
        return refused(self.name, answer, pause=pause_of(answer.content))


def _webhook_path(address: str) -> str:
    found = PATH.fullmatch(plain_path(urlsplit(address).path))
    assert found is not None, "the channel recognizes the address"
    return found[1]


def _url(address: str) -> httpx.URL:
    """The address of the webhook's messages, with the query of the one that was sent: it may name a thread."""
    return httpx.URL(address).copy_with(path=f"/api{_webhook_path(address)}")


def message_of(content: Content) -> dict[str, Any]:
    """The JSON of a message. It mentions nobody, whatever the alerts contain."""
    count = len(content.texts)
    head = "" if count == 1 else f"{count} events:"
    if count > MOST_EMBEDS:
        others = [text.headline for text in content.texts[MOST_EMBEDS:]]
        head = "\n".join([f"{count} events. The first {MOST_EMBEDS} are below; the others:", *others])
    embeds = [_embed(text, most=LONGEST_EMBEDS // min(count, MOST_EMBEDS)) for text in content.texts[:MOST_EMBEDS]]
    return {"content": head[:LONGEST_CONTENT], "embeds": embeds, "allowed_mentions": {"parse": []}}


def _embed(text: AlertText, *, most: int) -> dict[str, Any]:
    title = text.headline[:LONGEST_TITLE]
    room = min(most - len(title), LONGEST_DESCRIPTION)
    code = fenced(text.output[-room // 2 :])
    code = code if len(code) < room else ""
    return {
        "title": title,
        "description": "\n".join(text.lines if code else text.details)[: room - len(code)] + code,
        "color": COLOURS[text.severity],
        "timestamp": text.at.isoformat(),
    }
