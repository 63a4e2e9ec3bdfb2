"""Every building answers MCP directly as through its server: by every kind of key."""

import pytest
from contract.direct_mcp import compare_all

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),  # one tool returns another type than it declares
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),  # logs and progress: older clients have them
]
EVERY = 97
"""The part of the corpus that is sent here; `make conformance` sends all of it, without payments too."""


async def test_every_building_answers_alike_directly_and_through_its_server() -> None:
    compared = await compare_all(every=EVERY, payments=True)
    assert {name: each.differences for name, each in compared.items() if each.differences} == {}
    assert compared["cve"].direct > 10, "hardly any answer was direct: the comparison proves nothing"
