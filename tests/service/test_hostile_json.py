"""Hostile JSON over both frames is refused with a reason, never answered with a 5xx, and no tool runs."""

import json

import httpx
import pytest

from campus import Building
from campus.testing import TestCampus, open_campus

pytestmark = [pytest.mark.anyio, pytest.mark.faults("hostile JSON")]
SENTINEL = "paid-for-and-delivered"
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


@pytest.mark.parametrize("case", TEXTS, ids=str)
async def test_hostile_json_is_refused_over_both_frames(shop: Building, case: str) -> None:
    async with open_campus(shop=shop) as campus:
        key = await campus.key("shop")
        answers = [
            await over_http(campus, TEXTS[case], key),
            await over_mcp(campus, TEXTS[case], key, modern=True),
            await over_mcp(campus, TEXTS[case], key, modern=False),
        ]
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert SENTINEL not in answer.text
    assert answers[0].status_code in (400, 413, 422)
    for answer in answers[1:]:
        assert '"isError":true' in answer.text or '"error"' in answer.text


async def test_the_same_calls_run_when_they_are_well_meant(shop: Building) -> None:
    async with open_campus(shop=shop) as campus:
        key = await campus.key("shop")
        for answer in (
            await over_http(campus, json.dumps("fine 😀"), key),
            await over_mcp(campus, json.dumps("fine 😀"), key, modern=True),
            await over_mcp(campus, json.dumps("fine 😀"), key, modern=False),
        ):
            assert answer.status_code == 200, answer.text
            assert SENTINEL in answer.text
