"""An author's FastMCP server behind campus: all that it was given passes, or is refused with a sentence. docs/fastmcp.md lists it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import metadata
from inspect import isawaitable
from typing import Any, cast

import fastmcp
from fastmcp import FastMCP
from fastmcp.server.completions import CompletionHandler
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.transforms import Transform
from fastmcp.tools import FunctionTool, Tool
from fastmcp.utilities.async_utils import call_sync_fn_in_threadpool, is_coroutine_function
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
from mcp.server.request_state import RequestStateBoundary, RequestStateCodec, RequestStateSecurity
from mcp_types import CompletionArgument, CompletionContext, Icon, ListToolsRequest, PromptReference, ResourceTemplateReference
from uncalled_for import get_dependency_parameters

from campus.errors import LoadError
from campus.layout.assets import ICON, read_assets
from twins import hides_tools


class DereferenceOnce(DereferenceRefsMiddleware):
    """FastMCP's middleware that replaces the references in tools' schemas, for each tool once instead of in each list.

    Anybody may ask for lists in ways that only the server answers, and with 30 tools this took nine tenths of the CPU of each.
    """

    twin_safe = True
    """Every caller gets the same tools."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Tool, Tool]] = {}  # by key, with the original tool

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """The tools without references."""
        tools, known = await call_next(context), self._known
        if any(known.get(tool.key, (None,))[0] is not tool for tool in tools):

            async def listed(context: MiddlewareContext[ListToolsRequest]) -> Sequence[Tool]:
                return tools

            dereferenced = await super().on_list_tools(context, listed)
            known = self._known = {tool.key: (tool, made) for tool, made in zip(tools, dereferenced, strict=True)}
        return [known[tool.key][1] for tool in tools]


def check_author(author: FastMCP[Any], building: str, *, exposed: Collection[str]) -> None:
    """LoadError for what campus cannot pass on: a login of the server's own, requests that nobody pays for, overridden methods."""
    if author.auth is not None:
        raise LoadError(
            f"building {building!r} has auth=, which blocks keys and free tools; remove it: campus controls the access to its tools"
        )
    for identifier, methods in author._extension_methods.items() if "methods" not in exposed else ():
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
            f"the server of building {building!r} overrides {overridden[0]} of FastMCP, which campus does not call; use Middleware"
            " or a ServerExtension instead"
        )


def _overridden(author: FastMCP[Any]) -> Iterator[str]:
    """The methods of FastMCP that the author's class, or the server itself, replaces."""
    own = [vars(kind) for kind in type(author).__mro__ if not kind.__module__.startswith("fastmcp.") and issubclass(kind, FastMCP)]
    yield from (name for members in own for name in members if hasattr(FastMCP, name) and not name.startswith("__"))
    yield from (name for name in vars(author) if callable(getattr(FastMCP, name, None)))


def server_over(author: FastMCP[Any], overrides: Transform, *, url: str | None = None, exposed: Collection[str] = ()) -> FastMCP[Any]:
    """A new server over the author's providers, middleware, transforms, extensions and lifespan, with all of the author's options.

    An extension belongs to one server: from now on its `server` is this one. Some of these attributes are private, because FastMCP
    offers no other way to read them.
    """

    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> Any:
        entered: AbstractAsyncContextManager[Any] = author._lifespan(author)
        async with entered as result:
            yield result

    server: FastMCP[Any] = FastMCP(
        author.name,
        author.instructions,
        version=version_of(author),
        website_url=author.website_url or url,
        icons=author.icons or (own_icons(url)[:1] if url else None),
        providers=author.providers,
        middleware=[DereferenceOnce() if type(each) is DereferenceRefsMiddleware else each for each in author.middleware],
        transforms=[*author.transforms, overrides],
        lifespan=lifespan,
        strict_input_validation=author.strict_input_validation,
        list_page_size=author._list_page_size,
        resource_security=author._resource_security,
        request_state_security=author._request_state_security,
        session_state_store=author._state_storage,
        client_log_level=author.client_log_level,
        experimental_capabilities=author.experimental_capabilities,
        mask_error_details=True,
        dereference_schemas=False,  # the author's middleware includes this one already
    )
    server.providers.remove(server.local_provider)  # empty, and with a second provider each call is a task group
    low, own = server._mcp_server, author._mcp_server
    low.cache_hints, low.title, low.description = own.cache_hints, own.title, own.description
    _take_extensions(server, author)
    if author._completion_handler is not None and not {"prompts", "resources"}.isdisjoint(exposed):
        server.add_completion_handler(exposed_completions(author._completion_handler, exposed))
    return server


def _take_extensions(server: FastMCP[Any], author: FastMCP[Any]) -> None:
    """Register the author's extensions, outermost first; those that providers bring were registered with them. campus has its own tasks."""
    identifiers = [each for each in author._extensions if each != TASKS_EXTENSION_ID]
    for identifier in identifiers:
        if identifier not in author._auto_extensions:
            extension = author._extensions[identifier]
            extension._server_ref = None
            server.add_extension(extension)
    server._extensions = {identifier: server._extensions[identifier] for identifier in identifiers}


def has_tasks(author: FastMCP[Any]) -> bool:
    """Whether the author registered the extension by which tools run as background tasks."""
    return TASKS_EXTENSION_ID in author._extensions


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


def seal_request_states(server: FastMCP[Any], codec: RequestStateCodec, building: str) -> None:
    """Have what tools give their callers to send back sealed by `codec`, unless the author chose how it is sealed.

    FastMCP's own keys are those of one process, and its name of a server without one too.
    """
    if server._request_state_security is None:
        boundary = RequestStateBoundary(RequestStateSecurity(codec=codec, audience=building), default_audience=None)
        low = server._mcp_server
        low.middleware = [cast(Any, boundary) if isinstance(each, RequestStateBoundary) else each for each in low.middleware]


def exposed_completions(handler: CompletionHandler, exposed: Collection[str]) -> CompletionHandler:
    """The author's completion handler, for the prompts or resources that callers may see; no values for the others."""
    kinds = {"prompts": PromptReference, "resources": ResourceTemplateReference}
    answered = tuple(kinds[name] for name in kinds if name in exposed)

    async def complete(
        reference: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
    ) -> Any:
        if not isinstance(reference, answered):
            return None
        if not is_coroutine_function(handler):
            found = await call_sync_fn_in_threadpool(handler, reference, argument, context)
        else:
            found = handler(reference, argument, context)
        return await found if isawaitable(found) else found

    return complete


def own_icons(url: str) -> list[Icon]:
    """The service's icon, first in the format that every client can show."""
    assets = read_assets()
    return [Icon(src=f"{url}{assets[name].path}", mime_type=media_type, sizes=[size]) for name, media_type, size in ICON]


def version_of(author: FastMCP[Any]) -> str | None:
    """The author's version; campus's own if there is none, where FastMCP would show its own."""
    return metadata.version("mcp-campus") if author.version == fastmcp.__version__ else author.version
