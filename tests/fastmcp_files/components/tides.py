"""Components that FastMCP's FileSystemProvider finds."""

from fastmcp.prompts import prompt
from fastmcp.resources import resource
from fastmcp.tools import tool


@tool
def tide(port: str, high: bool = True) -> dict[str, str]:
    """The tide at a port."""
    return {"port": port, "tide": "high" if high else "low"}


@resource("tides://today")
def today() -> str:
    """All of today's."""
    return "high, low"


@prompt
def ask(port: str) -> str:
    """Ask for a tide."""
    return f"When is it high in {port}?"
