"""The building's settings: the keys of [buildings.recorder] in campus.toml."""

from pydantic import PositiveInt

from campus import Settings


class RecorderSettings(Settings):
    """Where a webhook is Discord's, and how much one caller may ask for. What is counted is counted in each process."""

    discord_hosts: tuple[str, ...] = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")
    """Hosts whose /api/webhooks/… addresses are sent Discord messages instead of signed events."""
    shared_hosts: tuple[str, ...] = (
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
