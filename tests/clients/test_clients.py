"""Every tool called by every client, over MCP and HTTP, with every kind of key: the same answers, the same refusals."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from contract.served_campus import ServedCampus, Tokens, serve_campus
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from patience import patience

from tests import patient

MCP1 = Path(sys.executable).parents[1] / "mcp1" / "bin" / "python"
SCRIPT = Path(__file__).with_name("call_with_mcp1.py")
MCP_CLIENTS = {"fastmcp auto": "2026-07-28", "fastmcp legacy": "2025-11-25", "mcp 1.x": "2025-11-25"}
CLIENTS = ("http", *MCP_CLIENTS)
KEYS = ("none", "cve", "campus_pass", "recorder", "revoked", "expired", "unknown")
KEYS_OF_ALL_CALLS = ("none", "cve", "recorder")
CALLS_OF_ALL_KEYS = ("list_buildings", "brief_teaser", "top_cves_today", "a miss")
"""Over MCP; over HTTP every call is made with every key."""
BAD = {"revoked": "key_revoked", "expired": "key_expired", "unknown": "key_unknown"}


@dataclass(frozen=True)
class Tool:
    """A call of one tool, and its HTTP twin."""

    name: str
    mcp: str
    path: str
    arguments: Mapping[str, str] = field(default_factory=dict)


FREE = {
    *("list_buildings", "how_to_pay", "how_to_connect", "about_service"),
    *("brief_teaser", "next_teaser", "next_record", "brief_change_counts", "cve_facts"),
}
PAID = {
    "top_cves_today",
    "kev_fresh",
    "cve_verdict",
    "a miss",
    "cve_history",
    "archived_brief",
    "a day without a list",
    "no CVE",
    "next_in_kev",
    "cve_verdicts",
    "search_cves",
    "brief_changes",
}
CALLS = {
    **{name: Tool(name, "/mcp", f"/v1/gateway/{name}") for name in ("list_buildings", "how_to_pay", "about_service")},
    "how_to_connect": Tool("how_to_connect", "/mcp", "/v1/gateway/how_to_connect?client={client}", {"client": "cursor"}),
    "brief_teaser": Tool("brief_teaser", "/cve/mcp", "/v1/brief/teaser"),
    "top_cves_today": Tool("top_cves_today", "/cve/mcp", "/v1/brief/today"),
    "kev_fresh": Tool("kev_fresh", "/cve/mcp", "/v1/kev/fresh"),
    "cve_verdict": Tool("cve_verdict", "/cve/mcp", "/v1/cve/{cve_id}", {"cve_id": "CVE-2021-44228"}),
    "cve_facts": Tool("cve_facts", "/cve/mcp", "/v1/cve/{cve_id}/facts", {"cve_id": "CVE-2021-44228"}),
    "a miss": Tool("cve_verdict", "/cve/mcp", "/v1/cve/{cve_id}", {"cve_id": "CVE-1999-0001"}),
    "cve_history": Tool("cve_history", "/cve/mcp", "/v1/cve/{cve_id}/history", {"cve_id": "CVE-2021-44228"}),
    "archived_brief": Tool("archived_brief", "/cve/mcp", "/v1/archive/{date}", {"date": "TODAY"}),
    "a day without a list": Tool("archived_brief", "/cve/mcp", "/v1/archive/{date}", {"date": "2001-02-03"}),
    "next_teaser": Tool("next_teaser", "/cve/mcp", "/v1/next/teaser"),
    "next_record": Tool("next_record", "/cve/mcp", "/v1/next/record"),
    "next_in_kev": Tool("next_in_kev", "/cve/mcp", "/v1/next"),
    "cve_verdicts": Tool("cve_verdicts", "/cve/mcp", "/v1/cve/verdicts?cve_ids={cve_ids}", {"cve_ids": "CVE-2021-44228,CVE-1999-0001"}),
    "search_cves": Tool("search_cves", "/cve/mcp", "/v1/cves?text={text}", {"text": "log4j"}),
    "brief_changes": Tool("brief_changes", "/cve/mcp", "/v1/brief/changes"),
    "brief_change_counts": Tool("brief_change_counts", "/cve/mcp", "/v1/brief/changes/counts"),
    "no CVE": Tool("cve_verdict", "/cve/mcp", "/v1/cve/{cve_id}", {"cve_id": "CVE-21-4"}),
}
OF_ONE_KEY = {
    *("create_feed_url", "list_feed_urls", "keep_feed_url", "revoke_feed_url"),
    *("create_watch", "update_watch", "list_watches", "delete_watch", "watch_news", "watch_report"),
}
"""Their answers differ from call to call: test_feed_urls.py and test_watches.py in tests/cve call them over both frames."""
REFUSED_WITH_A_KEY = {
    "a day without a list": (404, "no_data_for_date"),
    "no CVE": (400, "invalid_cve_id"),
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: its data without the request's id, its text, and its metadata about the key."""

    is_error: bool
    data: Mapping[str, Any]
    text: str
    key_ignored: str | None

    @property
    def refusal(self) -> tuple[int, str] | None:
        return (self.data["status"], self.data["code"]) if self.is_error else None

    @property
    def shared(self) -> tuple[bool, Mapping[str, Any], str | None]:
        in_words = ("detail", "errors") if self.is_error else ()
        return self.is_error, {name: value for name, value in self.data.items() if name not in in_words}, self.key_ignored


