"""Two campuses over one database, one of which answers MCP directly: the oracle's corpus for every tool of every building."""

import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from contract.every_tool import CALLS as EVERY_TOOL
from mcp_odd_tools import CALLS as ODD_CALLS
from mcp_odd_tools import odd_server
from mcp_oracle import LEGACY, MODERN, VERSIONS, Compared, Request, calls, compare, unusual

from buildings.checkout import building as checkout
from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus import Building
from campus.testing import ORIGIN, Clock, TestCampus, open_campus

sys.path.append(str(Path(__file__).parents[1] / "third_party"))
from campus_tides import building as tides  # a distribution of its own, not installed here

PAYMENTS = {
    "network": "eip155:84532",
    "pay_to": "0x" + "1" * 40,
    "facilitators": ["http://127.0.0.1:9"],
    "rpc_url": "http://127.0.0.1:9",
}
"""Payments whose terms are shown and that cannot be made."""
KEYLESS = {"none": None}
DAY = "2026-01-30"
NOT_REPEATABLE = frozenset(
    (
        *("register_monitor", "takeover", "update_monitor", "pause_monitor", "resume_monitor", "delete_monitor"),
        *("heartbeat", "heartbeat_get", "beat_now", "make_fleet_key", "end_fleet_key", "import_monitors", "delete_everything"),
        *("create_feed_url", "create_watch", "update_watch", "delete_watch", "watch_report"),
    )
)
"""Tools whose second answer to one call differs from the first; they are called with what they refuse."""
NOT_ANSWERED_BEFORE = "half_a_character"
"""The tool whose result mcp sends in the current version only; in older ones its answer is empty, and a direct one is not."""
TAKES_NOTHING = "create_feed_url"
"""The one of them that needs no argument."""
NEAREST: Mapping[str, Sequence[tuple[str, Any]]] = {
    "cve": (
        *(("brief_teaser", {"x": 1}), ("top_cves_today", None), ("cve_verdict", {"cve_id": "cve-2021-44228"}), ("cve_verdict", {})),
        *(("cve_verdict", {"cve_id": value}) for value in ("nonsense", 5, None, "CVE-1999-0001", "CVE-2021-44228\u0000", True)),
        *(("cve_verdict", {"cve_id": "CVE-2021-44228", "more": 1}), ("archived_brief", {"date": DAY}), ("archived_brief", {"date": 0})),
        *(("archived_brief", {"date": "never"}), ("no_such_tool", {}), ("", {}), (TAKES_NOTHING, {"label": 5})),
    ),
    "recorder": (
        *(("heartbeat", {"monitor_id": "x", "secret": "y", "seq": value}) for value in (1, True, 2**70, "1", 1.5, -1)),
        *(("heartbeat", {"monitor_id": "x", "secret": "y", "capsule": value}) for value in ({"a": "\u0000"}, [1e300], "text", None)),
        *(("fleet_status", {"limit": value}) for value in (0, 1, True, "5", None)),
    ),
    "tides": (("day_of", {"port": "brest", "day": DAY}), ("day_of", {"port": "brest"}), ("ports", {})),
    "wiki": (("get_article", {}), ("get_links", {"title": 5}), ("search_wikipedia", {"query": "x", "limit": True})),
    "odd": ODD_CALLS,
}
"""Further calls of each building: wrong, on the border, and hostile."""


@dataclass(frozen=True)
class Pair:
    """Two campuses over one database: `own` answers MCP through each server alone. `tokens` are keys in every state."""

    own: TestCampus
    direct: TestCampus
    tokens: Mapping[str, str | None]

    async def compare(self, building: str, requests: Iterable[Request]) -> Compared:
        opened = next(one for one in self.own.service.plan.opened if one.name == building)
        return await compare(self.own.app, self.direct.app, opened.mcp_path, requests)


