"""docs/design.md is true: its map has every package, its ways name modules that exist, and two of them are watched."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fastmcp import FastMCP

from campus import Building, access
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs/design.md").read_text()
MODULE = re.compile(r"`((?:twins|campus|buildings)(?:\.\w+)*)`")
MCP_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find", "arguments": {"what": "x"}}}
WITHOUT_CODE = {"buildings"}


def section(title: str) -> str:
    return DESIGN.partition(f"## {title}\n")[2].partition("\n## ")[0]


def way(title: str) -> Sequence[str]:
    text = section("Four ways through the code").partition(f"- **{title}**:")[2].partition("\n- **")[0]
    return MODULE.findall(text.partition("If it is paid")[0])


def test_the_map_has_every_package_once() -> None:
    folders = {path.parent for package in ("twins", "campus", "buildings") for path in (ROOT / package).rglob("*.py")}
    packages = {".".join(folder.relative_to(ROOT).parts) for folder in folders if not {"new_building", "migrations"} & set(folder.parts)}
    assert sorted(MODULE.findall(re.sub(r"\|[^|]*\|$", "", section("The packages"), flags=re.M))) == sorted(packages - WITHOUT_CODE)


def test_the_ways_name_modules_that_exist() -> None:
    named = MODULE.findall(section("Four ways through the code"))
    assert len(named) > 40
    assert [name for name in named if find_spec(name) is None] == []


@contextmanager
def watched() -> Iterator[list[str]]:
    entered: dict[str, None] = {}

    def enter(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            entered.setdefault(frame.f_globals.get("__name__", ""))

    names: list[str] = []
    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        yield names
    finally:
        sys.setprofile(before)
        names += entered


async def test_a_call_with_a_key_takes_the_way_that_is_written() -> None:
    mcp: FastMCP[Any] = FastMCP("Shop")

    @mcp.tool(meta=access(price="0.01"), annotations={"readOnlyHint": True})
    async def find(what: str) -> dict[str, str]:
        """Find."""
        return {"found": what}

    async with open_campus(shop=Building(mcp)) as campus:
        headers = {"Authorization": f"Bearer {await campus.key('shop')}", "Accept": "application/json, text/event-stream"}
        for title, method, path, body in (
            ("A GET with a key", "GET", "/v1/shop/find?what=x", None),
            ("A call over MCP", "POST", "/shop/mcp", MCP_CALL),
        ):
            for _ in range(2):  # the first call imports and remembers
                with watched() as modules:
                    answer = await campus.http.request(method, path, headers=headers, json=body)
            assert answer.status_code == 200
            written = way(title)
            assert [name for name in modules if name in written] == list(written), title
