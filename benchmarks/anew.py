"""A building that returns a new, equal object at each call, so that no bytes can be kept."""

from typing import Any

from fastmcp import FastMCP

from buildings.cve.answers import brief_of
from buildings.cve.models import Brief
from buildings.cve.sample import sample_edition


def server() -> FastMCP[Any]:
    """A server whose one tool gives a day's list, read from the sample once."""
    mcp: FastMCP[Any] = FastMCP("Anew", instructions="A day's list, made anew for each call.")
    edition = sample_edition()
    brief = brief_of(edition, today=edition.day)

    @mcp.tool(annotations={"readOnlyHint": True})
    async def today() -> Brief:
        """The day's list."""
        return brief.model_copy()

    return mcp
