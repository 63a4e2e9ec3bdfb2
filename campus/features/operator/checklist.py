"""What there is to do after an installation: each point with what is set, or what to do. Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit

from campus.addresses import is_loopback
from campus.config import Config


class Point(NamedTuple):
    """One point of the list. `text` is what is set, or what to do; `code` in it stands in backticks."""

    name: str
    is_done: bool
    text: str


def checklist(config: Config, *, contact: str | None, backup_note: str | None, is_postgres: bool) -> list[Point]:
    """The points, the open ones first. `backup_note` says what is wrong with the last backup, None if nothing is known to be."""
    server, mail = config.server, getattr(config, "mail", None)
    is_https = urlsplit(config.url).scheme == "https"
    without_url = [name for name, product in config.products.items() if product.url is None]
    ways = {"x402, to your wallet": config.sells_calls, "Stripe, by card": getattr(config, "cards", None) is not None}
    sold_by = [way for way, is_open in ways.items() if is_open]
    points = [
        _point(
            "Public address",
            server.public_url,
            "Callers reach this service at {}.",
            'Set `public_url = "https://…"` in `[server]`: callers by any other name are refused, and every address shown begins with it.',
        ),
        _point(
            "Proxy with TLS",
            is_https and config.url,
            "Callers come by https, through the proxy of {}."
            + ("" if is_loopback(server.host) else " This process listens beyond this machine: let a firewall admit the proxy only."),
            "Put nginx or Caddy in front, with a certificate: `deploy/` has both files. Then give `public_url` its https address.",
        ),
        _point(
            "Contact",
            contact,
            "People who find a fault write to {}.",
            'Set `contact = "mailto:…"` in `[seller]`: it is published in /.well-known/security.txt.',
        ),
        _point(
            "Mail",
            mail and mail.host,
            "E-mail is sent by {}.",
            "Add the table `[mail]` with host and sender: without it alerts go to webhooks only.",
        ),
        _point(
            "Payments",
            " and ".join(sold_by) or (config.products and not without_url and "the pages that your products name"),
            "Keys are sold by {}.",
            "Add `[payments]` or `[cards]`, or give each product the `url` of a page that sells it"
            + (f": {', '.join(without_url)} cannot be bought." if without_url else "; there is no `[products.NAME]` yet."),
        ),
        _point(
            "Backup",
            not backup_note and not is_postgres and "campus backup",
            "The last {} is recent.",
            "Back up PostgreSQL by its own means, such as continuous archiving, and try a restore: this page cannot see it."
            if is_postgres
            else f"{(backup_note or '')[:1].upper()}{(backup_note or '')[1:]}; `deploy/` has such a timer.",
        ),
    ]
    return sorted(points, key=lambda point: point.is_done)


def _point(name: str, value: object, done: str, to_do: str) -> Point:
    return Point(name, True, done.format(value)) if value else Point(name, False, to_do)
