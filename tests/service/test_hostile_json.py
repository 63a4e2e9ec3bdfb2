"""Hostile JSON over both frames is refused with a reason, never answered with a 5xx, and no tool runs."""

import json

import httpx
import pytest
from service.conftest import SENTINEL

from campus.testing import TestCampus

pytestmark = [pytest.mark.anyio, pytest.mark.faults("hostile JSON")]
TEXTS = {
    "a lone surrogate": r'"\ud800"',
    "NUL": r'"a\u0000b"',
    "a number too large": "1e999",
    "NaN": "NaN",
    "an endless integer": "9" * 5_000,
    "depth": "[" * 10_000 + "]" * 10_000,
    "an object for a text": '{"a": 1}',
    "broken": '"a',
}


async def over_http(campus: TestCampus, text: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return await campus.http.post("/v1/shop/text", content=f'{{"text": {text}}}', headers=headers)


async def over_mcp(campus: TestCampus, text: str, key: str, *, modern: bool) -> httpx.Response:
    meta = (
        '"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},'
        ' "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}}, '
    )
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28" if modern else "2025-11-25",
        **({"Mcp-Method": "tools/call", "Mcp-Name": "write_text"} if modern else {}),
    }
    params = f'{{{meta if modern else ""}"name": "write_text", "arguments": {{"text": {text}}}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    return await campus.http.post("/shop/mcp", content=body, headers=headers)


async def answers_to(campus: TestCampus, text: str) -> list[httpx.Response]:
    key = await campus.key("shop")
    over_both_versions = [await over_mcp(campus, text, key, modern=modern) for modern in (True, False)]
    return [await over_http(campus, text, key), *over_both_versions]


async def test_hostile_json_is_refused_over_both_frames(open_shop: TestCampus) -> None:
    for case, text in TEXTS.items():
        answers = await answers_to(open_shop, text)
        for answer in answers:
            assert answer.status_code < 500, (case, answer.text)
            assert SENTINEL not in answer.text
        assert answers[0].status_code in (400, 413, 422), case
        for answer in answers[1:]:
            assert '"isError":true' in answer.text or '"error"' in answer.text, case


async def test_the_same_calls_run_when_they_are_well_meant(open_shop: TestCampus) -> None:
    for answer in await answers_to(open_shop, json.dumps("fine 😀")):
        assert answer.status_code == 200, answer.text
        assert SENTINEL in answer.text
