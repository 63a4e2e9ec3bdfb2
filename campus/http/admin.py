"""The operator's pages, on a listener of their own: metrics, and every sentence that the readiness checks found."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import Listen
from campus.http.edge import Edge
from campus.http.health import Health
from campus.http.refusal import send_problem
from campus.observability.metrics import Counters
from campus.site import ROUTE
from twins import Problem

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class AdminPages:
    """Each page by its exact path. There is no login: whoever reaches the listener may read them."""

    def __init__(self, pages: Mapping[str, ASGIApp]) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page; 404 names those that there are."""
        path: str = scope["path"]
        if page := self._pages.get(path):
            scope[ROUTE] = path
            await page(scope, receive, send)
            return
        problem = Problem(404, "not_found", f"there is no such page; there are: {', '.join(sorted(self._pages))}")
        await send_problem(send, problem, scope.get("request_id"))


def admin_app(counters: Counters, health: Health, *, listen: Listen, trusted_proxies: tuple[str, ...]) -> ASGIApp:
    """The app for the operator's listener. It answers to its own address and to loopback names; no page of another origin reads it."""
    pages = AdminPages({"/metrics": metrics_page(counters), **health.operator_probes})
    return Edge(pages, public_url=f"http://{listen}", port=listen.port, trusted_proxies=trusted_proxies, cross_origin=False)


def metrics_page(counters: Counters) -> ASGIApp:
    """Every counter in Prometheus' text format."""

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(counters.page(), media_type=PROMETHEUS)(scope, receive, send)

    return page
