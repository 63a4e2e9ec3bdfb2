"""A campus for tests, TestCampus: real servers and storage in this process; the test sets the clock and the feeds' content."""

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import quote

import anyio
import httpx
import httpx2
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from pydantic import SecretStr
from starlette.types import ASGIApp

from campus.app import Campus, assemble
from campus.asgi import open_admin, open_app
from campus.building import Building
from campus.config import config_model
from campus.outbound.http_clients import GuardedClient
from campus.site import Site
from twins import Operation

__all__ = ["Clock", "Reply", "TestCampus", "open_campus"]

Frame = Literal["http", "mcp"]
RESULTS = logging.getLogger("twins.tool.results")
ORIGIN = "http://campus.test"
ADMIN_ORIGIN = "http://localhost"


@dataclass
class Clock:
    """A clock that only the test moves; `seconds` is how far it has moved."""

    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0

    def __call__(self) -> datetime:
        """The time, in UTC."""
        return self.time

    def move(self, by: timedelta) -> None:
        """Let time pass."""
        self.time += by
        self.seconds += by.total_seconds()

    def step(self, by: timedelta) -> None:
        """Set the clock to another time, as an operator or a wrong time server does: no time passes."""
        self.time += by

    def elapsed(self) -> float:
        """The seconds that have passed."""
        return self.seconds


@dataclass(frozen=True)
class Reply:
    """The answer to a call, the same for both frames: `data` is the result or the problem; `status` its HTTP status.

    `terms` are the x402 terms if it was refused without payment; `receipt` is that of the payment if it was paid.
    """

    status: int
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, Any] | None = None
    receipt: Mapping[str, Any] | None = None

    @property
    def code(self) -> str | None:
        """The problem's code; None for an answer."""
        return self.data.get("code") if self.status >= 400 and isinstance(self.data, dict) else None


class Pays(Protocol):
    """An object that can pay, such as the Payer of campus.features.chain."""

    def payload(self, payment_required: Mapping[str, Any]) -> dict[str, Any]:
        """A signed payment for the terms."""
        ...


@dataclass(frozen=True)
class Asks:
    """What a call carries: a bearer token, a payment, or neither."""

    token: str | None = None
    payment: Mapping[str, Any] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that MCP sends too."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True)
class Built:
    """A building of the test, used like an entry point."""

    name: str
    building: Any

    def load(self) -> Any:
        """The building."""
        return self.building


class WrongResults(logging.Handler):
    """Collects what the log says of results that are not what their tools publish."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the sentence."""
        if record.levelno >= logging.ERROR:
            self.sentences.append(f"{vars(record)['tool']}: {record.getMessage()}")


