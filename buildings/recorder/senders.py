"""On whose behalf something is done: a key's lineage, or without a key the network that the call came from. Pure."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

SITE_PREFIX = 64
"""An IPv6 network of this length is one customer's: its addresses are as many as that customer likes."""


def sender_of(lineage: str | None, address: str) -> str:
    """Under what name limits count a caller."""
    return f"key:{lineage}" if lineage is not None else f"net:{network_of(address)}"


def network_of(address: str) -> str:
    """An IPv4 address as it is, the /64 of an IPv6 address, and whatever else as it was given."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    plain = _plain(found)
    return str(plain) if isinstance(plain, IPv4Address) else str(ip_network((int(plain), SITE_PREFIX), strict=False))


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address
