"""The checkout: agents buy and renew keys here, paying by x402."""

from buildings.checkout.problems import PROBLEMS
from buildings.checkout.server import mcp
from campus import Building

__all__ = ["building"]

building = Building(mcp, problems=PROBLEMS)
