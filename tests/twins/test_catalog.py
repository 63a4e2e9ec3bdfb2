"""Which tools may be called without their server, and when a list of them holds no longer: every kind of FastMCP's is judged."""

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.middleware import Middleware
from fastmcp.server.providers import Provider
from fastmcp.server.transforms import Namespace, ToolTransform, Transform, Visibility
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ToolTransformConfig

from twins import Catalog, route

pytestmark = pytest.mark.anyio
PACKAGES = ("fastmcp.server", "fastmcp.tools", "fastmcp.experimental.transforms")
DIRECT = {
    Transform: {
        *("Visibility", "Namespace", "ToolTransform", "VersionFilter", "PromptsAsTools", "ResourcesAsTools"),
        *("BM25SearchTransform", "RegexSearchTransform", "JevSearchTransform", "CodeMode"),
    },
    Middleware: {"DereferenceRefsMiddleware"},
    Provider: {"LocalProvider", "_SchemaCacheLocalProvider"},
    Tool: {"FunctionTool"},
}
"""Kinds beside which, or of which, a tool may be called directly: all of their code is the same for every caller, and known to twins."""
BY_THE_SERVER = {
    Transform: {"CatalogTransform", "BaseSearchTransform"},
    Middleware: {
        *("AuthMiddleware", "ResponseCachingMiddleware", "ErrorHandlingMiddleware", "RetryMiddleware", "BaseLoggingMiddleware"),
        *("LoggingMiddleware", "StructuredLoggingMiddleware", "PingMiddleware", "RateLimitingMiddleware", "TimingMiddleware"),
        *("SlidingWindowRateLimitingMiddleware", "ResponseLimitingMiddleware", "DetailedTimingMiddleware", "ToolInjectionMiddleware"),
        *("PromptToolMiddleware", "ResourceToolMiddleware", "ProxyInitializeMiddleware", "ProxyMetadataMiddleware"),
    },
    Provider: {
        *("SessionProvider", "ProxyProvider", "OpenAPIProvider", "FastMCPProvider", "AggregateProvider", "FileSystemProvider", "FastMCP"),
        *("SkillProvider", "SkillsDirectoryProvider", "_WrappedProvider", "FastMCPApp", "ClaudeSkillsProvider", "CursorSkillsProvider"),
        *("VSCodeSkillsProvider", "CodexSkillsProvider", "GeminiSkillsProvider", "GooseSkillsProvider", "CopilotSkillsProvider"),
        *("OpenCodeSkillsProvider", "FastMCPProxy"),
    },
    Tool: {"ProxyTool", "OpenAPITool", "FastMCPProviderTool", "TransformedTool"},
}


