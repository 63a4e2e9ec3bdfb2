"""The gateway: the free directory of everything that is open on this campus."""

from buildings.gateway.server import mcp
from campus import Building

__all__ = ["building"]

building = Building(mcp)
