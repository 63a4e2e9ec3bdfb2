"""Compares MCP as campus serves it, with a key and the gate, with bare FastMCP servers of the same tools, and with the tools' twins."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from benchmarks.bare_fastmcp import SERVERS
from benchmarks.comparisons import Comparison, checked, in_turns, lines_of, target_of
from benchmarks.figures import Line
from benchmarks.load import CONNECTIONS, ask
from benchmarks.processes import Server, baseline, campus
from benchmarks.wire import LEGACY, MODERN, get, mcp_request, open_session, result_of, tool_names_of
from tests.clients.browser import allow, answer_in

BUILDING = """
[buildings.{name}]
server = "benchmarks.bare_fastmcp:{name}"
scope = "cve"
tools = {{ "*" = {{ price = "0.005" }} }}
"""
CONFIG = """
openapi = "small1"
[connect]
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
""" + "".join(BUILDING.format(name=name) for name in SERVERS)
ARGUMENTS = {"country": "US"}
SESSION_REQUESTS = 256
OF_A_TWIN = 1 / 1.7
"""A call over MCP may use 1.7 times the CPU of its twin: it sends and receives more, and says everything twice."""
Call = tuple[str, Mapping[str, Any]]
AS_USERS = "as-shipped"
VARIANTS = {
    "stateless": "bare FastMCP",
    "sessions": "bare FastMCP with sessions",
    AS_USERS: "bare FastMCP as its users serve it: plain uvicorn, without twins.serve_schemas",
}
"""What campus is compared with, by the path of the server. All but the last are served exactly as campus is."""


@dataclass(frozen=True)
class McpServers:
    """Campus, with a key for all its tools, and bare FastMCP servers: as campus is served, and on plain uvicorn."""

    campus: Server
    key: str
    bare: Server
    on_uvicorn: Server

    def of(self, variant: str) -> Server:
        """The server with this variant."""
        return self.on_uvicorn if variant == AS_USERS else self.bare


def mcp_lines(folder: Path, *, rounds: int, seconds: float, only: str) -> Iterator[Line]:
    """The comparisons whose names contain `only`."""

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        place = folder / f"campus{number}"
        place.mkdir(parents=True)
        with ExitStack() as stack:
            server, served = stack.enter_context(campus(place, CONFIG))
            bare, on_uvicorn = (stack.enter_context(baseline("bare_fastmcp", way)) for way in ("as-campus", "as-users"))
            servers = McpServers(server, served.key("cve"), bare, on_uvicorn)
            yield [one for one in mcp_comparisons(servers) if only.lower() in one.what.lower()]

    yield from lines_of(in_turns(opened, rounds=rounds, seconds=seconds))


def mcp_comparisons(servers: McpServers) -> Iterator[Comparison]:
    """Calls and lists over MCP, with a key, against bare FastMCP servers with the same tools and no gate; and against their twins."""
    add, brief = ("add_0", {"a": 1, "b": 2}), ("brief", ARGUMENTS)
    for variant in ("stateless", AS_USERS):
        yield _of_tool(servers, "1 small tool", add, goal=10, building="small1", revision=MODERN, variant=variant)
        yield _of_tool(servers, "30 small tools", add, goal=20, building="small30", revision=MODERN, variant=variant)
        yield _of_tool(servers, "1 small tool", add, goal=10, building="small1", revision=LEGACY, variant=variant)
        for revision in (MODERN, LEGACY):
            yield _of_tool(servers, "a list of 11 KB, kept", brief, goal=12, building="large1", revision=revision, variant=variant)
            yield _of_tools_list(servers, goal=30, building="small30", revision=revision, variant=variant)
    yield _of_tool(servers, "1 small tool", add, goal=8, building="small1", revision=LEGACY, variant="sessions")
    for revision in (MODERN, LEGACY):
        yield _of_attached(servers, "1 small tool", add, goal=10, building="small1", revision=revision)
    yield _of_connected_client(servers, add, building="small1")
    yield _of_twin(servers, "1 small tool", add, "/v1/small1/add_0?a=1&b=2", building="small1")
    yield _of_twin(servers, "a list of 11 KB, kept", brief, "/v1/large1/brief?country=US", building="large1")


def _of_tool(servers: McpServers, what: str, call: Call, *, goal: float, building: str, revision: str, variant: str) -> Comparison:
    bare = servers.of(variant)
    path = f"/{building}/{variant}/mcp"
    params = {"name": call[0], "arguments": call[1]}
    ours = [mcp_request(f"/{building}/mcp", "tools/call", params, port=servers.campus.port, revision=revision, key=servers.key)]
    theirs = [mcp_request(path, "tools/call", params, port=bare.port, revision=revision)]
    if variant == "sessions":
        # ids of requests that run at the same time in one session must differ
        sessions = [open_session(path, port=bare.port) for _ in range(CONNECTIONS)]
        theirs = [
            mcp_request(
                path, "tools/call", params, port=bare.port, revision=revision, session=sessions[number % CONNECTIONS], number=number
            )
            for number in range(1, SESSION_REQUESTS + 1)
        ]
    name = f"MCP {revision} call, {what} ÷ {VARIANTS[variant]}"
    return checked(Comparison(name, goal, target_of(servers.campus, ours), target_of(bare, theirs)), read=(result_of, result_of))


def _of_attached(servers: McpServers, what: str, call: Call, *, goal: float, building: str, revision: str) -> Comparison:
    bare = servers.bare
    params = {"name": call[0], "arguments": call[1]}
    paths = (f"/{building}/attached/mcp", f"/{building}/stateless/mcp")
    ours, theirs = (mcp_request(path, "tools/call", params, port=bare.port, revision=revision) for path in paths)
    name = f"MCP {revision} call, {what}, twins.attach ÷ bare FastMCP"
    return checked(Comparison(name, goal, target_of(bare, [ours]), target_of(bare, [theirs])), read=(result_of, result_of))


def _of_tools_list(servers: McpServers, *, goal: float, building: str, revision: str, variant: str) -> Comparison:
    bare = servers.of(variant)
    ours = mcp_request(f"/{building}/mcp", "tools/list", {}, port=servers.campus.port, revision=revision, key=servers.key)
    theirs = mcp_request(f"/{building}/{variant}/mcp", "tools/list", {}, port=bare.port, revision=revision)
    name = f"MCP {revision} tools/list of 30 ÷ {VARIANTS[variant]}"
    ask(servers.campus, [ours])  # the first answer is the server's own, and is learnt
    targets = target_of(servers.campus, [ours]), target_of(bare, [theirs])
    return checked(Comparison(name, goal, *targets), read=(tool_names_of, tool_names_of))


def _of_connected_client(servers: McpServers, call: Call, *, building: str) -> Comparison:
    """A call with an access token at /connect, and the same call with the key itself."""
    server = servers.campus
    params = {"name": call[0], "arguments": call[1]}
    paths = (f"/connect/{building}/mcp", f"/{building}/mcp")
    keys = (access_token(f"http://127.0.0.1:{server.port}", servers.key, building), servers.key)
    ours, theirs = (
        mcp_request(path, "tools/call", params, port=server.port, revision=MODERN, key=key) for path, key in zip(paths, keys, strict=True)
    )
    name = f"MCP {MODERN} call, 1 small tool, a connected client ÷ with a key"
    return checked(Comparison(name, 0.9, target_of(server, [ours]), target_of(server, [theirs])), read=(result_of, result_of))


def access_token(url: str, key: str, building: str) -> str:
    """An access token of a client that is let in by the key."""
    callback = "http://localhost:1/callback"
    verifier = "v" * 43
    issuer = f"{url}/connect"
    client = httpx.post(f"{issuer}/register", json={"redirect_uris": [callback]}).json()["client_id"]
    asked = {"client_id": client, "redirect_uri": callback}
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
    request = {**asked, "response_type": "code", "code_challenge": challenge, "resource": f"{issuer}/{building}/mcp"}
    code = answer_in(allow(f"{issuer}/authorize?{urlencode(request)}", key))["code"]
    form = {**asked, "grant_type": "authorization_code", "code": code, "code_verifier": verifier}
    return str(httpx.post(f"{issuer}/token", data=form).json()["access_token"])


def _of_twin(servers: McpServers, what: str, call: Call, path: str, *, building: str) -> Comparison:
    server = servers.campus
    params = {"name": call[0], "arguments": call[1]}
    ours = mcp_request(f"/{building}/mcp", "tools/call", params, port=server.port, revision=MODERN, key=servers.key)
    name = f"MCP {MODERN} call, {what} ÷ the same call by its twin"
    targets = target_of(server, [ours]), target_of(server, [get(path, port=server.port, key=servers.key)])
    return checked(Comparison(name, OF_A_TWIN, *targets), read=(result_of, json.loads))
