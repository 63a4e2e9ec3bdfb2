"""A building that sells calls and keys, a configuration that takes payments, and payments of every shape."""

import json
import tomllib
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from fastmcp import FastMCP
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent
from pydantic import BaseModel, ConfigDict

from campus import Building, Problem, access, free, route
from campus.app import Campus, assemble
from campus.asgi import open_app
from campus.config import config_model
from campus.features.payments.wire import LARGEST_PAYMENT
from campus.testing import ORIGIN, Frame, TestCampus, open_campus
from tests import patient

SENTINEL = "paid-for-and-delivered"
PAY_TO = "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"
PAYER = "0x" + "1c" * 20
NOBODY_LISTENS = "http://127.0.0.1:9"
PAYMENTS: dict[str, Any] = {
    "payments": {"network": "eip155:8453", "pay_to": PAY_TO, "facilitators": [NOBODY_LISTENS], "rpc_url": NOBODY_LISTENS}
}
ROOT = Path(__file__).parents[4]
Shop = tuple[Campus, httpx.AsyncClient]
"""campus.toml as it is shipped, with the checkout, and who calls it."""
READ_ONLY = {"readOnlyHint": True}


class Paid(BaseModel):
    """What was paid for."""

    model_config = ConfigDict(frozen=True)

    text: str
    day: date | None = None
    accepts: str = ""
    """A member that terms of payment have too, of another type."""


def make_seller(*, sells_keys: bool = True) -> Building:
    mcp: FastMCP[Any] = FastMCP("Seller", instructions="Sells a sentence.")

    @mcp.tool(annotations=READ_ONLY, meta=free())
    async def sample() -> Paid:
        """A free sample."""
        return Paid(text="free")

    @mcp.tool(annotations=READ_ONLY, meta=route("/v1/stall/text/{day}", query={"language": "lang"}) | access(price="0.02"))
    async def text_of(day: date, language: str = "en", words: int = 3) -> Paid:
        """The sentence of a day. In any language."""
        return Paid(text=SENTINEL, day=day)

    @mcp.tool(meta=route("POST /v1/stall/text") | access(price="0.005"))
    async def write_text(text: str, marks: list[str] | None = None) -> Paid:
        """Write a sentence."""
        if text == "unlucky":
            raise Problem(409, "unlucky", "that sentence cannot be written")
        if text == "crash":
            raise RuntimeError("secret-of-the-crash")
        return Paid(text=SENTINEL + text)

    @mcp.tool(annotations=READ_ONLY, meta=access(price="0.01"))
    def words(many: list[int]) -> list[int]:
        """Numbers, in a list."""
        return many

    @mcp.tool(output_schema=None, meta=access(price="0.01"))
    async def said(text: str) -> ToolResult:
        """A text for eyes and ears; or the word that there is none."""
        return ToolResult(content=[TextContent(type="text", text=SENTINEL + text)], is_error=text == "silent")

    async def buy(product: str, idempotency_key: str = "") -> Paid:
        """Buy a key."""
        return Paid(text=SENTINEL + product)

    if sells_keys:
        mcp.tool(buy, meta=access(key="never", sells="product"))
    return Building(mcp)


def open_seller(frame: Frame = "http", **tables: Any) -> AbstractAsyncContextManager[TestCampus]:
    return open_campus(frame=frame, settings={"grants": ["keys"]}, tables=PAYMENTS | tables, stall=make_seller())


@asynccontextmanager
async def shipped(folder: Path, **tables: Any) -> AsyncIterator[Shop]:
    data = tomllib.loads((ROOT / "campus.toml").read_text())
    data["buildings"] |= {"checkout": {"grants": ["keys"]}}
    data["server"] |= {"public_url": ORIGIN}
    config = config_model().model_validate(data | PAYMENTS | tables | {"folder": folder})
    async with (
        assemble(config, exclusive=False) as campus,
        open_app(campus) as app,
        patient.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http,
    ):
        yield campus, http


def payload(**changes: Any) -> dict[str, Any]:
    authorization = {
        "from": PAYER,
        "to": PAY_TO,
        "value": "20000",
        "validAfter": "0",
        "validBefore": "4000000000",
        "nonce": "0x" + "5a" * 32,
    }
    return {"signature": "0x" + "77" * 65, "authorization": authorization | changes}


def payment_v2(terms: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    accepted = terms["accepts"][0]
    changes = {"to": accepted["payTo"], "value": accepted["amount"]} | changes
    return {"x402Version": 2, "accepted": accepted, "resource": terms["resource"], "payload": payload(**changes)}


def payment_v1(network: str = "base", **changes: Any) -> dict[str, Any]:
    return {"x402Version": 1, "scheme": "exact", "network": network, "payload": payload(**changes)}


def header(data: Any) -> str:
    return b64encode(json.dumps(data).encode()).decode()


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(data))
    *steps, last = path.split(".")
    inner = copy
    for step in steps:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy


TERMS: dict[str, Any] = {
    "accepts": [
        {
            "scheme": "exact",
            "network": "eip155:8453",
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "amount": "20000",
            "payTo": PAY_TO,
            "maxTimeoutSeconds": 300,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
    "resource": {"url": "https://campus.example/v1/x", "description": "x", "mimeType": "application/json"},
}
V2, V1 = payment_v2(TERMS), payment_v1()

GARBAGE: dict[str, str | bytes] = {
    "nothing": "",
    "no base64": "garbage!",
    "bytes of no text": b"\xff\xfe\x00",
    "truncated": header(V2)[:-7],
    "truncated at a whole quantum": header(V2)[:-8],
    "no JSON": b64encode(b"{]").decode(),
    "no UTF-8": b64encode(b'{"a": "\xff"}').decode(),
    "a list": header([V2]),
    "null": header(None),
    "a number": header(1),
    "a lone surrogate": b64encode(rb'{"a": "\ud800"}').decode(),
    "an endless number": b64encode(b'{"a": ' + b"9" * 5_000 + b"}").decode(),
    "depth": b64encode(b"[" * 9_000).decode(),
    "oversized": header(V2 | {"more": "x" * LARGEST_PAYMENT}),
    "v1 in the header of v2": header(V1),
    "no version": header(changed(V2, "x402Version", ...)),
    "a version to come": header(changed(V2, "x402Version", 3)),
    "a version that is a list": header(changed(V2, "x402Version", [2])),
}
