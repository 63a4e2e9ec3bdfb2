"""Two servers with all that one can say of itself, of the SDK and of FastMCP: `python whole_servers.py` serves the former on stdio."""

from typing import Annotated, Any

from fastmcp import FastMCP
from mcp.server.mcpserver import Context, Elicit, MCPServer
from mcp.server.mcpserver.resolve import Resolve
from mcp_types import Annotations, Completion, Icon, PromptReference, ToolAnnotations
from pydantic import BaseModel

ICONS = [Icon(src="https://example.com/river.png", mime_type="image/png", sizes=["48x48"])]
READ_ONLY = ToolAnnotations(title="Read a level", read_only_hint=True, open_world_hint=False)


def add_components(server: Any, **icons: Any) -> None:
    @server.tool(title="Level of a river", annotations=READ_ONLY, meta={"example.com/unit": "m"}, **icons)
    def zulu(station: str) -> dict[str, float]:
        """The level at a station."""
        return {"metres": len(station) / 2}

    @server.tool()
    def alpha(deep: bool = False) -> str:
        """Sound the river."""
        return "deep" if deep else "shallow"

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def mike() -> str:
        """Fail."""
        raise RuntimeError("the password is hunter2")

    @server.resource("rivers://{station}/history", title="History", mime_type="text/csv", **icons)
    def history(station: str) -> str:
        """The past of a station."""
        return f"{station},low"

    @server.resource("rivers://rhine", title="The Rhine", annotations=Annotations(priority=0.5), meta={"example.com/km": 1233}, **icons)
    def rhine() -> str:
        """One river."""
        return "long"

    @server.prompt(title="Report", **icons)
    def report(station: str, tone: str = "dry") -> str:
        """Ask for a report."""
        return f"A {tone} report on {station}."

    @server.prompt()
    def bare() -> str:
        """Ask for nothing."""
        return "Nothing."

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion | None:
        return Completion(values=["Basel", "Bonn"], total=7, has_more=True) if isinstance(ref, PromptReference) else None


def make_sdk() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(
        "rivers",
        title="Rivers of Europe",
        description="Levels of rivers, from their gauges.",
        instructions="Ask for one station at a time.",
        version="7.1",
        website_url="https://example.com/rivers",
        icons=ICONS,
    )
    add_components(server, icons=ICONS)

    class Day(BaseModel):
        day: str

    async def ask_day() -> Elicit[Day]:
        return Elicit("Which day?", Day)

    @server.tool()
    async def book(day: Annotated[Day, Resolve(ask_day)]) -> str:
        """Book a boat."""
        return f"booked for {day.day}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def told(ctx: Context[Any, Any]) -> list[str]:
        """What the client says that it is able to do."""
        return sorted(name for name, value in ctx.client_capabilities or () if value is not None)

    return server


def make_fast() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP(
        "lakes", "Ask for one lake at a time.", version="2.0", website_url="https://example.com/lakes", icons=ICONS
    )
    add_components(server, icons=ICONS)
    return server


def make_silent() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("silent-mcp")
    add_components(server)
    return server


if __name__ == "__main__":
    make_sdk().run("stdio")
