"""FastMCP servers of every kind, each made by a function of its own, and what may be changed in one while it is served."""

import enum
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import httpx2
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import CurrentHeaders, Depends
from fastmcp.exceptions import NotFoundError, PromptError, ResourceError, ToolError, ValidationError
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.prompts import Message
from fastmcp.server import create_proxy
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.middleware.error_handling import ErrorHandlingMiddleware, RetryMiddleware
from fastmcp.server.middleware.logging import LoggingMiddleware, StructuredLoggingMiddleware
from fastmcp.server.middleware.ping import PingMiddleware
from fastmcp.server.middleware.rate_limiting import RateLimitingMiddleware, SlidingWindowRateLimitingMiddleware
from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware
from fastmcp.server.middleware.timing import DetailedTimingMiddleware, TimingMiddleware
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import FileSystemProvider
from fastmcp.server.providers.proxy import ProxyProvider
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.server.transforms import Namespace, PromptsAsTools, ResourcesAsTools, ToolTransform, VersionFilter
from fastmcp.server.transforms.search import BM25SearchTransform, RegexSearchTransform
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.tools.tool_transform import ArgTransform, ToolTransformConfig
from fastmcp.utilities.types import Audio, File, Image
from mcp_types import Annotations, Completion, Icon, ResourceLink, TextContent
from pydantic import AnyUrl, BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.features.foreign_servers import whole_servers

FILES = Path(__file__).parent / "fastmcp_files"
Server = FastMCP[Any]


class Unit(enum.StrEnum):
    """An enumeration."""

    METRE = "m"
    FOOT = "ft"


class Level(BaseModel):
    """A model with a description, a default and an alias."""

    model_config = ConfigDict(populate_by_name=True)

    metres: Annotated[float, Field(ge=0, description="Above the gauge's zero.")]
    unit: Unit = Unit.METRE
    read_at: date | None = Field(default=None, alias="readAt")


class Tree(BaseModel):
    """A model that contains itself."""

    name: str
    below: "list[Tree]" = []


def basics(name: str = "Basics", **options: Any) -> Server:
    """Some tools, prompts, resources and a template."""
    mcp: Server = FastMCP(name, instructions="Ask politely.", version="3.1", **options)

    @mcp.tool(annotations={"readOnlyHint": True, "title": "The level"}, tags={"water"}, meta={"example.com/unit": "m"})
    def level(station: str, unit: Unit = Unit.METRE) -> Level:
        """The level at a station."""
        return Level(metres=len(station) / 2, unit=unit)

    @mcp.tool(tags={"water"})
    async def sound(deep: bool = False, times: Annotated[int, Field(ge=1, le=5)] = 1) -> str:
        """Sound the river."""
        return ("deep " if deep else "shallow ") * times

    @mcp.tool
    def grow(tree: Tree) -> Tree:
        """Add a branch."""
        return Tree(name=tree.name, below=[*tree.below, Tree(name="new")])

    @mcp.prompt(tags={"words"})
    def report(station: str, tone: str = "dry") -> str:
        """Ask for a report."""
        return f"A {tone} report on {station}."

    @mcp.prompt
    def dialogue() -> list[Message]:
        """Two messages."""
        return [Message("Hello?"), Message("Yes.", role="assistant")]

    @mcp.resource("rivers://rhine", mime_type="text/plain", annotations=Annotations(priority=0.5))
    def rhine() -> str:
        """One river."""
        return "long"

    @mcp.resource("rivers://{station}/history")
    def history(station: str) -> str:
        """The past of a station."""
        return f"{station},low"

    return mcp


def identified() -> Server:
    """A server that says everything of itself."""
    icons = [Icon(src="https://example.com/river.png", mime_type="image/png", sizes=["48x48"])]
    mcp: Server = FastMCP("Rivers ü", instructions="One at a time.", version="7", website_url="https://example.com/rivers", icons=icons)
    mcp.tool(lambda: 5, name="five", title="Five", description="It is five.", icons=icons)
    return mcp


def nameless() -> Server:
    mcp: Server = FastMCP()
    mcp.tool(lambda x: x, name="same")
    return mcp


def paged() -> Server:
    return basics(list_page_size=2)


def strict() -> Server:
    return basics(strict_input_validation=True)


def masked() -> Server:
    mcp: Server = FastMCP("Masked", mask_error_details=True)
    add_errors(mcp)
    return mcp


