"""An author's FastMCP server behind campus: all that it was given passes, or is refused with a sentence. docs/fastmcp.md lists it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import fastmcp
from fastmcp import FastMCP
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.server import default_lifespan
from fastmcp.tools import FunctionTool, Tool
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
from mcp_types import Icon, ListToolsRequest
from uncalled_for import get_dependency_parameters

from campus.config import Config
from campus.errors import LoadError
from campus.installed import own_version
from campus.layout.assets import icons_of
from campus.paywall.server_gate import gate_of
from twins import extensions_of, hides_tools


class DereferenceOnce(DereferenceRefsMiddleware):
    """FastMCP's middleware that replaces the references in schemas of arguments, for each tool once instead of in each list.

    Anybody may ask for lists in ways that only the server answers, and with 30 tools this took nine tenths of the CPU of each. Hosts
    that cannot follow references hand on arguments only: what several parts of a result share is listed once, where they refer to it.
    """

    twin_safe = True

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tool, Tool]] = {}  # by identity, with the original tool: two providers may have one of the same key

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        tools, known = await call_next(context), self._known
        if any(id(tool) not in known for tool in tools):

            async def listed(context: MiddlewareContext[ListToolsRequest]) -> Sequence[Tool]:
                return tools

            dereferenced = await super().on_list_tools(context, listed)
            made = [new.model_copy(update={"output_schema": tool.output_schema}) for tool, new in zip(tools, dereferenced, strict=True)]
            known = self._known = {id(tool): (tool, new) for tool, new in zip(tools, made, strict=True)}
        return [known[id(tool)][1] for tool in tools]


def check_author(author: FastMCP[Any], building: str, *, exposed: Collection[str]) -> None:
    """LoadError for what campus cannot pass on: a login of the server's own, requests that nobody pays for, overridden methods."""
    if author.auth is not None:
        raise LoadError(
            f"building {building!r} has auth=, which blocks keys and free tools; remove it: campus controls the access to its tools"
        )
    for identifier, methods in getattr(author, "_extension_methods", {}).items() if "methods" not in exposed else ():
        if methods and identifier != TASKS_EXTENSION_ID:
            raise LoadError(
                f"the extension {identifier} of building {building!r} answers the requests {', '.join(methods)}, which no key or price"
                f' restricts; remove it, or write expose = ["methods"] under [buildings.{building}] to let everybody send them'
            )
    if any(map(hides_tools, author.providers)):
        raise LoadError(
            f"a server that is mounted in the server of building {building!r} has tool search or code mode, which hides its tools and"
            " their prices; add that transform to the building's own server instead"
        )
    if overridden := sorted(_overridden(author)):
        raise LoadError(
            f"the server of building {building!r} overrides {overridden[0]} of FastMCP, so that its calls may pass by keys and prices; use"
            " Middleware or a ServerExtension instead"
        )
    if _answers_calls_itself(author):
        raise LoadError(
            f"the server of building {building!r} has a handler of its own for tools/call, which no key or price restricts; use Middleware"
            " or a ServerExtension instead"
        )


def _answers_calls_itself(author: FastMCP[Any]) -> bool:
    """Whether something below FastMCP's middleware was put in place of its handler of calls: no gate would see them."""
    low = getattr(author, "_mcp_server", None)
    entry = low and low.get_request_handler("tools/call")
    return entry is not None and getattr(entry.handler, "__self__", author) is not author


def _overridden(author: FastMCP[Any]) -> Iterator[str]:
    own = [vars(kind) for kind in type(author).__mro__ if not kind.__module__.startswith("fastmcp.") and issubclass(kind, FastMCP)]
    yield from (name for members in own for name in members if hasattr(FastMCP, name) and not name.startswith("__"))
    yield from (name for name in vars(author) if callable(getattr(FastMCP, name, None)))


def grows_at_start(author: FastMCP[Any]) -> bool:
    """Whether the server may have other tools once its lifespan has begun: one of its own, or tools that come from providers."""
    has_lifespan = getattr(author, "_lifespan", None) is not default_lifespan
    return has_lifespan or author.providers != [author.local_provider] or bool(author.transforms)


def put_gate_first(author: FastMCP[Any], building: str) -> None:
    """Have the server run its gate outermost, also when its author has put other middleware first since."""
    gate, chain = gate_of(author, building), author.middleware
    if not chain or chain[0] is not gate:
        once = [DereferenceOnce() if type(each) is DereferenceRefsMiddleware else each for each in chain if each is not gate]
        chain[:] = [gate, *once]


def task_path(building: str, task_id: str = "{task_id}") -> str:
    return f"/v1/{building}/tasks/{task_id}"


def has_tasks(author: FastMCP[Any]) -> bool:
    return TASKS_EXTENSION_ID in (each.identifier for each in extensions_of(author) or ())


def check_task_tool(tool: Tool, author: FastMCP[Any], building: str) -> None:
    """LoadError for a tool that runs as a background task on a server without that extension, or that needs FastMCP's own queue."""
    if not tool.task_config.supports_tasks():
        return
    if not has_tasks(author):
        raise LoadError(
            f"tool {tool.name!r} of building {building!r} runs as a background task, and its server has no extension for tasks; run"
            " pip install 'mcp-campus[tasks]', and write mcp.add_extension(TasksExtension()) with TasksExtension of fastmcp_tasks"
        )
    injected = get_dependency_parameters(tool.fn).values() if isinstance(tool, FunctionTool) else ()
    if any(type(each).__module__.startswith(("fastmcp_tasks", "docket")) for each in injected):
        raise LoadError(
            f"tool {tool.name!r} of building {building!r} uses the queue of fastmcp-tasks (CurrentDocket and the like); campus runs tasks"
            " itself and has no such queue, so start further work with a Job or a Service of the building"
        )


def own_icons(config: Config) -> list[Icon]:
    icons = icons_of(config.logo)
    return [Icon(src=f"{config.url}{path}", mime_type=media_type, sizes=[size] if size else None) for path, media_type, size in icons]


def version_of(author: FastMCP[Any]) -> str | None:
    """The author's version; campus's own if there is none, where FastMCP would show its own."""
    return own_version() if author.version == fastmcp.__version__ else author.version
