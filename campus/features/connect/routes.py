"""All routes of /connect: the buildings' MCP endpoints for connected clients, the authorization server, and the consent pages."""

import secrets
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.app import Campus
from campus.building import Building
from campus.catalog.parts import FeatureSite
from campus.catalog.plan import Plan
from campus.catalog.server import mcp_path_of
from campus.context import context_of
from campus.features.connect.access_tokens import AccessTokens
from campus.features.connect.clients import ClientDocuments
from campus.features.connect.connected import ConnectedClients
from campus.features.connect.consent import ConsentPages
from campus.features.connect.feature import ConnectTable
from campus.features.connect.plan import ConnectPlan
from campus.features.connect.provider import Connectable, ConnectUrls, Provider
from campus.features.connect.server import ClientEndpoints
from campus.http.elsewhere import MCP_METHODS, explain_mcp
from campus.http.response import send_problem
from campus.http.service_routes import answering, own_page
from campus.http_parts import HttpPart
from campus.layout.accept import page_form
from campus.paywall.admission import ALL, bearer
from campus.problems import EXPLAINED_AT
from twins import ANY, Problem, RouteEntry, RouteTable

TEMPLATES = Path(__file__).parent / "templates"


class ConnectedMcp:
    """A building's MCP endpoint for connected clients: it calls `app`, which is served at `path`, with the key that let the client in.

    A request without a valid access token for this building is answered with 401 and where to get one. A key is no access token.
    """

    def __init__(self, app: ASGIApp, building: Connectable, tokens: AccessTokens, addresses: ConnectUrls) -> None:
        self._app = app
        self._path = building.mcp_path
        self._raw_path = building.mcp_path.encode()
        self._building = building.name
        self._tokens = tokens
        self._challenge = f'Bearer resource_metadata="{addresses.origin}{addresses.resource_path(building.name)}", scope="{building.name}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = bearer(scope)
        if token is None:
            await self._refuse(scope, send, "login_required", "Connect to this MCP server first: your client opens a page for that.")
            return
        credential = self._tokens.peek(token, self._building) or await self._tokens.find(token, self._building)
        if credential.state != "valid":
            detail = (
                "The access token is unknown or has ended, or is for another MCP server; connect again."
                f" A key is not taken here: send it to {self._path} of the service."
            )
            await self._refuse(scope, send, "token_refused", detail, 'error="invalid_token"')
        elif scope["method"] not in MCP_METHODS:
            await explain_mcp(scope, send)
        else:
            scope["path"] = self._path
            scope["raw_path"] = self._raw_path
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"authorization"]  # no tool sees the token
            context = context_of(scope)
            context.credential = credential
            context.is_delegated = True
            await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope, send: Send, code: str, detail: str, *more: str) -> None:
        context_of(scope).route = scope["path"]
        problem = Problem(401, code, detail, headers={"WWW-Authenticate": ", ".join([self._challenge, *more])})
        await send_problem(send, problem, scope.get("request_id"))


