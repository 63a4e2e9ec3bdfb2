"""The gateway building: the free directory of all servers, tools and prices of this campus, and the start page."""

from buildings.gateway.pages import home
from buildings.gateway.server import mcp
from campus import Building, Page

__all__ = ["building"]

building = Building(mcp, pages=[Page("GET /", home)])
