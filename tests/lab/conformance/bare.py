"""FastMCP servers of every kind, before and after a change at run time, over campus and bare: what differs without a reason."""

import anyio
from as_bare import compare
from as_bare_reasons import REASONS
from fastmcp_servers import every_server


def compare_as_bare() -> list[str]:
    found = anyio.run(compare, every_server(), REASONS)
    print(f"as bare: {found.compared} answers of {len(every_server())} servers compared")
    differences = [f"{what}: bare {own!r}, over campus {through!r}" for what, (own, through) in found.unexplained.items()]
    return [*differences, *(f"no difference needs this reason: {each}" for each in REASONS if each not in found.used)]
