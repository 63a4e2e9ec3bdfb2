"""The building's settings: the keys of [buildings.recorder] in campus.toml."""

from campus import Settings


class RecorderSettings(Settings):
    """Where a webhook is Discord's."""

    discord_hosts: tuple[str, ...] = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")
    """Hosts whose /api/webhooks/… addresses are sent Discord messages instead of signed events."""
