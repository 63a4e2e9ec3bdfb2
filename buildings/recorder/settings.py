"""The building's settings: the keys of [buildings.recorder] in campus.toml."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from campus import Settings
from campus.features.alerts import SERVICE_HOSTS

WEBHOOK_HOSTS = (
    *(f"hook.{region}.make.com" for region in ("eu1", "eu2", "us1", "us2")),
    *("hooks.slack.com", "hooks.zapier.com", "maker.ifttt.com"),
)


def _is_a_host(host: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", host):
        raise ValueError(f"{host!r} is not a host; write only its name, in lower case, such as hooks.example.com")
    return host


Host = Annotated[str, AfterValidator(_is_a_host)]


class RecorderSettings(Settings):
    """The hosts of Discord and of other shared services, and the limits for one caller. Each process counts separately."""

    discord_hosts: tuple[Host, ...] = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")
    """Hosts whose /api/webhooks/… URLs are sent Discord messages instead of signed events."""
    shared_hosts: tuple[Host, ...] = tuple(sorted((*SERVICE_HOSTS, *WEBHOOK_HOSTS)))
    """Hosts other than Discord's that receive alerts for everyone: messages to them are limited per caller, not per host."""
    monitors: PositiveInt = 20
    """Monitors that a key may have."""
    monitors_of: dict[str, PositiveInt] = Field(default_factory=dict)
    """The same for the keys of some products, by the names of their tables: `{ team = 200 }`."""
    registrations_per_minute: PositiveInt = 30
    """Registrations a minute of one key, or without a key of one address (IPv6: one /64)."""
    monitors_per_host: PositiveInt = 50
    """Monitors without a key that one address may have at one host that is not shared."""
    alerts_per_target: PositiveInt = 6
    """Messages a minute to one target; further alerts are sent as a digest at the end of the minute."""
    alerts_per_host: PositiveInt = 60
    """Messages a minute to one host for the monitors of one address without a key. In all a host gets at most five times as many."""
    deliveries: PositiveInt = 512
    """Messages that one process sends concurrently; each uses a connection."""

    def monitors_for(self, product: str) -> int:
        """How many monitors a key of a product may have."""
        return self.monitors_of.get(product, self.monitors)

    @property
    def most_monitors(self) -> int:
        """How many monitors any key may have."""
        return max((self.monitors, *self.monitors_of.values()))

    @property
    def everyones_hosts(self) -> frozenset[str]:
        """The shared hosts and Discord's."""
        return frozenset((*self.shared_hosts, *self.discord_hosts))
