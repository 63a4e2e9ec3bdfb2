"""Slack: a message as plain text to an incoming webhook, at Slack's pace.

Errors and limits are those of https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import to_json

from campus.features.alerts.channels.webhook import neutral, refused, retry_after, text_of
from campus.features.alerts.message import Attempt, Channel, Content, Outcome, plain_path, post

HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")
PATH = re.compile("/services/[A-Za-z0-9]+/[A-Za-z0-9]+/[A-Za-z0-9]+")
CONTROL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""The three characters that Slack reads as control characters, which begin a link, a mention or an entity."""
WEBHOOK_GONE = {
    "no_service": "the webhook was removed",
    "no_service_id": "the webhook does not exist",
    "no_active_hooks": "the webhook was disabled",
    "no_team": "the workspace does not exist",
    "team_disabled": "the workspace was disabled",
    "invalid_token": "the webhook's token is not valid",
    "user_not_found": "the user does not exist",
    "channel_not_found": "the channel does not exist",
    "channel_is_archived": "the channel is archived",
    "action_prohibited": "an administrator does not allow it",
    "posting_to_general_channel_denied": "an administrator does not allow it in this channel",
}
LONGEST_BLOCK = 3_000


class Slack(Channel):
    """Slack's incoming webhooks."""

    kind = "slack"
    name = "Slack"

    def recognizes(self, address: str) -> bool:
        """Addresses such as https://hooks.slack.com/services/T0/B0/token."""
        parts = urlsplit(address)
        return parts.hostname in HOSTS and PATH.fullmatch(plain_path(parts.path)) is not None

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Post the message. Its text mentions nobody, and Slack fetches nothing that it names."""
        text = text_of(content).translate(CONTROL)
        said = {"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False, **_blocks(content)}
        answer = await post(attempt.client, attempt.message.address, to_json(said))
        if isinstance(answer, Outcome):
            return answer
        if (word := answer.text.strip()) in WEBHOOK_GONE:
            return Outcome("gone", f"Slack answered {word}: {WEBHOOK_GONE[word]}")
        return refused(self.name, answer, pause=retry_after(answer.headers.get("retry-after"), now=attempt.now))


def _blocks(content: Content) -> dict[str, Any]:
    """An alert with a program's output as rich text, in which Slack reads no markup: the output is code. Notifications show the `text`."""
    if len(content.texts) != 1 or not (output := content.texts[0].output):
        return {}
    words = "\n".join([content.texts[0].headline, *content.texts[0].lines])
    parts = (("rich_text_section", words), ("rich_text_preformatted", output))
    elements = [{"type": kind, "elements": [{"type": "text", "text": neutral(text)[:LONGEST_BLOCK]}]} for kind, text in parts]
    return {"blocks": [{"type": "rich_text", "elements": elements}]}
