"""What [connect] adds to the plan: https is checked, and the directory has an address for each server that clients connect to."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from campus.addresses import is_loopback
from campus.catalog.parts import PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.directory import Directory
from campus.errors import ConfigError
from campus.features.connect.feature import ConnectTable


class ConnectPlan(PlanPart):
    """The part of one plan."""

    def __init__(self, config: Config, settings: ConnectTable, opened: Sequence[OpenBuilding]) -> None:
        check_https(config.url, settings.url)
        below = settings.url or f"{config.url}/connect"
        self.sign_in = {one.name: f"{below}/{one.name}/mcp" for one in opened if not one.sells_keys}

    def enter(self, directory: Directory) -> None:
        """Where clients connect to each server that sells no keys."""
        directory.sign_in.update(self.sign_in)


def check_https(service: str, own: str | None) -> None:
    """Clients insist on https, except on the machine itself; and a host of its own is another than that of the service."""
    for name, url in {"server.public_url": service, "connect.url": own or service}.items():
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"[connect] needs https, because clients refuse to connect without it, and {name} is {url}; set it to https://…"
            )
    if own is not None and urlsplit(own).hostname == urlsplit(service).hostname:
        raise ConfigError(f"connect.url is at the host of the service, {service}; name another host, or leave connect.url out")