@dataclass(frozen=True)
class TestCampus:
    """A campus that is open for a test; `call` calls a tool over HTTP or MCP."""

    __test__: ClassVar[bool] = False  # not a class of tests

    service: Campus
    app: ASGIApp
    http: httpx.AsyncClient
    frame: Frame
    main: str
    wrong: WrongResults = field(default_factory=WrongResults)

    @property
    def site(self) -> Site[Any, Any]:
        """The site of the first building."""
        return self.service.sites[self.main]

    def admin(self) -> httpx.AsyncClient:
        """A client of the operator's pages, to be used with `async with`: /metrics, and /readyz with every finding."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(open_admin(self.service)), base_url=ADMIN_ORIGIN)

    async def findings(self) -> Mapping[str, Sequence[str]]:
        """The findings of the readiness checks, by check."""
        async with self.admin() as admin:
            found: Mapping[str, Sequence[str]] = (await admin.get("/readyz")).json()["checks"]
        return found

    async def key(self, product: str) -> str:
        """A new key of a product: one product per building, with its name, and `all`."""
        _, token = await self.service.keys.issue(product)
        return token

    async def call(
        self,
        tool: str,
        /,
        *,
        key: str | None = None,
        payer: Pays | None = None,
        payment: Mapping[str, Any] | None = None,
        building: str | None = None,
        **arguments: Any,
    ) -> Reply:
        """Call a tool over the campus's frame; `key` is a token, or the name of a product to issue one of.

        `payer` pays if the call is refused without payment; `payment` is a signed payment that is sent at once. A tool that
        returns what it does not publish is an AssertionError, which says both.
        """
        if key is not None and not key.startswith("campus_"):
            key = await self.key(key)
        way = self._over_http if self.frame == "http" else self._over_mcp
        reply = await way(building or self.main, tool, arguments, Asks(key, payment))
        if payer is not None and reply.terms is not None:
            reply = await way(building or self.main, tool, arguments, Asks(key, payer.payload(reply.terms)))
        if reply.code == "invalid_result":
            self.wrong.sentences.clear()
            raise AssertionError(f"{tool}: {reply.data['detail']}")
        return reply

    def mcp(self, building: str | None = None, *, headers: Mapping[str, str] | None = None) -> Client[StreamableHttpTransport]:
        """An MCP client of one building, to be used with `async with`."""
        opened = next(one for one in self.service.plan.opened if one.name == (building or self.main))
        url = f"{ORIGIN}{opened.mcp_path}"
        return Client(StreamableHttpTransport(url, headers=dict(headers or {}), httpx_client_factory=self._client))

    async def run(self, job: str, **options: Any) -> None:
        """Run a job of the first building now; or BUILDING.JOB, also of a feature."""
        await self.service.run_job(job if "." in job else f"{self.main}.{job}", **options)

    @asynccontextmanager
    async def services(self) -> AsyncIterator[None]:
        """Run the buildings' services, as a server does, until the block ends. Without it none runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.service.run_services)
            yield
            tasks.cancel_scope.cancel()

    async def _over_http(self, building: str, tool: str, given: Mapping[str, Any], asks: Asks) -> Reply:
        operation = self._operation(building, tool)
        path = operation.path
        method = operation.methods[0]
        arguments = dict(given)
        if missing := [name for name in operation.route.placeholders if name not in arguments]:
            raise TypeError(f"the route of {tool}, {method} {path}, needs {missing[0]}; pass {missing[0]}=…, which MCP alone may leave out")
        for name in operation.route.placeholders:
            path = path.replace(f"{{{name}}}", quote(str(arguments.pop(name)), safe=""))
        headers = asks.headers | ({"PAYMENT-SIGNATURE": _encoded(asks.payment)} if asks.payment is not None else {})
        if method in ("GET", "DELETE"):
            query = {
                operation.by_name[name].wire if name in operation.by_name else name: _spelled(value)
                for name, value in arguments.items()
                if value is not None  # a query cannot express null; leaving it out means the default
            }
            response = await self.http.request(method, path, params=query, headers=headers)
        else:
            response = await self.http.request(method, path, json=arguments, headers=headers)
        said = _unwrapped(response.json(), operation.answer_schema)
        terms, receipt = (_decoded(response.headers.get(name)) for name in ("payment-required", "payment-response"))
        return Reply(response.status_code, said, response.headers, terms, receipt)

    def _operation(self, building: str, tool: str) -> Operation:
        its = next((one.operations for one in self.service.plan.opened if one.name == building), {})
        if tool not in its:
            raise LookupError(f"building {building!r} has no tool {tool!r}; its tools are: {', '.join(its) or 'none'}")
        return its[tool]

    async def _over_mcp(self, building: str, tool: str, arguments: Mapping[str, Any], asks: Asks) -> Reply:
        meta = {"x402/payment": asks.payment} if asks.payment is not None else None
        async with self.mcp(building, headers=asks.headers) as client:
            result = await client.call_tool(tool, dict(arguments), meta=meta, raise_on_error=False)
        structured = {} if result.structured_content is None else result.structured_content
        if result.is_error:
            terms = structured if "accepts" in structured else None
            return Reply(structured.get("status", 400), structured or {"detail": str(result.content)}, terms=terms)
        receipt = (result.meta or {}).get("x402/payment-response")
        schema = next(one for one in self.service.plan.opened if one.name == building).tools[tool].output_schema
        return Reply(200, _unwrapped(structured, schema), receipt=receipt)

    def _client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
        **options: Any,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=httpx2.ASGITransport(self.app), **options)


