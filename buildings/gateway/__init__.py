"""The gateway building: the free directory of all servers, tools and prices of this campus."""

from buildings.gateway.server import mcp
from campus import Building

__all__ = ["building"]

building = Building(mcp)