def with_references() -> Server:
    return basics(dereference_schemas=False)


def mounted() -> Server:
    mcp = basics()
    mcp.mount(basics("Deep"), namespace="deep")
    return mcp


def mounted_without_namespace() -> Server:
    mcp: Server = FastMCP("Above")
    mcp.tool(lambda: "above", name="sound")
    mcp.mount(basics("Below"))
    return mcp


def mounted_twice_deep() -> Server:
    middle: Server = FastMCP("Middle")
    middle.mount(basics("Deep"), namespace="b")
    mcp: Server = FastMCP("Above")
    mcp.mount(middle, namespace="a")
    return mcp


def proxied() -> Server:
    mcp: Server = FastMCP("Proxied")
    mcp.add_provider(ProxyProvider(lambda: Client(basics("Behind"))))
    return mcp


def a_proxy() -> Server:
    return create_proxy(basics("Behind"), name="Proxy")


def files() -> Server:
    mcp: Server = FastMCP("Files")
    mcp.add_provider(FileSystemProvider(FILES / "components"))
    return mcp


def skills() -> Server:
    mcp: Server = FastMCP("Skills")
    mcp.add_provider(SkillsDirectoryProvider(FILES / "skills"))
    mcp.tool(lambda: "ok", name="fine")
    return mcp


async def pet(request: Request) -> Response:
    name = request.path_params["name"]
    if name != "rex":
        return JSONResponse({"detail": f"no pet {name}"}, 404)
    return JSONResponse({"name": "rex", "age": int(float(request.query_params.get("years", "3")))})


async def new_pet(request: Request) -> Response:
    return JSONResponse(await request.json(), 201)


async def broken(_: Request) -> Response:
    return JSONResponse({"oops": True}, 500)


PET = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
API: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{name}": {
            "get": {
                "operationId": "get_pet",
                "summary": "One pet",
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "examples": ["rex"]}},
                    {"name": "years", "in": "query", "schema": {"type": "integer", "minimum": 0}},
                ],
                "responses": {"200": {"description": "It.", "content": {"application/json": {"schema": PET}}}},
            }
        },
        "/pets": {
            "post": {
                "operationId": "add_pet",
                "requestBody": {"required": True, "content": {"application/json": {"schema": PET}}},
                "responses": {"201": {"description": "Made.", "content": {"application/json": {"schema": PET}}}},
            }
        },
        "/broken": {"get": {"operationId": "broken", "responses": {"200": {"description": "Never."}}}},
    },
}


def an_api() -> Server:
    routes = [Route("/pets/{name}", pet), Route("/pets", new_pet, methods=["POST"]), Route("/broken", broken)]
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(Starlette(routes=routes)), base_url="http://pets.test")
    return FastMCP.from_openapi(API, client, name="Pets")


def of_the_sdk() -> Any:
    return whole_servers.make_sdk()


def transformed() -> Server:
    mcp = basics()
    station = ArgTransform(name="place", description="Where.")
    mcp.add_transform(ToolTransform({"level": ToolTransformConfig(name="height", description="Higher.", arguments={})}))

    async def doubled(place: str) -> str:
        return place * 2

    sound = Tool.from_function(lambda station: station, name="echo_of")
    mcp.add_tool(Tool.from_tool(sound, name="renamed", transform_args={"station": station}))
    mcp.add_tool(Tool.from_tool(sound, name="own", transform_fn=doubled, transform_args={"station": station}))
    mcp.add_tool(Tool.from_tool(sound, name="hidden", transform_args={"station": ArgTransform(hide=True, default="Bonn")}))
    return mcp


def in_a_namespace() -> Server:
    mcp = basics()
    mcp.add_transform(Namespace("n"))
    return mcp


def versions() -> Server:
    mcp: Server = FastMCP("Versions")
    for version in ("1", "2", "10"):
        mcp.tool(lambda version=version: version, name="which", version=version)  # type: ignore[misc]
    return mcp


def older_versions() -> Server:
    mcp = versions()
    mcp.add_transform(VersionFilter(version_lt="3"))
    return mcp


def some_hidden() -> Server:
    mcp = basics()
    mcp.disable(tags={"water"})
    mcp.enable(names={"level"})
    return mcp


