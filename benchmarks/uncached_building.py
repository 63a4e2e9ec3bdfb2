"""A building whose tool returns a new, equal object at each call, so that no serialized bytes can be reused."""

from typing import Any

from fastmcp import FastMCP

from buildings.cve.models import Brief
from buildings.cve.ranking.results import brief_of
from buildings.cve.sample import sample_edition


def server() -> FastMCP[Any]:
    """A server whose one tool returns a day's list, read from the sample once."""
    mcp: FastMCP[Any] = FastMCP("Uncached", instructions="A day's list, made anew for each call.")
    edition = sample_edition()
    brief = brief_of(edition, today=edition.day)

    @mcp.tool(annotations={"readOnlyHint": True})
    async def today() -> Brief:
        """The day's list."""
        return brief.model_copy()

    return mcp
