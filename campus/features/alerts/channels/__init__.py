"""The channels that alerts are sent through. A new one is a file here, and its name in the list below.

The file has one class derived from `Channel`. It says its `kind`, its `name` for people, which addresses it recognizes,
whether it signs messages or asks for confirmation, how it sends a message, and what the service's errors mean; slack.py is a short one.
All else asks the channel. A building may put channels of its own before these (tests/features/alerts/floods has one).
"""

from typing import Any

from campus.features.alerts.channels.apprise import SERVICES, Apprise
from campus.features.alerts.channels.discord import Discord
from campus.features.alerts.channels.email import Email
from campus.features.alerts.channels.slack import Slack
from campus.features.alerts.channels.webhook import Webhook
from campus.features.alerts.message import Channel

CHANNELS: tuple[type[Channel], ...] = (Apprise, Discord, Slack, Email, Webhook)
"""The first that recognizes an address is used."""
KINDS = ", ".join(one.kind for one in CHANNELS)
"""For descriptions: the kinds that a target may have."""
SERVICE_HOSTS = tuple(service.host for service in SERVICES)
"""The fixed hosts of services, each of which receives alerts for everyone."""
CHAT_SERVICES = f"{Discord.name}, {Slack.name} or {Apprise.name}"
"""For descriptions: the services that get messages of their own format, which are not signed."""


def open_channels(site: Any, *, links: str) -> tuple[Channel, ...]:
    """The channels of a building. The pages of `email_pages` are below the path `links`."""
    return tuple(channel.of(site, links=links) for channel in CHANNELS)
