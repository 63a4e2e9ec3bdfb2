"""What is pictured: a view of each page in each state, and which routes are none."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lab.pictures.visitors import Visitor

PICTURED = (
    *("/", "/connect", "/docs", "/docs/{name}", "/docs/api", "/tools/{building}/{tool}", "/v1/{building}", "/errors", "/errors/{code}"),
    *("/cve", "/cve/{cve_id}", "/cve/next", "/cve/methodology", "/cve/report", "/cve/vendors", "/cve/vendors/{name}", "/cve/watches"),
    *("/v1/watches/email/confirm/{target_id}/{token}", "/v1/watches/email/unsubscribe/{target_id}/{token}"),
    *("/v1/watches/email/questions/{token}", "/v1/recorder/email/questions/{token}"),
    *("/v1/recorder/email/confirm/{target_id}/{token}", "/v1/recorder/email/unsubscribe/{target_id}/{token}"),
    *("/recorder", "/recorder/{monitor_id}", "/recorder/free/{token}"),
    "/v1/recorder/acknowledge/{monitor_id}/{epoch}/{token}",
    *("/keys", "/keys/receipt", "/pricing", "/pricing/{product}", "/pricing/card/{sale}", "/connect/consent"),
    *("/seller", "/terms", "/privacy", "/refunds", "/status", "/answers/{name}"),
)
"""The routes of pages; a view of each is in the sheet."""
OF_OPERATOR = ("/", "/sign-in", "/jobs", "/keys", "/usage", "/payments", "/alerts", "/buildings", "/answers/{name}")
WITHOUT_PICTURE: Mapping[str, str] = {
    "/cve/watches/{watch_id}/delete": "a form",
    "/recorder/{monitor_id}/{action}": "a form",
    "/recorder/free/{token}/{action}": "a form",
    "/pricing/{product}/card": "a form",
    "/v1/feeds/{name}": "a feed for readers",
    "/v1/feeds/{secret}/{name}": "a feed for readers",
    "/recorder/events": "a stream",
    "/recorder/free/{token}/events": "a stream",
    "/recorder/{monitor_id}/heard": "a part of a monitor's page",
    "/recorder/free/{token}/heard": "a part of a monitor's page",
    "/v1/recorder/hook/{monitor_id}/{secret}": "for programs",
    "/v1/recorder/badge/{badge_id}.svg": "an image",
    "/v1/recorder/badge/{badge_id}.json": "for programs",
    "/v1/recorder/export": "a file",
    "/v1/recorder/read/{read_key}": "for programs",
    "/v1/recorder/read/{read_key}/{monitor_id}": "for programs",
    "/pricing/card/{sale}/pay": "leads to Stripe",
    "/v1/cards/webhook": "for Stripe",
    "/keys/statement.csv": "a file",
    "/keys/sign-out": "a form",
    "/keys/disconnect": "a form",
    "/keys/holdings": "a form",
    "/register": "leads on",
    "/tools": "leads on",
    "/tools/{building}": "leads on",
}
"""Other routes of that kind, each with what it is instead."""
PROGRAMS = re.compile(r"/ping/|/static/|/\.well-known/|/connect/(authorize|register|token|revoke)$")
OPERATORS_OTHERS = re.compile(
    r"/static/|/events$|/sign-out$|/check$|/jobs/\{name\}/run$|/keys/search$|/revoke$|/payments/(accept|reconcile)$"
)


@dataclass(frozen=True)
class View:
    """One page in one state. `group` is the page's name in the sheet, `name` the state."""

    group: str
    name: str
    visitor: Visitor
    path: str = ""
    html: str | None = None
    """What is shown instead of an address: a mail."""


def not_pictured(routes: Collection[str], views: Collection[View], pictured: Collection[str]) -> list[str]:
    """The routes without a view."""
    paths = {view.path.partition("?")[0].partition("#")[0] for view in views}
    return [route for route in pictured if route in routes and not any(re.fullmatch(_pattern(route), path) for path in paths)]


def _pattern(route: str) -> str:
    return re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route))
