"""The direct MCP endpoint answers every request as the server's own app does: whatever the tool, the version and the request."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, NamedTuple

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastmcp import FastMCP
from hypothesis import given
from hypothesis import strategies as st
from mcp_odd_tools import CALLS, odd_server
from mcp_oracle import ENVELOPE, LEGACY, METAS, MODERN, VERSIONS, Compared, Request, calls, compare, request_of, unusual
from starlette.types import ASGIApp
from wikipedia_mcp.server import create_server

from twins import ArgumentChecker, DirectMcp, McpCall, McpResult, operations_of, serve_schemas

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),  # one tool returns another type than it declares
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),  # logs and progress: older clients have them
]
EVERY = 4
"""Of the unusual requests, this part is sent here; `make conformance` sends all."""
WITHOUT_KEY = {"none": None}


class Pair(NamedTuple):
    """A server's own app, and the direct endpoint before it."""

    own: ASGIApp
    direct: ASGIApp


@asynccontextmanager
async def open_pair(server: FastMCP[Any], *, stateless: bool = True, **options: Any) -> AsyncIterator[Pair]:
    app = server.http_app(path="/mcp", stateless_http=stateless)
    await serve_schemas(server)
    checkers = [ArgumentChecker(server, operation) for operation in await operations_of(server)]
    async with app.router.lifespan_context(app):
        yield Pair(app, DirectMcp(app, server, checkers, stateless=stateless, explains=True, **options))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with open_pair(odd_server()) as opened:
        yield opened


def agree(compared: Compared, *, directly: int) -> None:
    assert compared.differences == []
    assert compared.direct >= directly, "hardly any answer was direct: the comparison proves nothing"


async def test_every_kind_of_tool_answers_alike_in_every_version(pair: Pair) -> None:
    agree(await compare(*pair, "/mcp", calls(CALLS, tokens=WITHOUT_KEY, versions=(MODERN, LEGACY))), directly=120)
    half = calls([("half_a_character", {})], tokens=WITHOUT_KEY, versions=(MODERN,))  # in older versions mcp does not answer
    agree(await compare(*pair, "/mcp", half), directly=1)
    older = [version for version in VERSIONS if version not in (MODERN, LEGACY)]
    agree(await compare(*pair, "/mcp", islice(calls(CALLS, tokens=WITHOUT_KEY, versions=older), 0, None, 3)), directly=50)


async def test_unusual_requests_are_answered_alike(pair: Pair) -> None:
    requests = islice(unusual("literal", {"mode": "a"}), 0, None, EVERY)
    agree(await compare(*pair, "/mcp", requests), directly=60)
    levels = ({}, {"io.modelcontextprotocol/logLevel": 0})
    agree(await compare(*pair, "/mcp", [request_of(f"{meta}", MODERN, "tools/list", {}, meta=meta) for meta in levels]), directly=1)


async def test_notifications_of_a_tool_reach_its_caller_alike(pair: Pair) -> None:
    metas = ({"progressToken": 7}, {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}, *METAS[:3])
    tools = ("asks_context", "hidden_context", "logs", "state", "who", "samples")
    requests = [
        request_of(f"{tool} {meta}", version, "tools/call", {"name": tool, "arguments": {}}, meta=meta)
        for tool in tools
        for meta in metas
        for version in (MODERN, LEGACY)
    ]
    agree(await compare(*pair, "/mcp", requests), directly=40)


async def test_a_public_server_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # its tools find no network, here as in both answers
    async with open_pair(create_server(language="de")) as opened:
        tools = [("search_wikipedia", {"query": "x"}), ("get_article", {}), ("get_links", {"title": 5}), ("get_sections", {"tidle": "x"})]
        requests = [*calls(tools, tokens=WITHOUT_KEY, versions=(MODERN, LEGACY)), *islice(unusual("get_article", {}), 0, None, 3 * EVERY)]
        agree(await compare(*opened, "/mcp", requests), directly=10)