class Connect(HttpPart):
    """What [connect] in campus.toml opens, in one process."""

    def __init__(self, campus: Campus, site: FeatureSite[ConnectTable]) -> None:
        super().__init__(campus, site)
        config = campus.plan.config
        core = campus.core
        self._own_url = site.settings.url
        self.more_urls = [self._own_url] if self._own_url else ()
        self._service_url = config.url
        self._table = RouteTable()
        self._layout = campus.layout
        self._buildings: dict[str, Connectable] = {}
        self._provider = Provider(
            ConnectUrls(self._own_url, "") if self._own_url else ConnectUrls(config.url, "/connect"),
            self._buildings,
            site.state,
            ClientDocuments(campus.web, elapsed=monotonic) if site.settings.client_documents else None,
            now=core.now,
            entropy=secrets.token_bytes,
        )
        pages = campus.layout.pages_of([TEMPLATES])
        self._consent = ConsentPages(self._provider, pages, campus.plan.directory, core.keys, sign_ins=campus.sign_ins, now=core.now)

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Sequence[RouteEntry]:
        """The routes at the service's own host for the buildings that are served now; `servers` are their MCP apps by path."""
        self._buildings.clear()
        self._buildings.update({one.name: one for one in connectable(plan)})
        found = tuple(self._routes(servers))
        if self._own_url is None:
            return found
        assets = (asset.route for asset in self._layout.assets.values())
        self._table = RouteTable([*found, *assets], problem_types=EXPLAINED_AT, missing=answering(self._elsewhere))
        return ()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The app of the service, and at the host of [connect] url, if it names one, these routes in its place."""
        if self._own_url is None:
            return app
        own_host = (urlsplit(self._own_url).hostname or "").encode()

        def by_host(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            host = dict(scope["headers"]).get(b"host", b"").lower().partition(b":")[0].rstrip(b".")
            return (self._table if host == own_host else app)(scope, receive, send)

        return by_host

    async def _elsewhere(self, request: Request) -> Response:
        if page_form(request.headers.get("accept", "").encode("latin-1")) == "html" and not request.url.path.startswith("/.well-known/"):
            # a person who follows a link of a page's header; clients want to be told that there is nothing
            path = b"?".join(filter(None, [request.scope["raw_path"], request.scope["query_string"]])).decode("latin-1")
            return RedirectResponse(f"{self._service_url}{path}", status_code=303)
        detail = f"there is nothing at this address: this host only connects clients; the service is at {self._service_url}"
        raise Problem(404, "not_found", detail)

    def _routes(self, servers: Mapping[str, ASGIApp]) -> Iterator[RouteEntry]:
        provider = self._provider
        addresses = provider.addresses
        clients = ClientEndpoints(provider)
        yield own_page(("GET",), addresses.metadata_path, clients.metadata)
        yield own_page(("POST",), addresses.path("register"), clients.register)
        yield own_page(("GET",), addresses.path("authorize"), self._consent.authorize)
        yield own_page(("GET",), addresses.path("consent"), self._consent.show)
        yield own_page(("POST",), addresses.path("consent"), self._consent.answer)
        yield own_page(("POST",), addresses.path("token"), clients.token)
        yield own_page(("POST",), addresses.path("revoke"), clients.revoke)
        for building in self._buildings.values():
            metadata = partial(clients.resource_metadata, building=building.name)
            yield own_page(("GET",), addresses.resource_path(building.name), metadata)
            if self._own_url and len(self._buildings) == 1:
                yield own_page(("GET",), "/.well-known/oauth-protected-resource", metadata)
            endpoint = ConnectedMcp(servers[building.mcp_path], building, provider.connected.tokens, addresses)
            yield RouteEntry(
                (ANY,), addresses.mcp_path(building.name), endpoint, f"the MCP endpoint of {building.name} for connected clients"
            )


def connectable(plan: Plan) -> Iterator[Connectable]:
    """Every building but those that sell keys."""
    for one in plan.opened:
        if not one.sells_keys:
            scopes = {offer.scope for offer in one.offers.values() if offer.access.key == "optional" or not offer.access.is_free}
            yield Connectable(one.name, one.title, one.mcp_path, frozenset({*scopes, ALL} if scopes else ()), one.loaded.building.holdings)
    for closed in plan.closed:
        scopes = {closed.table.scope or closed.name, ALL}
        yield Connectable(closed.name, closed.name, mcp_path_of(closed), frozenset(scopes))


def opened(site: FeatureSite[ConnectTable]) -> ConnectedClients:
    """The connected clients of this process."""
    keys = site.core.keys
    tokens = AccessTokens(site.storage, now=site.clock, monotonic=site.elapsed, note_use=keys.tokens.note_use)
    return ConnectedClients(site.storage, tokens, keys.makers, now=site.clock, entropy=secrets.token_bytes)


building = Building(http=Connect, plans=ConnectPlan, state=opened)
