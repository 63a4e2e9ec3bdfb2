"""The checkout: agents buy and renew keys here, and pay with x402."""

from buildings.checkout.server import mcp
from campus import Building

__all__ = ["building"]

building = Building(mcp, tags=("keys", "checkout", "access"), without_key=())
