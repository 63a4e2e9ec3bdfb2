"""What a page of another origin may do: everything, since nothing is granted by cookies; keys travel in a header."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

EXPOSED = (
    "ETag",
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
    "PAYMENT-REQUIRED",
    "PAYMENT-RESPONSE",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-PAYMENT-RESPONSE",
    "X-Request-Id",
)
ONE_DAY = 86_400
READABLE = (b"access-control-allow-origin", b"*")
"""Also on what the edge itself answers, or a page could not tell a refusal from a broken network."""


def open_to_all(app: ASGIApp) -> ASGIApp:
    """`app` for requests that carry an Origin: any may read, with any header, without credentials.

    The request headers of a preflight are repeated, not listed: MCP-Param-… are named after a tool's parameters.
    A page of the public web asking for a private address (Private Network Access) is refused.
    """
    return CORSMiddleware(app, allow_origins=("*",), allow_methods=("*",), allow_headers=("*",), expose_headers=EXPOSED, max_age=ONE_DAY)
