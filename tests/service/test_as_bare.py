"""FastMCP servers answer over campus as they do bare, before and after a change at run time, but for what has a reason."""

import pytest
from as_bare import Made, compare
from as_bare_reasons import REASONS
from fastmcp_servers import CHANGES, basics, every_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::fastmcp.exceptions.FastMCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),  # logs and progress: older clients have them
]
SHORT = ("a_proxy", "files", "transformed", "searched", "failures", "then_middleware_first")
"""The servers that are asked here; `make conformance` asks all of them, and whether each reason is needed."""


async def test_servers_answer_over_campus_as_they_do_bare() -> None:
    servers = every_server()
    found = await compare({name: servers[name] for name in SHORT}, REASONS)
    assert found.unexplained == {}
    assert found.compared > 300


async def test_what_is_lost_and_what_is_not_noticed_is_seen() -> None:
    changes = iter([CHANGES["added"]])
    found = await compare({"once": Made(basics, lambda mcp: next(changes, lambda _: None)(mcp))}, ())
    assert "once | 2026-07-28 tools/list | .result.tools.0.description" in found.unexplained
    assert any("changed | 2025-11-25 tool new" in each for each in found.unexplained), "only the bare server was changed"