async def test_a_server_that_keeps_sessions_is_answered_directly_in_the_current_version_only() -> None:
    async with open_pair(odd_server(), stateless=False) as opened:
        modern = calls(CALLS[:20], tokens=WITHOUT_KEY, versions=(MODERN,))
        agree(await compare(*opened, "/mcp", modern), directly=15)
        legacy = await compare(*opened, "/mcp", calls(CALLS[:5], tokens=WITHOUT_KEY, versions=(LEGACY, None)))
        assert legacy.direct == 0


@pytest.mark.parametrize(
    "options", [{"mask_error_details": True}, {"strict_input_validation": True}], ids=lambda options: next(iter(options))
)
async def test_settings_of_the_server_hold_for_direct_answers(options: dict[str, Any]) -> None:
    async with open_pair(odd_server(**options)) as opened:
        agree(await compare(*opened, "/mcp", calls(CALLS, tokens=WITHOUT_KEY, versions=(MODERN,))), directly=50)


async def test_the_oracle_sees_a_field_that_is_missing_and_a_gate_that_is_skipped() -> None:
    async def forgets_its_meta(call: McpCall) -> McpResult:
        result = await call.run()
        result.meta = None
        return result

    async def says_nothing_of_errors(call: McpCall) -> McpResult:
        return await call._replace(operation=call.operation).run()

    tools = [("number", {}), ("tool_error", {})]
    for gate, wrong in ((forgets_its_meta, "number"), (says_nothing_of_errors, "tool_error")):
        async with open_pair(odd_server(), gate=gate) as opened:
            compared = await compare(*opened, "/mcp", calls(tools, tokens=WITHOUT_KEY, versions=(MODERN, LEGACY)))
            assert len([each for each in compared.differences if wrong in each]) >= 2, compared


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(("literal", "text", "points", "nested", "number", "untyped")) | st.text()
SAID = {"mode": st.just("a") | JSON, "n": st.integers(-2, 12) | JSON, "say": st.text() | JSON, "point": JSON, "kind": JSON}
ARGUMENTS = st.fixed_dictionaries({}, optional=SAID) | JSON
ENVELOPES = st.fixed_dictionaries({}, optional={name: st.just(value) | JSON for name, value in ENVELOPE.items()} | {"progressToken": JSON})
PARAMS = st.fixed_dictionaries({}, optional={"name": NAMES, "arguments": ARGUMENTS, "_meta": ENVELOPES | JSON, "cursor": JSON})
METHODS = st.sampled_from(("tools/call", "tools/call", "tools/call", "tools/list", "ping", "initialize", "server/discover")) | JSON
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")}, optional={"id": st.integers() | JSON, "method": METHODS, "params": PARAMS | JSON, "odd": JSON}
)


@pytest.fixture(scope="module")
def portal() -> Iterator[Callable[..., Any]]:
    with start_blocking_portal() as blocking, _opened(blocking) as pair:
        yield lambda requests: blocking.call(compare, *pair, "/mcp", requests)


def _opened(blocking: BlockingPortal) -> Any:
    return blocking.wrap_async_context_manager(open_pair(odd_server()))


@given(message=MESSAGES, version=st.sampled_from(VERSIONS), agrees=st.booleans())
def test_generated_messages_are_answered_alike(
    portal: Callable[..., Any], message: dict[str, Any], version: str | None, agrees: bool
) -> None:
    request = request_of("generated", version, message.get("method"), raw=json.dumps(message).encode())
    params = message.get("params")
    if agrees and isinstance(params, dict):
        if version == MODERN and "_meta" not in params:
            params["_meta"] = dict(ENVELOPE)
        name = params.get("name")
        headers = {**request.headers} | ({"mcp-name": name} if isinstance(name, str) and name.isascii() and name.isprintable() else {})
        request = Request(request.what, headers, json.dumps(message).encode())
    assert portal([request]).differences == []
