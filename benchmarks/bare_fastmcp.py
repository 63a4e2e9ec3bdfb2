"""Baseline of MCP: bare FastMCP servers with the tools that campus opens too. `bare_fastmcp PORT as-campus|as-users`.

`as-campus` serves them exactly as campus is served: with its HTTP protocol and its settings of the garbage collector. `as-users`
serves them as their users do: plain uvicorn, on uvloop and httptools, without an access log.

/stateless/mcp has the cure of twins.serve_schemas: without it mcp lists all tools before each call of its current version.
/as-shipped/mcp goes without the cure. /sessions/mcp keeps sessions for the versions with a handshake, as FastMCP does by default.
/attached/mcp is the same server behind twins.attach, without campus.
"""

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

import anyio
from fastmcp import FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.baseline_server import listen
from buildings.cve.models import Brief
from buildings.cve.ranking.results import brief_of
from buildings.cve.sample import sample_edition
from campus.cli.running import NEW_OBJECTS
from campus.http.server import bind, serve
from twins import attach, serve_schemas

COUNTRY = "US"
Country = Annotated[str, Field(description="Country whose list to return.")]
READ_ONLY = ToolAnnotations(read_only_hint=True)
HOST = "127.0.0.1"


class Sum(BaseModel):
    """A sum."""

    sum: int


async def add(a: int, b: int = 2) -> Sum:
    """Add two numbers."""
    return Sum(sum=a + b)


def small1() -> FastMCP[Any]:
    """A server of one small tool, `add_0`."""
    return _small(1)


def small30() -> FastMCP[Any]:
    """A server of 30 small tools: `add_0` and the same under other names."""
    return _small(30)


def large1() -> FastMCP[Any]:
    """A server whose one tool, `brief`, returns a day's list of the cve building: 11 KB."""
    mcp: FastMCP[Any] = FastMCP("List", instructions="Says which vulnerabilities to fix first.")
    edition = sample_edition()
    made = brief_of(edition, today=edition.day)

    async def brief(country: Country = COUNTRY) -> Brief:
        """The day's 25 vulnerabilities to fix first, ranked by real-world exploitation."""
        return made

    mcp.add_tool(Tool.from_function(brief, annotations=READ_ONLY))
    return mcp


def _small(count: int) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP(f"Small {count}", instructions="Adds numbers.")
    for number in range(count):
        mcp.add_tool(Tool.from_function(add, name=f"add_{number}", annotations=READ_ONLY))
    return mcp


SERVERS = {"small1": small1, "small30": small30, "large1": large1}
"""The servers by name; campus opens them as buildings."""


class Bare:
    """All servers in all variants, by path."""

    def __init__(self) -> None:
        self._cured: list[FastMCP[Any]] = []
        self._apps = {path: app for name in SERVERS for path, app in self._variants(name)}
        self._well: ASGIApp = PlainTextResponse("ok")
        self._lifespan = Starlette(lifespan=self.running)

    def _variants(self, name: str) -> Iterator[tuple[str, Starlette]]:
        for variant in ("stateless", "as-shipped", "sessions", "attached"):
            path = f"/{name}/{variant}/mcp"
            server = SERVERS[name]()
            if variant in ("stateless", "sessions"):
                self._cured.append(server)
            if variant == "attached":
                yield path, attach(server, mcp_path=path, stateless=True)
            else:
                yield path, server.http_app(path=path, stateless_http=variant != "sessions")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._lifespan if scope["type"] == "lifespan" else self._apps.get(scope["path"], self._well)
        await app(scope, receive, send)

    @asynccontextmanager
    async def running(self, _: Any = None) -> AsyncIterator[None]:
        """The lifespan of all servers."""
        async with AsyncExitStack() as stack:
            for app in self._apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            for server in self._cured:
                await serve_schemas(server)
            yield

    async def serve_as_campus(self, port: int) -> None:
        """Serve until SIGTERM, with campus's protocol and its settings of the garbage collector."""
        async with self.running():
            gc.freeze()
            gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
            await serve(self, bind(HOST, port))

    def serve_as_users(self, port: int) -> None:
        """Serve until SIGTERM, with uvicorn as it is."""
        listen(self, port=port)


if __name__ == "__main__":
    if sys.argv[2] == "as-users":
        Bare().serve_as_users(int(sys.argv[1]))
    else:
        anyio.run(Bare().serve_as_campus, int(sys.argv[1]), backend_options={"use_uvloop": True})