def _spelled(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | bool) else value


def _encoded(payment: Mapping[str, Any]) -> str:
    return b64encode(json.dumps(payment).encode()).decode()


def _decoded(header: str | None) -> Any:
    return None if header is None else json.loads(b64decode(header))


def _unwrapped(body: Any, schema: Mapping[str, Any] | None) -> Any:
    wrapped = schema and schema.get("x-fastmcp-wrap-result") and isinstance(body, dict) and body.keys() == {"result"}
    return body["result"] if wrapped else body


def feed_transport(feeds: Mapping[str, Any]) -> httpx.MockTransport:
    """A transport that answers with the given feeds: an object as JSON, bytes unchanged; 404 at any other address."""

    def answer(request: httpx.Request) -> httpx.Response:
        said = feeds.get(str(request.url))
        if said is None:
            return httpx.Response(404)
        return httpx.Response(200, content=said) if isinstance(said, bytes) else httpx.Response(200, json=said)

    return httpx.MockTransport(answer)


def _variable(name: str, building: str) -> str:
    return name if name.startswith("CAMPUS_") else f"CAMPUS_{building}_{name}".upper()


@contextmanager
def results_compared() -> Iterator[WrongResults]:
    """Raises AssertionError at its end if a tool returned what it does not publish, and no call has raised it."""
    wrong = WrongResults()
    RESULTS.addHandler(wrong)
    try:
        yield wrong
    finally:
        RESULTS.removeHandler(wrong)
    assert not wrong.sentences, "\n".join(wrong.sentences)


@asynccontextmanager
async def open_campus(
    *,
    frame: Frame = "http",
    settings: Mapping[str, Any] | None = None,
    feeds: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    storage: str | None = None,
    tools: Mapping[str, Any] | None = None,
    web: GuardedClient | None = None,
    tables: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    **buildings: Building | Any,
) -> AsyncIterator[TestCampus]:
    """Open buildings by name, each with a product of its name, and the product `all`; `call` uses the first building by default.

    Neither jobs nor services run by themselves: see `TestCampus.run` and `TestCampus.services`. A tool that returned what it
    does not publish is an AssertionError: of `call`, or at the end.

    `settings` and `tools` are the first building's table in campus.toml; `feeds` maps addresses to their answers, bytes or
    what is sent as JSON, and to None for one that is gone (404, as every other address); `storage` is a storage URL, by default
    a temporary directory; what another test stored there is there; `web` is the client for callers' URLs; `tables` are further
    tables of campus.toml, such as mail, payments and web. `secrets` are what the environment would hold, by variable, such as
    CAMPUS_TIDES_TOKEN, or by the field of the first building's settings, such as token; the environment itself is not read.
    """
    if not buildings:
        raise TypeError("open_campus() needs a building: open_campus(tides=building)")
    main = next(iter(buildings))
    with results_compared() as wrong, TemporaryDirectory() as folder:
        config = config_model().model_validate(
            {
                "server": {"public_url": ORIGIN, "openapi": main},
                "storage": {"url": storage or "sqlite:data"},
                "products": {name: {"scope": name, "price": "19", "term": "30 days"} for name in (*buildings, "all")},
                "buildings": {name: {**(settings or {}), "tools": tools or {}} if name == main else {} for name in buildings},
                "folder": Path(folder),
                "secrets": {_variable(name, main): SecretStr(value) for name, value in (secrets or {}).items()},
                "is_authors": True,
                **(tables or {}),
            }
        )
        installed: Sequence[Built] = [Built(name, building) for name, building in buildings.items()]
        client = httpx.AsyncClient(transport=feed_transport(feeds)) if feeds is not None else None
        clock = clock or Clock()
        async with (
            assemble(config, exclusive=False, clock=clock, elapsed=clock.elapsed, installed=installed, feeds=client, web=web) as campus,
            open_app(campus) as app,
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http,
        ):
            yield TestCampus(campus, app, http, frame, main, wrong)