def outcome(*, is_error: bool, structured: Mapping[str, Any], text: str, meta: Mapping[str, Any]) -> Outcome:
    data = {name: value for name, value in structured.items() if name != "request_id"}
    return Outcome(is_error, data, text, meta.get("key_ignored"))


@dataclass(frozen=True)
class Visit:
    """What one client with one key received from one server."""

    protocol: str
    tools: Sequence[str]
    outcomes: Sequence[Outcome]


Visits = Mapping[tuple[str, str, str], Visit]  # by client, key and MCP path


@dataclass(frozen=True)
class Seen:
    """Everything that all clients received."""

    visits: Visits
    http: Mapping[tuple[str, str], Outcome]

    def by(self, client: str, key: str, call: str) -> Outcome:
        if client == "http":
            return self.http[key, call]
        path = CALLS[call].mcp
        return self.visits[client, key, path].outcomes[calls_at(path, key).index(call)]


def is_made(client: str, key: str, call: str) -> bool:
    return client == "http" or key in KEYS_OF_ALL_CALLS or call in CALLS_OF_ALL_KEYS


def calls_at(path: str, key: str) -> list[str]:
    return [name for name, call in CALLS.items() if call.mcp == path and is_made("mcp", key, name)]


def plan(campus: ServedCampus) -> list[tuple[str, str, str | None, list[tuple[str, dict[str, str]]]]]:
    visits = []
    for key in KEYS:
        for path in ("/mcp", "/cve/mcp"):
            calls = [(CALLS[name].name, arguments_of(CALLS[name], campus)) for name in calls_at(path, key)]
            visits.append((key, path, token_of(campus.tokens, key), calls))
    return visits


def arguments_of(call: Tool, campus: ServedCampus) -> dict[str, str]:
    return {name: str(campus.day) if value == "TODAY" else value for name, value in call.arguments.items()}


def token_of(tokens: Tokens, key: str) -> str | None:
    token: str | None = None if key == "none" else getattr(tokens, key)
    return token


