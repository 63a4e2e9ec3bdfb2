"""An author's extensions: one that intercepts calls is asked for each call of either frame, and what it refuses is not charged."""

from dataclasses import replace
from itertools import product
from typing import Any

import mcp_types
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.tools.base import ToolResult
from features.payments.terms.paid_campus import PaidCampus, open_paid_campus
from mcp import MCPError
from mcp_types import EmptyResult, RequestParams
from pydantic import BaseModel
from service.conftest import FRAMES

from campus import Building, access, route
from campus.errors import LoadError
from campus.features.chain import terms_of
from campus.testing import Frame, open_campus

pytestmark = pytest.mark.anyio
SECRET = "a-secret-of-the-tool"
REFUSED = "the gate is shut"


class Own(BaseModel):
    """A result that only its extension knows."""

    handle: str
    resultType: str = "handle"  # the name that the protocol has


class Gatekeeper(ServerExtension):
    """Answers for the tool in a way that the test chooses, or lets the call through."""

    identifier = "test.campus/gatekeeper"

    def __init__(self, way: str = "raise") -> None:
        self.way = way
        self.asked: list[str] = []

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        self.asked.append(params.name)
        match self.way:
            case "raise":
                raise ToolError(REFUSED)
            case "result":
                return ToolResult(content=REFUSED, is_error=True)
            case "protocol":
                raise MCPError(code=-32002, message=REFUSED)
            case "ask":
                return mcp_types.InputRequiredResult(request_state="x")
            case "own":
                return Own(handle="h1")
        assert self.server is context.fastmcp
        return await call_next()


class Bound(ServerExtension):
    """An extension with a request of its own."""

    identifier = "test.campus/bound"

    def methods(self) -> Any:
        async def handler(ctx: Any, params: Any) -> EmptyResult:
            return EmptyResult()

        return [MethodBinding("vault/open", RequestParams, handler)]


def guarded(*extensions: ServerExtension, building: str = "stall") -> tuple[FastMCP[Any], list[int]]:
    mcp: FastMCP[Any] = FastMCP("Seller")
    ran: list[int] = []

    @mcp.tool(meta=route(f"POST /v1/{building}/secret") | access(price="0.01"))
    async def secret(n: int = 0) -> str:
        """Return the secret."""
        ran.append(n)
        return SECRET

    for extension in extensions:
        mcp.add_extension(extension)
    return mcp, ran


async def test_a_call_that_an_extension_refuses_does_not_run_on_either_frame() -> None:
    ways = ("raise", "result", "protocol")
    keepers = {way: Gatekeeper(way) for way in ways}
    servers = {way: guarded(keepers[way], building=way) for way in ways}
    async with open_campus(**{way: mcp for way, (mcp, _) in servers.items()}) as opened:
        for way, frame in product(ways, FRAMES):
            campus, gatekeeper, ran = replace(opened, frame=frame, main=way), keepers[way], servers[way][1]
            gatekeeper.way = way
            key = await campus.key(way)
            if frame == "mcp" and way == "protocol":
                with pytest.raises(MCPError, match=REFUSED):
                    await campus.call("secret", key=key)
            else:
                refused = await campus.call("secret", key=key)
                assert refused.status >= 400
                assert REFUSED in str(refused.data)
                assert (await campus.call("secret")).status == 402, "who may not call is refused before the extension is asked"
            assert (ran, gatekeeper.asked) == ([], ["secret"])
            gatekeeper.way = "pass"
            assert (await campus.call("secret", key=key, n=3)).data == SECRET
            assert ran == [3]
            ran.clear()
            gatekeeper.asked.clear()


async def test_an_extension_answers_in_its_own_words_or_asks_back_on_either_frame() -> None:
    mcp, ran = guarded(gatekeeper := Gatekeeper("own"))
    async with open_campus(stall=mcp) as campus:
        headers = {"Authorization": f"Bearer {await campus.key('stall')}"}
        assert (await campus.http.post("/v1/stall/secret", json={}, headers=headers)).json() == {"handle": "h1", "resultType": "handle"}
        async with campus.mcp(headers=headers) as client:
            request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name="secret"))
            assert (await client.session.send_request(request, Own)).handle == "h1"
        gatekeeper.way = "ask"
        assert (await campus.http.post("/v1/stall/secret", json={}, headers=headers)).json()["code"] == "input_required"
        assert ran == []


async def paid(paid_campus: PaidCampus, frame: Frame) -> Any:
    reply = await paid_campus.campus.http.post("/v1/stall/secret", json={})
    terms = terms_of(reply)
    payment = paid_campus.payer.payload(terms)
    if frame == "http":
        return (await paid_campus.campus.http.post("/v1/stall/secret", json={}, headers=paid_campus.payer.pay_headers(terms))).text
    async with paid_campus.mcp() as client:
        return await client.call_tool("secret", {}, meta={"x402/payment": payment}, raise_on_error=False)


async def test_a_paid_call_that_an_extension_refuses_is_not_charged() -> None:
    mcp, ran = guarded(gatekeeper := Gatekeeper())
    async with open_paid_campus(Building(mcp)) as paid_campus:
        for way in ("raise", "result"):
            gatekeeper.way = way
            for frame in ("http", "mcp"):
                assert REFUSED in str(await paid(paid_campus, frame))
        assert (ran, await paid_campus.earned()) == ([], 0)
        assert paid_campus.facilitator.outcomes("settle") == []
        gatekeeper.way = "pass"
        assert SECRET in str(await paid(paid_campus, "mcp"))
        assert await paid_campus.earned() == 10_000


async def test_an_extensions_own_requests_are_served_only_where_the_operator_exposes_them() -> None:
    mcp, _ = guarded(Bound())
    with pytest.raises(LoadError, match=r"test\.campus/bound.*vault/open.*expose = \[\"methods\"\]"):
        async with open_campus(stall=mcp):
            pass
    async with open_campus(stall=mcp, settings={"expose": ["methods"]}) as campus, campus.mcp() as client:
        extensions = client.session.server_capabilities.extensions or {}
        assert "test.campus/bound" in extensions