@asynccontextmanager
async def open_pair(*, payments: bool = False) -> AsyncIterator[Pair]:
    buildings: dict[str, Building] = {"cve": cve, "gateway": gateway, "recorder": recorder, "tides": tides, "odd": Building(odd_server())}
    if payments:
        buildings["checkout"] = checkout
    with TemporaryDirectory() as folder:
        clock = Clock()
        async with (
            open_campus(clock=clock, storage=f"sqlite:{folder}", tables=tables_of(payments, "off"), **buildings) as own,
            open_campus(clock=clock, storage=f"sqlite:{folder}", tables=tables_of(payments, "explain"), **buildings) as direct,
        ):
            ended = await own.key("cve")
            clock.move(timedelta(days=31))
            tokens = {"none": None, "unknown": "campus_live_" + "a" * 38, "ended": ended}
            tokens |= {product: await own.key(product) for product in ("cve", "recorder", "all")}
            yield Pair(own, direct, tokens)


def tables_of(payments: bool, direct_mcp: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "cve": {"sample": True},
        "gateway": {"path": "/"},
        "recorder": {"registrations_per_minute": 1_000_000},
        "tides": {"feed_url": "file:///nowhere"},
        "odd": {},
        "wiki": {"server": "wikipedia_mcp.server:create_server", "tools": {"*": {"price": "0.001"}}},
    }
    if payments:
        settings["checkout"] = {"grants": ["keys"]}
    products = {name: {"scope": name, "price": "19", "term": "30 days"} for name in ("cve", "recorder", "tides", "all")}
    tables = {
        "server": {"public_url": ORIGIN, "openapi": "cve", "direct_mcp": direct_mcp},
        "products": products,
        "limits": dict.fromkeys(("free", "keyed", "unpaid"), "off"),
        "buildings": settings,
    }
    return tables | ({"payments": PAYMENTS} if payments else {})


def requests_of(pair: Pair, building: str) -> Iterator[Request]:
    opened = next(one for one in pair.own.service.plan.opened if one.name == building)
    known = [(call.tool, dict(call.given)) for call in EVERY_TOOL if call.tool in opened.tools and call.tool not in NOT_REPEATABLE]
    everything = [*known, *((name, {}) for name in opened.tools if name != TAKES_NOTHING), *NEAREST.get(building, ())]
    callers = pair.tokens if building != "odd" else KEYLESS
    if building == "wiki":  # with a key its tools would look for Wikipedia
        everything, callers = [*((name, {}) for name in opened.tools), *NEAREST["wiki"]], {**KEYLESS, "unknown": "campus_x"}
    older = [call for call in everything if call[0] != NOT_ANSWERED_BEFORE]
    yield from calls(older, tokens=callers, versions=[version for version in VERSIONS if version != MODERN])
    yield from calls(everything, tokens=callers, versions=[MODERN])
    tool, arguments = ("cve_verdict", {"cve_id": "CVE-2021-44228"}) if building == "cve" else (next(iter(opened.tools)), {})
    for token in dict.fromkeys((None, pair.tokens["all"] if building != "wiki" else None)):
        yield from unusual(tool, arguments, token=token, versions=(MODERN, LEGACY, None))


async def compare_all(*, every: int = 1, payments: bool = False) -> dict[str, Compared]:
    async with open_pair(payments=payments) as pair:
        names = [opened.name for opened in pair.own.service.plan.opened]
        return {name: await pair.compare(name, islice(requests_of(pair, name), 0, None, every)) for name in names}


def compare_direct_answers() -> list[str]:
    faults = []
    for payments in (False, True):
        for building, compared in anyio.run(lambda: compare_all(payments=payments)).items():  # noqa: B023 # it runs at once
            where = f"{building}{' with payments' if payments else ''}"
            print(f"{where}: {compared.direct} direct answers, {compared.by_server} by the server, {len(compared.differences)} differences")
            faults += [f"{where}: {difference}" for difference in compared.differences]
    return faults
