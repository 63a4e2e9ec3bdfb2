"""Argument errors: over MCP the text names the tool's arguments; over HTTP it names query parameters, body and path."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import pytest
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware, MiddlewareContext
from features.payments.terms.samples import PAYMENTS, payment_v2
from pydantic import BaseModel, BeforeValidator
from service.conftest import UNLIMITED

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from campus import Problem, access, free, route
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio


class Point(BaseModel):
    x: int
    y: float = 0


class Watching(Middleware):
    """An author's middleware: with it, calls go through the server."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await call_next(context)


def port_name(text: Any) -> str:
    if text != "brest":
        raise Problem(400, "invalid_port", "port is not a port; write it as brest")
    return str(text)


def tools(building: str, *middleware: Middleware) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Harbour", middleware=list(middleware))

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route(f"GET /v1/{building}/look/{{port}}", query={"secret": "s"}) | free())
    async def look(port: Annotated[str, BeforeValidator(port_name)], secret: str, count: int = 1) -> str:
        """Look at a port."""
        if count == 7:
            raise Problem(404, "no_ships", "no ships are here")
        return port

    @mcp.tool(meta=free())
    async def write(point: Point, points: list[Point] | None = None) -> str:
        """Write points."""
        return "written"

    @mcp.tool(meta=access(price="0.02"))
    async def buy(point: Point, count: int = 1) -> str:
        """Buy a point."""
        return "bought"

    return mcp


@pytest.fixture(scope="module")
async def harbour() -> AsyncIterator[TestCampus]:
    """The tools, called directly, through their server, and behind a proxy."""
    behind = {"served": tools("served", Watching()), "proxied": create_proxy(tools("proxied"), name="harbour")}
    async with open_campus(harbour=tools("harbour"), **behind, tables={**PAYMENTS, **UNLIMITED}) as campus:
        yield campus


async def refusal_of(campus: TestCampus, tool: str, meta: Any = None, *, building: str | None = None, **arguments: Any) -> str:
    async with campus.mcp(building) as client:
        result = await client.call_tool(tool, arguments, meta=meta, raise_on_error=False)
    assert result.is_error
    problem = result.structured_content or {}
    text: str = result.content[0].text
    assert problem["detail"] == text
    codes = ((422, "invalid_request"), (400, "invalid_port"), (404, "no_ships"), (400, "invalid_json"))
    assert (problem["status"], problem["code"]) in codes
    assert all(error["pointer"].startswith("/arguments/") or error["pointer"] == "" for error in problem.get("errors", ()))
    for place in ("/query", "/body", "/path", "query parameter", "body member", "path parameter"):
        assert place not in text
    return text


async def test_a_misspelled_argument_of_a_shipped_tool_is_named_with_the_right_one() -> None:
    async with open_campus(cve=cve, tools={"cve_verdict": {"free": True}}) as campus:
        sentence = "argument cve_id is required; there is no argument cve; the other arguments are: exposed"
        assert await refusal_of(campus, "cve_verdict", cve="CVE-2021-44228") == sentence


@pytest.mark.parametrize("building", ["harbour", "served", "proxied"])
async def test_each_argument_is_named_once_in_the_callers_frame(harbour: TestCampus, building: str) -> None:
    async def refusal(tool: str, **arguments: Any) -> str:
        return await refusal_of(harbour, tool, building=building, **arguments)

    assert await refusal("look", prt="brest", s="x") == (
        "argument port is required; argument secret is required; there is no argument prt; there is no argument s; "
        "the other arguments are: count"
    )
    assert await refusal("write") == "argument point is required"
    assert await refusal("write", point={"x": True}) == "argument point.x should be a number, not true or false"
    assert await refusal("look", port="brest", secret="a", count=False) == "argument count should be a number, not true or false"
    answer = await harbour.http.get(f"/v1/{building}/look/brest?prt=x")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "query parameter s is required; there is no query parameter prt; the other query parameters are: count",
    )


async def test_nested_arguments_are_named_by_their_path(harbour: TestCampus) -> None:
    assert await refusal_of(harbour, "write", point={"y": "a"}, points=[{"x": 1}, {"x": []}]) == (
        "argument point.x is required; argument point.y should be a valid number, unable to parse string as a number; "
        "argument points[1].x should be a valid integer"
    )


