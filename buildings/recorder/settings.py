"""The building's settings: the keys of [buildings.recorder] in campus.toml."""

import re
from typing import Annotated

from pydantic import AfterValidator, PositiveInt

from campus import Settings


def _is_a_host(host: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", host):
        raise ValueError(f"{host!r} is no host; write its name alone, in lower case, such as hooks.example.com")
    return host


Host = Annotated[str, AfterValidator(_is_a_host)]


class RecorderSettings(Settings):
    """Where a webhook is Discord's, and how much one caller may ask for. What is counted is counted in each process."""

    discord_hosts: tuple[Host, ...] = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")
    """Hosts whose /api/webhooks/… addresses are sent Discord messages instead of signed events."""
    shared_hosts: tuple[Host, ...] = (
        "api.telegram.org",
        "events.pagerduty.com",
        "hook.eu1.make.com",
        "hook.eu2.make.com",
        "hook.us1.make.com",
        "hook.us2.make.com",
        "hooks.slack.com",
        "hooks.zapier.com",
        "maker.ifttt.com",
        "ntfy.sh",
    )
    """Hosts that take webhooks for everyone, beside Discord's: what is sent there is limited by caller, never by host."""
    registrations_per_minute: PositiveInt = 30
    """Of one key, or without a key of one address (IPv6: one /64)."""
    monitors_per_host: PositiveInt = 50
    """Monitors without a key that one address may have at one host, but for shared hosts."""
    alerts_per_target: PositiveInt = 6
    """Messages a minute to one target; the alerts beyond it go out as a digest when the minute is over."""
    alerts_per_host: PositiveInt = 60
    """Messages a minute to one host for the monitors without a key of one address; the host as a whole takes five times as many."""
    deliveries: PositiveInt = 512
    """Messages under way at once, in one process; each takes a connection."""

    @property
    def everyones_hosts(self) -> frozenset[str]:
        """Shared hosts, Discord's among them."""
        return frozenset((*self.shared_hosts, *self.discord_hosts))
