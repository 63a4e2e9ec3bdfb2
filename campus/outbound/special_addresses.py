"""The private and other special networks that a caller's URL may not lead to. Our own list, because ipaddress's changes by release."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that may be public. Outside it: loopback, private, link-local, multicast, the forms that carry an IPv4 address."""

SPECIAL_IPV4 = {
    IPv4Network("0.0.0.0/8"): "this network",
    IPv4Network("10.0.0.0/8"): "private",
    IPv4Network("100.64.0.0/10"): "shared by a carrier's customers",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("168.63.129.16/32"): "a cloud's metadata",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("172.16.0.0/12"): "private",
    IPv4Network("192.0.0.0/24"): "protocol assignments",
    IPv4Network("192.0.2.0/24"): "documentation",
    IPv4Network("192.31.196.0/24"): "AS112",
    IPv4Network("192.52.193.0/24"): "multicast relays",
    IPv4Network("192.88.99.0/24"): "6to4 relays",
    IPv4Network("192.168.0.0/16"): "private",
    IPv4Network("192.175.48.0/24"): "AS112",
    IPv4Network("198.18.0.0/15"): "benchmarking",
    IPv4Network("198.51.100.0/24"): "documentation",
    IPv4Network("203.0.113.0/24"): "documentation",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved",
}
SPECIAL_IPV6 = {
    IPv6Network("2001::/32"): "Teredo",
    IPv6Network("2001::/23"): "protocol assignments",
    IPv6Network("2001:db8::/32"): "documentation",
    IPv6Network("2002::/16"): "6to4",
    IPv6Network("2620:4f:8000::/48"): "AS112",
    IPv6Network("3ffe::/16"): "the former test network",
    IPv6Network("3fff::/20"): "documentation",
}


def special_network(address: str) -> str | None:
    """The kind of special network that an address is in; None for a public address."""
    try:
        found = ip_address(address)
    except ValueError:
        return "no address"
    return _special_ipv4(found) if isinstance(found, IPv4Address) else _special_ipv6(found)


def _special_ipv4(address: IPv4Address) -> str | None:
    return next((kind for network, kind in SPECIAL_IPV4.items() if address in network), None)


def _special_ipv6(address: IPv6Address) -> str | None:
    if address not in GLOBAL_UNICAST:
        return "outside 2000::/3"
    return next((kind for network, kind in SPECIAL_IPV6.items() if address in network), None)