def all_as_tools() -> Server:
    mcp = basics()
    mcp.add_transform(PromptsAsTools(mcp))
    mcp.add_transform(ResourcesAsTools(mcp))
    return mcp


def searched() -> Server:
    mcp = basics()
    mcp.add_transform(BM25SearchTransform(always_visible=["sound"]))
    return mcp


def searched_by_pattern() -> Server:
    mcp = basics()
    mcp.add_transform(RegexSearchTransform())
    return mcp


def in_code() -> Server:
    mcp = basics()
    mcp.add_transform(CodeMode())
    return mcp


class Adds(Middleware):
    """Changes what passes: arguments, results, lists."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        if context.message.name == "grow":
            raise ToolError("Nothing grows today.")
        result = await call_next(context)
        result.meta = {**(result.meta or {}), "example.com/seen": True}
        return result

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return [tool.model_copy(update={"description": f"{tool.description} (seen)"}) for tool in await call_next(context)]


def injected() -> Server:
    return basics(middleware=[ToolInjectionMiddleware([Tool.from_function(lambda: "in", name="injected")])])


MIDDLEWARE: Mapping[str, Callable[[], Middleware]] = {
    "caching": ResponseCachingMiddleware,
    "errors": ErrorHandlingMiddleware,
    "retry": lambda: RetryMiddleware(max_retries=1, base_delay=0.01),
    "logging": LoggingMiddleware,
    "structured_logging": StructuredLoggingMiddleware,
    "ping": PingMiddleware,
    "rate": lambda: RateLimitingMiddleware(max_requests_per_second=10_000),
    "sliding": lambda: SlidingWindowRateLimitingMiddleware(max_requests=10_000),
    "size": lambda: ResponseLimitingMiddleware(max_size=10_000),
    "timing": TimingMiddleware,
    "detailed_timing": DetailedTimingMiddleware,
    "own": Adds,
}


def with_middleware(kind: str) -> Callable[[], Server]:
    return lambda: basics(middleware=[MIDDLEWARE[kind]()])


def failures() -> Server:
    mcp: Server = FastMCP("Errors")
    add_errors(mcp)
    return mcp


def add_errors(mcp: Server) -> None:
    raised: Mapping[str, Exception] = {
        "tool_error": ToolError("Plainly no."),
        "crash": RuntimeError("the password is hunter2"),
        "key_error": KeyError("x"),
        "value_error": ValueError("bad value"),
        "not_found": NotFoundError("nothing there"),
        "resource_error": ResourceError("no resource"),
        "validation": ValidationError("of its own"),
        "timeout": TimeoutError("slow"),
    }

    def raises(error: Exception) -> Callable[[], str]:
        def fn() -> str:
            raise error

        return fn

    for name, error in raised.items():
        mcp.tool(raises(error), name=name)
        mcp.resource(f"errors://{name}", name=name)(raises(error))
        mcp.prompt(raises(error), name=name)

    @mcp.tool
    def chained() -> str:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ToolError("The outer words.") from error

    @mcp.prompt
    def prompt_error() -> str:
        raise PromptError("no prompt")


def forms() -> Server:
    """Every form of a result."""
    mcp: Server = FastMCP("Forms")
    day = date(2026, 1, 30)
    links = [ResourceLink(type="resource_link", uri="https://example.com/a", name="a"), TextContent(type="text", text="b")]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    def returns(name: str, kind: Any, value: Any, **options: Any) -> None:
        def fn() -> Any:
            return value

        fn.__annotations__["return"] = kind
        mcp.tool(fn, name=name, **options)

    returns("text", str, "é\u2028")
    returns("number", int, 5)
    returns("large", int, 2**60)
    returns("real", float, 0.1)
    returns("exact", Decimal, Decimal("1.10"))
    returns("truth", bool, True)
    returns("nothing", None, None)
    returns("perhaps", str | None, None)
    returns("either", int | str, "x")
    returns("a_list", list[int], [1, 2])
    returns("no_list", list[int], [])
    returns("a_tuple", tuple[int, str], (1, "a"))
    returns("a_set", set[int], {1})
    returns("a_dict", dict[str, int], {"a": 1})
    returns("free_dict", dict[str, Any], {"a": None, "b": [{}]})
    returns("any_dict", dict, {"a": 1})
    returns("numbered", dict[int, str], {1: "a"})
    returns("a_model", Level, Level(metres=1.5, read_at=day))
    returns("models", list[Level], [Level(metres=1)])
    returns("maybe_model", Level | None, None)
    returns("list_or_model", list[int] | Level, [1])
    returns("a_tree", Tree, Tree(name="a", below=[Tree(name="b")]))
    returns("a_day", date, day)
    returns("a_moment", datetime, datetime(2026, 1, 30, 1, 2, 3).astimezone())
    returns("a_while", timedelta, timedelta(hours=1))
    returns("an_id", UUID, UUID(int=5))
    returns("a_url", AnyUrl, AnyUrl("https://example.com/"))
    returns("a_literal", Literal["a", "b"], "a")
    returns("a_unit", Unit, Unit.FOOT)
    returns("some_bytes", bytes, b"abc")
    returns("anything", Any, {"a": 1})
    returns("undeclared", object, [1])
    returns("image", Image, Image(data=b"\x89PNG", format="png"))
    returns("audio", Audio, Audio(data=b"RIFF", format="wav"))
    returns("file", File, File(data=b"abc", format="txt", name="a"))
    returns("images", list[Any], [Image(data=b"\x89PNG", format="png"), "and text"])
    returns("blocks", list[TextContent], [TextContent(type="text", text="one")])
    returns("links", list[Any], links)
    returns("made", ToolResult, ToolResult(content="short", structured_content={"a": 1}, meta={"m": 1}))
    returns("made_links", ToolResult, ToolResult(content=links, structured_content={"a": 1}))
    returns("own_schema", dict, {"a": 1}, output_schema=schema)
    returns("closed_schema", dict, {"a": 1}, output_schema={**schema, "additionalProperties": False})
    returns("no_schema", dict[str, int], {"a": 1}, output_schema=None)
    return mcp


def arguments() -> Server:
    """Every form of an argument."""
    mcp: Server = FastMCP("Arguments")

    @mcp.tool
    def numbers(whole: int, real: float, exact: Decimal = Decimal(1), at_least: Annotated[int, Field(ge=3)] = 3) -> list[str]:
        return [str(whole), str(real), str(exact), str(at_least)]

    @mcp.tool
    def times(day: date, moment: datetime, long: timedelta = timedelta(0)) -> list[str]:
        return [day.isoformat(), moment.isoformat(), str(long)]

    @mcp.tool
    def choices(mode: Literal["a", "b"], unit: Unit, flag: bool, maybe: str | None = None) -> list[Any]:
        return [mode, unit, flag, maybe]

    @mcp.tool
    def nested(level: Level, levels: list[Level], by_name: dict[str, Level] | None = None) -> list[Any]:
        return [level, levels, by_name]

    @mcp.tool
    def either(value: int | str | list[int], anything: Any = None) -> list[Any]:
        return [value, anything]

    @mcp.tool
    def patterned(code: Annotated[str, Field(pattern="^[A-Z]{2}$", examples=["DE"])], id: UUID, url: AnyUrl) -> list[str]:
        return [code, str(id), str(url)]

    return mcp


def contexts() -> Server:
    """Tools that use what FastMCP gives them."""
    mcp = basics()

    @mcp.tool
    async def tells(ctx: Context) -> str:
        await ctx.info("hello")
        await ctx.warning("careful", logger_name="own")
        await ctx.report_progress(1, 2, "half")
        return "told"

    @mcp.tool
    async def keeps(ctx: Context) -> list[Any]:
        await ctx.set_state("a", 1)
        return [await ctx.get_state("a"), await ctx.get_state("b")]

    @mcp.tool
    async def reads(ctx: Context, uri: str = "rivers://rhine") -> str:
        return str((await ctx.read_resource(uri)).contents[0].content)

    @mcp.tool
    async def asks_prompt(ctx: Context) -> str:
        return str((await ctx.get_prompt("report", {"station": "Bonn"})).messages[0].content)

    @mcp.tool
    async def lists(ctx: Context) -> list[list[str]]:
        return [
            sorted(each.name for each in await ctx.list_resources()),
            sorted(each.name for each in await ctx.list_prompts()),
            sorted(each.name for each in await ctx.fastmcp.list_tools()),
        ]

    @mcp.tool
    async def calls(ctx: Context) -> Any:
        return (await ctx.fastmcp.call_tool("sound", {"deep": True})).structured_content

    @mcp.tool
    async def names(ctx: Context) -> list[Any]:
        return [ctx.fastmcp.name, str(ctx.request_id), ctx.client_id, ctx.transport]

    @mcp.tool
    async def headers(given: dict[str, str] = CurrentHeaders()) -> str | None:  # noqa: B008 # FastMCP's way
        return given.get("accept")

    @mcp.tool
    def needs(n: int = Depends(lambda: 7)) -> int:
        return n

    return mcp


def completed() -> Server:
    mcp = basics()

    @mcp.completion
    async def complete(ref: Any, argument: Any, context: Any) -> Completion | None:
        return Completion(values=[f"{argument.value}onn", "Basel"], total=7, has_more=True) if argument.name == "station" else None

    return mcp


class Present(ServerExtension):
    """An extension that takes part in nothing."""

    identifier = "test.campus/present"


def extended() -> Server:
    mcp = basics()
    mcp.add_extension(Present())
    return mcp


def from_a_lifespan() -> Server:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
        server.tool(lambda: "made late", name="late")
        server.add_middleware(Adds())
        yield {"opened": 1}

    mcp: Server = FastMCP("Lifespan", lifespan=lifespan)

    @mcp.tool
    def opened(ctx: Context) -> Any:
        return ctx.lifespan_context.get("opened")

    return mcp


def only_prompts() -> Server:
    mcp: Server = FastMCP("Prompts")
    mcp.prompt(lambda: "Hello.", name="greet")
    return mcp


SERVERS: Mapping[str, Callable[[], Any]] = {
    **{
        each.__name__: each
        for each in (
            *(basics, identified, nameless, paged, strict, masked, with_references, mounted, mounted_without_namespace),
            *(mounted_twice_deep, proxied, a_proxy, files, skills, an_api, of_the_sdk, transformed, in_a_namespace, versions),
            *(older_versions, some_hidden, all_as_tools, searched, searched_by_pattern, in_code, injected, failures, forms, arguments),
            *(contexts, completed, extended, from_a_lifespan, only_prompts),
        )
    },
    **{f"middleware_{kind}": with_middleware(kind) for kind in MIDDLEWARE},
}
"""Servers of every kind, by a name that a building can have."""


def replace_a_tool(mcp: Server) -> None:
    mcp.local_provider.remove_tool("sound")

    @mcp.tool
    def sound(louder: int) -> int:
        """Another signature."""
        return louder


def mount_another(mcp: Server) -> None:
    other: Server = FastMCP("Other")
    other.tool(lambda x: x, name="deep")
    mcp.mount(other, namespace="other")


CHANGES: Mapping[str, Callable[[Server], object]] = {
    "added": lambda mcp: mcp.tool(lambda x: x, name="new"),
    "removed": lambda mcp: mcp.local_provider.remove_tool("sound"),
    "replaced": replace_a_tool,
    "disabled": lambda mcp: mcp.disable(names={"sound"}),
    "enabled_alone": lambda mcp: mcp.enable(names={"level"}, only=True),
    "mounted": mount_another,
    "provided": lambda mcp: mcp.add_provider(ProxyProvider(lambda: Client(identified()))),
    "files": lambda mcp: mcp.add_provider(FileSystemProvider(FILES / "components")),
    "renamed": lambda mcp: mcp.add_transform(Namespace("n")),
    "transformed": lambda mcp: mcp.add_transform(ToolTransform({"sound": ToolTransformConfig(name="noise")})),
    "middleware": lambda mcp: mcp.add_middleware(Adds()),
    "middleware_first": lambda mcp: mcp.middleware.insert(0, Adds()),
    "prompt_added": lambda mcp: mcp.prompt(lambda: "Hello.", name="greet"),
    "resource_added": lambda mcp: mcp.resource("rivers://elbe")(lambda: "north"),
    "instructed": lambda mcp: setattr(mcp, "instructions", "Something else."),
}
"""What may be changed in `basics` while it is served."""


class Made(NamedTuple):
    """A server, and its change; None for a server as it was made."""

    make: Callable[[], Any]
    change: Callable[[Server], object] | None


def every_server() -> dict[str, Made]:
    return {name: Made(make, None) for name, make in SERVERS.items()} | {
        f"then_{name}": Made(basics, change) for name, change in CHANGES.items()
    }
