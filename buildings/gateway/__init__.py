"""The gateway: the free directory of everything that is open on this campus."""

from campus import Building

from buildings.gateway.server import mcp

__all__ = ["building"]

building = Building(mcp)