def headers_of(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def over_http(campus: ServedCampus) -> Iterator[tuple[tuple[str, str], Outcome]]:
    with patient.Client(base_url=campus.url) as http:
        for key in KEYS:
            for name, call in CALLS.items():
                path = call.path.format_map(arguments_of(call, campus))
                answer = http.get(path, headers=headers_of(token_of(campus.tokens, key)))
                body = answer.json()
                is_error = answer.status_code >= 400
                assert not is_error or body["status"] == answer.status_code
                warning = answer.headers.get("Warning", "")
                meta = {"key_ignored": warning.split('"')[1].split(":")[0]} if warning else {}
                yield (key, name), outcome(is_error=is_error, structured=body, text=body.get("detail", ""), meta=meta)


async def over_fastmcp(campus: ServedCampus, mode: Literal["auto", "legacy"]) -> Visits:
    visits = {}
    for key, path, token, calls in plan(campus):
        async with Client(StreamableHttpTransport(campus.url + path, headers=headers_of(token)), mode=mode) as client:
            protocol = client.protocol_version or ""
            tools = [tool.name for tool in await client.list_tools()]
            results = [await client.call_tool(tool, arguments, raise_on_error=False) for tool, arguments in calls]
        found = [
            outcome(is_error=one.is_error, structured=one.structured_content or {}, text=one.content[0].text, meta=one.meta or {})
            for one in results
        ]
        visits[f"fastmcp {mode}", key, path] = Visit(protocol, tools, found)
    return visits


def over_mcp1(campus: ServedCampus) -> Visits:
    if not MCP1.exists():
        pytest.skip(f"no virtual environment with mcp 1.x at {MCP1.parents[1]}; `make tests` makes it")
    planned = plan(campus)
    given = [{"url": campus.url + path, "key": token, "calls": calls} for _, path, token, calls in planned]
    ran = subprocess.run([MCP1, SCRIPT], input=json.dumps(given), capture_output=True, text=True, timeout=patience(90), check=False)
    assert ran.returncode == 0, ran.stderr
    return {
        ("mcp 1.x", key, path): Visit(said["protocol"], said["tools"], [outcome(**one) for one in said["results"]])
        for (key, path, _, _), said in zip(planned, json.loads(ran.stdout), strict=True)
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The calls by every client with every key, made once."""
    with serve_campus(tmp_path_factory.mktemp("campus")) as campus:
        http = dict(over_http(campus))
        visits = {**anyio.run(over_fastmcp, campus, "auto"), **anyio.run(over_fastmcp, campus, "legacy"), **over_mcp1(campus)}
    return Seen(visits, http)


def test_the_calls_here_are_all_that_the_servers_offer(seen: Seen) -> None:
    assert len(seen.visits) == 3 * len(KEYS) * 2
    for (client, _, path), visit in seen.visits.items():
        assert set(visit.tools) - OF_ONE_KEY == {call.name for call in CALLS.values() if call.mcp == path}
        assert visit.protocol == MCP_CLIENTS[client]


def calls_by(clients: Iterable[str], calls: Iterable[str], keys: Iterable[str]) -> Sequence[tuple[str, str, str]]:
    return [(client, call, key) for client, call, key in product(clients, sorted(calls), keys) if is_made(client, key, call)]


def test_a_tool_answers_over_mcp_what_its_twin_answers_over_http(seen: Seen) -> None:
    for client, call, key in calls_by(MCP_CLIENTS, CALLS, KEYS):
        over_mcp, over_http = seen.by(client, key, call), seen.by("http", key, call)
        assert over_mcp.shared == over_http.shared, (client, call, key)
        assert over_mcp.text, (client, call, key)
        assert not over_mcp.is_error or over_mcp.text == over_mcp.data["detail"], (client, call, key)


def test_a_free_tool_answers_whatever_key_is_sent_and_says_when_one_was_ignored(seen: Seen) -> None:
    for client, call, key in calls_by(CLIENTS, FREE, KEYS):
        found = seen.by(client, key, call)
        assert (found.refusal, found.data.get("ok"), found.key_ignored) == (None, True, BAD.get(key)), (client, call, key)


def test_a_paid_tool_without_access_says_how_it_is_unlocked(seen: Seen) -> None:
    for client, call, key in calls_by(CLIENTS, PAID, ["none"]):
        found = seen.by(client, key, call)
        assert found.refusal == (402, "access_required"), (client, call)
        assert {one["product"]: one["price"] for one in found.data["unlock"]} == {"cve": "19", "campus-pass": "29"}, (client, call)
        assert "Authorization: Bearer" in found.text, (client, call)


def test_a_paid_tool_answers_with_a_key_of_its_scope_and_with_a_pass(seen: Seen) -> None:
    for client, call, key in calls_by(CLIENTS, PAID, ["cve", "campus_pass"]):
        found = seen.by(client, key, call)
        assert found.refusal == REFUSED_WITH_A_KEY.get(call), (client, call, key)
        assert found.is_error or found.data["day"], (client, call, key)


def test_the_refusal_of_a_key_of_another_scope_says_which_key_to_add(seen: Seen) -> None:
    for client, call, key in calls_by(CLIENTS, PAID, ["recorder"]):
        found = seen.by(client, key, call)
        assert found.refusal == (403, "insufficient_scope"), (client, call)
        assert [one["product"] for one in found.data["unlock"]] == ["cve", "campus-pass"], (client, call)
        assert "scope recorder" in found.text, (client, call)
        assert "needs a key of scope cve" in found.text, (client, call)


def test_an_invalid_key_opens_nothing_and_the_answer_says_why(seen: Seen) -> None:
    for client, call, key in calls_by(CLIENTS, PAID, BAD):
        found = seen.by(client, key, call)
        assert found.refusal == (402, BAD[key]), (client, call)
        assert [one["product"] for one in found.data["unlock"]] == ["cve", "campus-pass"], (client, call)
