"""The visitor of a page: by which key it may call tools, the calls that pages make for it, and what the buildings show of themselves."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

import anyio
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.types import Message, Scope

from campus.caller import ABSENT, Caller, Credential, Key
from campus.catalog.server import OpenBuilding
from campus.context import CONTEXT, Context, context_of
from campus.keys.keyring import KeyRing
from campus.keys.sessions import Sessions
from campus.layout.forms import Cookies
from campus.paywall.admission import ALL, Paywall, bearer
from campus.site import Site
from twins import Answer, Operation, Problem, RouteTable

log = logging.getLogger(__name__)
STANDARD_MEMBERS = ("type", "title", "status", "detail", "code", "request_id", "errors", "headers")
PASSED_ON = ("type", "http_version", "server", "client", "scheme", "root_path", "extensions", "asgi", "request_id")
"""What the call of a page has in common with the request for the page; not its headers, such as its cookies."""


@dataclass(frozen=True)
class ToolRequest:
    """One HTTP request of a tool; `target` is the path with its query, `body` the JSON that is sent."""

    method: str
    target: str
    body: Mapping[str, Any] | None


@dataclass(frozen=True)
class Visitors:
    paywall: Paywall
    keys: KeyRing
    sessions: Sessions
    cookies: Cookies
    buildings: MutableMapping[str, OpenBuilding]
    sites: Mapping[str, Site[Any, Any]]
    table: Callable[[], RouteTable]  # The HTTP routes of all tools.

    async def credential(self, request: Request) -> Credential:
        """The key of the request's Authorization header, else the one that the visitor signed in with."""
        context = context_of(request.scope)
        context.is_personal = True
        if (found := context.credential) is None:
            if (token := bearer(request.scope)) is not None:
                found = await self.keys.tokens.find(token)
            elif session_id := self.cookies.sent(request, self.cookies.session):
                found = await self.sessions.find(session_id)
            else:
                found = ABSENT
            context.credential = found
        return found

    async def caller(self, building: str, request: Request) -> Caller:
        """The visitor as a caller of the building's tools; `.key` is set only if it is valid for the building."""
        credential = await self.credential(request)
        key = credential.valid_key
        covers = key is not None and key.scope in (self.buildings[building].scope, ALL)
        return Caller(key if covers else None, None, "http", _address(request))

    async def admit(self, building: str, request: Request, tool: str) -> Caller:
        """The visitor as the caller of one tool. Problem 402 or 403, as the tool itself would refuse; 404 if it is hidden.

        The visitor's key is looked up again each time, so that a page which goes on for long ends with the key.
        """
        context_of(request.scope).credential = None
        offer = self.buildings[building].offers.get(tool)
        if offer is None:
            raise Problem(404, "not_found", f"the tool {tool} is not available here")
        scope = {**request.scope, CONTEXT: Context(credential=await self.credential(request))}
        return await self.paywall.admit(offer, scope, frame="http")

    async def call(self, building: str, request: Request, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a building's tool for the visitor. Raises the Problem that a caller would receive."""
        return json.loads(await self.written(building, request, tool, "application/json", arguments))

    async def written(self, building: str, request: Request, tool: str, media_type: str, arguments: Mapping[str, Any]) -> bytes:
        """As `call`, in one of the formats that the tool's answers have."""
        operation = self.buildings[building].operations.get(tool)
        if operation is None:
            raise Problem(404, "not_found", f"the tool {tool} is not available here")
        status, body, headers = await self.respond(call_of(operation, arguments), request, media_type=media_type)
        if status < 400:
            return body
        answer = json.loads(body)
        more = {name: value for name, value in answer.items() if name not in STANDARD_MEMBERS}
        raise Problem(status, str(answer.get("code")), str(answer.get("detail")), headers=passed_on(headers), **more)

    async def respond(self, call: ToolRequest, request: Request, *, media_type: str = "application/json") -> Answer:
        credential = await self.credential(request)
        path, _, query = call.target.partition("?")
        body = b"" if call.body is None else json.dumps(call.body).encode()
        scope: Scope = {
            **{name: request.scope[name] for name in PASSED_ON if name in request.scope},
            **{"method": call.method, "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode()},
            CONTEXT: Context(credential=credential),
        }
        scope["headers"] = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))] if body else []
        scope["headers"].append((b"accept", media_type.encode()))
        found = self.table().find(scope["path"])
        if found is None:
            raise Problem(404, "not_found", "this call has no address; check the arguments")
        endpoint, scope["path_params"] = found
        messages: list[Message] = []
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not unread:
                await anyio.sleep_forever()  # the visitor is not seen to leave: the call runs to its end
            return unread.pop()

        async def send(message: Message) -> None:
            messages.append(message)

        await endpoint(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(messages[0]["status"], body, tuple(messages[0].get("headers", ())))

    async def usage(self, key: Key) -> dict[str, str]:
        """What a key uses of each building that it opens, in a few words. A building that fails is logged and left out."""
        found = {}
        for name, building in self.buildings.items():
            if (usage := building.loaded.building.usage) is not None and key.scope in (building.scope, ALL):
                try:
                    found[name] = await usage(self.sites[name], key)
                except Exception:  # a building's code may raise anything; the page shows the key and how to renew it
                    log.exception("usage failed", extra={"building": name})
        return found

    async def highlights(self, request: Request) -> Mapping[str, Markup]:
        """What the buildings show of themselves on the start page, by name. One that fails is logged and left out."""
        found: dict[str, Markup] = {}
        for name, building in self.buildings.items():
            if (highlight := building.loaded.building.highlight) is None:
                continue
            try:
                found[name] = escape(await highlight(request, replace(self.sites[name], visitors=self)))
            except Problem:
                continue  # such as no list yet
            except Exception:  # a building's code may raise anything; the start page shows the others
                log.exception("highlight failed", extra={"building": name})
        return {name: part for name, part in found.items() if part}


def call_of(operation: Operation, arguments: Mapping[str, Any]) -> ToolRequest:
    method = operation.methods[0]
    path = operation.path
    rest = dict(arguments)
    for name in operation.route.placeholders:
        path = path.replace(f"{{{name}}}", quote(spelled(rest.pop(name, name.upper())), safe=""))
    if method not in ("GET", "DELETE"):
        return ToolRequest(method, path, rest)
    query = [
        (operation.by_name[name].wire if name in operation.by_name else name, spelled(item))
        for name, value in rest.items()
        if value is not None
        for item in (value if isinstance(value, list) else [value])
    ]
    return ToolRequest(method, f"{path}?{urlencode(query)}" if query else path, None)


def spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Of the headers of an answer, what holds for the page that shows it too: when to try again."""
    again = dict(headers).get(b"retry-after")
    return {} if again is None else {"Retry-After": again.decode("latin-1")}


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
