"""The gateway building: the free directory of all servers, tools and prices of this campus, the start page, and /connect."""

from buildings.gateway.server import connect, home, mcp
from campus import Building, Page

__all__ = ["building"]

building = Building(
    mcp,
    pages=[Page("GET /", home), Page("GET /connect", connect, label="For agents", place=2)],
    tags=("directory", "mcp", "agents"),
    without_key=(),
)