async def test_a_validators_own_refusal_is_reported_with_what_else_is_wrong(harbour: TestCampus) -> None:
    assert await refusal_of(harbour, "look", port="best", secret="a") == "port is not a port; write it as brest"
    assert await refusal_of(harbour, "look", port="best", number=1) == (
        "argument secret is required; port is not a port; write it as brest; there is no argument number; the other arguments are: count"
    )
    answer = await harbour.http.get("/v1/harbour/look/best?number=1")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "query parameter s is required; port is not a port; write it as brest; there is no query parameter number; "
        "the other query parameters are: count",
    )
    assert (await harbour.http.get("/v1/harbour/look/best?s=1")).json()["code"] == "invalid_port"
    assert await refusal_of(harbour, "look", port="brest", secret="a", count=7) == "no ships are here"


async def test_a_paid_call_whose_arguments_do_not_fit_is_refused_before_anything_is_reserved(harbour: TestCampus) -> None:
    terms = (await replace(harbour, frame="mcp").call("buy")).terms
    assert terms is not None
    meta = {"x402/payment": payment_v2(terms)}
    assert await refusal_of(harbour, "buy", meta, point={"x": True}, count=True) == (
        "argument point.x should be a number, not true or false; argument count should be a number, not true or false"
    )
    said = await refusal_of(harbour, "buy", meta, pont={})
    assert said == "argument point is required; there is no argument pont; the other arguments are: count"


async def test_what_is_hostile_is_cut_and_shown_without_what_cannot_be_seen(harbour: TestCampus) -> None:
    look = partial(refusal_of, harbour, "look", port="brest")
    said = await look(secret="a", **{"\x1b[31m\u202e" + "n" * 5000: "hunter2"})
    assert said.isprintable()
    assert len(said) < 250
    assert "hunter2" not in said
    assert await look(secret="a\0b") == "argument secret: a text holds the character NUL"
    said = await look(secret="a", **{f"n{number}": 1 for number in range(100)})
    assert said.count("there is no argument n") == 20
    assert "; and 80 more; " in said


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_no_tool_that_ships_takes_true_or_nan_for_a_number(frame: Any) -> None:
    given = {"name": "a", "alert_webhook": "https://localhost/x"}
    async with open_campus(frame=frame, recorder=recorder, tables={"web": {"allowed_hosts": ["localhost"]}}) as campus:
        for argument in ("period_minutes", "grace_minutes"):
            reply = await campus.call("register_monitor", **given, **{argument: True})
            assert (reply.status, reply.code) == (422, "invalid_request")
            assert f"{argument} should be a number, not true or false" in reply.data["detail"]
        for argument in ("seq", "next_in", "status") if frame == "mcp" else ():  # over HTTP a beat counts, and says what it ignored
            reply = await campus.call("heartbeat", monitor_id="m", secret="s", **{argument: True})
            assert (reply.status, reply.code) == (422, "invalid_request")
        reply = await campus.call("fleet_status", key="recorder", limit=True)
        assert (reply.status, reply.code) == (422, "invalid_request")
        reply = await campus.call("register_monitor", **given, period_minutes="NaN")
        assert (reply.status, reply.code) == (422, "invalid_request")
        argument = "body member" if frame == "http" else "argument"
        assert reply.data["detail"] == f"{argument} period_minutes should be a finite number"


async def test_far_more_arguments_than_a_tool_takes_are_refused_at_once_and_not_one_by_one(harbour: TestCampus) -> None:
    many = {f"name{number}": number for number in range(1_010)}
    over_http = (await harbour.http.post("/v1/harbour/write", json=many)).json()
    async with harbour.mcp() as client:
        over_mcp = await client.call_tool("write", many, raise_on_error=False)
    sentence = "1,010 arguments were sent, and this tool takes 2; send only those that it takes"
    assert (over_http["status"], over_http["code"], over_http["detail"]) == (422, "invalid_request", sentence)
    assert (over_mcp.is_error, sentence in str(over_mcp.content)) == (True, True)
