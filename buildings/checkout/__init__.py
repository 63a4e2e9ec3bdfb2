"""The checkout: agents buy and renew keys here, and pay with x402."""

from buildings.checkout.server import mcp
from campus import Building

__all__ = ["building"]

building = Building(
    mcp,
    problems={"key_not_sold": "The key cannot be sold or renewed as requested; `detail` says why. Nothing was charged."},
    tags=("keys", "checkout", "access"),
)