def kinds_of(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("fastmcp."):
            yield kind
            yield from kinds_of(kind)


def import_all() -> None:
    for package in map(import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".auth." not in module.name:
                try:
                    import_module(module.name)
                except ImportError:  # needs a package that is not installed
                    continue


@pytest.mark.parametrize("base", DIRECT)
def test_every_kind_that_fastmcp_has_is_judged(base: type) -> None:
    import_all()
    assert {kind.__name__ for kind in kinds_of(base)} <= DIRECT[base] | BY_THE_SERVER[base]


async def why(change: Callable[[FastMCP[Any]], object]) -> str | None:
    mcp: FastMCP[Any] = FastMCP("kinds")

    mcp.tool(lambda: "plain", name="p_plain")
    change(mcp)
    catalog = await Catalog.of(mcp)
    return catalog.why_not(next(tool for tool in catalog.tools if tool.name.endswith("plain")))


def bare(kind: type, base: type) -> Any:
    made = type(kind.__name__, (kind,), {"__init__": lambda self: base.__init__(self)})()
    made.__class__ = kind
    return made


@pytest.mark.parametrize("base", [Transform, Middleware])
async def test_calls_are_direct_beside_these_kinds_and_beside_nothing_derived_from_them(base: type) -> None:
    import_all()
    add = FastMCP.add_transform if base is Transform else FastMCP.add_middleware
    for kind in kinds_of(base):
        judged = Catalog(FastMCP("kinds", middleware=[bare(kind, base)] if base is Middleware else []))
        if base is Transform:
            server: FastMCP[Any] = FastMCP("kinds")
            add(server, bare(kind, base))
            judged = Catalog(server)
        assert (judged.why is None) is (kind.__name__ in DIRECT[base]), kind
        derived = type(f"Own{kind.__name__}", (kind,), {"__module__": "tests"})
        server = FastMCP("kinds")
        add(server, bare(derived, base))
        assert Catalog(server).why is not None, derived


class Passes(Middleware):
    """Takes no part in calls."""

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


class Watches(Middleware):
    async def on_message(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


def with_a_hook() -> Middleware:
    middleware = Passes()
    middleware.on_call_tool = Watches().on_message  # type: ignore[method-assign]
    return middleware


class Own(Provider):
    """An author's own provider."""


class GateSide(Passes):
    """It may be the only gate of a server that has no other."""

    twin_safe = True


class Present(ServerExtension):
    identifier = "test.campus/present"


def other() -> FastMCP[Any]:
    return FastMCP("other")


def patched(mcp: FastMCP[Any]) -> None:
    mcp.call_tool = mcp.call_tool  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda mcp: None, None),
        (lambda mcp: mcp.add_middleware(Passes()), None),
        (lambda mcp: mcp.add_middleware(Watches()), "middleware takes part in calls"),
        (lambda mcp: mcp.add_middleware(with_a_hook()), "middleware takes part in calls"),
        (lambda mcp: mcp.add_middleware(GateSide()), "middleware takes part in calls"),
        (lambda mcp: mcp.mount(other(), namespace="other"), None),
        (lambda mcp: mcp.mount(other(), namespace="p"), "another provider may have it"),
        (lambda mcp: mcp.mount(other()), "another provider may have it"),
        (lambda mcp: mcp.add_provider(Own()), "another provider may have it"),
        (lambda mcp: mcp.add_transform(Namespace("n")), None),
        (lambda mcp: mcp.local_provider.add_transform(Visibility(True, names={"p_plain"})), None),
        (lambda mcp: mcp.add_transform(Transform()), "a transform may decide by caller"),
        (lambda mcp: mcp.local_provider.add_transform(Transform()), "a transform may decide by caller"),
        (lambda mcp: mcp.add_extension(Present()), "an extension may take part in calls"),
        (patched, "the server overrides FastMCP"),
    ],
)
async def test_the_reason_why_the_server_is_asked(change: Callable[[FastMCP[Any]], object], reason: str | None) -> None:
    assert await why(change) == reason


async def test_what_may_not_be_called_directly_of_a_plain_server() -> None:
    mcp: FastMCP[Any] = FastMCP("kinds")

    @mcp.tool(meta=route("GET /plain"))
    def plain() -> str:
        return "plain"

    @mcp.tool(auth=lambda context: True)
    def locked() -> str:
        return "locked"

    tool = await mcp.get_tool("plain")
    assert tool is not None
    mcp.add_tool(Tool.from_tool(tool, name="transformed", description="x"))
    catalog = await Catalog.of(mcp)
    assert {each.name: catalog.why_not(each) for each in catalog.tools} == {
        "plain": None,
        "locked": "its auth or its tasks are the server's",
        "transformed": "it is no plain function",
    }
    assert not catalog.is_constant
    mcp.local_provider.remove_tool("locked")
    assert (await Catalog.of(mcp)).is_constant


async def test_a_transform_that_makes_each_tool_anew_is_no_change_for_ever() -> None:
    mcp: FastMCP[Any] = FastMCP("kinds")
    mcp.tool(lambda: "x", name="plain")
    mcp.local_provider.add_transform(Visibility(True, names={"plain"}))
    mcp.local_provider.add_transform(ToolTransform({"plain": ToolTransformConfig(name="renamed")}))
    catalog = await Catalog.of(mcp)
    assert await catalog.holds()
    mcp.disable(names={"renamed"})
    assert not await catalog.holds()
