"""The caller's key is FastMCP's principal: get_access_token(), UserSession and the auth= of components see its lineage and scopes."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.server.auth import require_scopes
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.sessions import UserSession
from features.payments.terms.paid_campus import open_paid_campus
from mcp.server.auth.middleware.auth_context import get_access_token as get_sdk_token
from service.conftest import UNLIMITED

from campus import Building, access, free, route
from campus.features.chain import headers_of, terms_of
from campus.testing import Frame, TestCampus, open_campus

pytestmark = pytest.mark.anyio


class Present(ServerExtension):
    """Does nothing, but calls go through the server while it is there."""

    identifier = "test.campus/present"


def principals() -> list[str]:
    tokens = (get_access_token(), get_sdk_token())
    return [str(each and [each.token, each.client_id, each.subject, each.scopes, each.claims]) for each in tokens]


def make_vault(way: str = "direct") -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Vault")
    if way == "server":
        mcp.add_extension(Present())

    @mcp.tool(meta=access(key="optional"))
    async def who() -> list[str]:
        """The principal, as FastMCP and as mcp name it."""
        return principals()

    @mcp.tool(meta=access(key="optional"))
    async def remember(session: UserSession, fact: str = "") -> str:
        """Remember a fact, and return the one before."""
        before = str(await session.get("fact"))
        await session.set("fact", fact)
        return before

    @mcp.tool(meta=free(), auth=require_scopes("vault"))
    async def ranked(ctx: Context) -> str:
        """For keys of the scope vault alone."""
        return "ranked"

    @mcp.resource("vault://door", auth=require_scopes("vault"))
    def door() -> str:
        return "open"

    return mcp


@pytest.fixture(scope="module")
async def open_vaults() -> AsyncIterator[TestCampus]:
    """One whose tools are called directly, one whose calls go through its server, and one of another scope."""
    expose = {"vault": {"expose": ["resources"]}, "served": {"scope": "vault"}, "other": {}}
    vaults = {"vault": make_vault(), "served": make_vault("server"), "other": make_vault()}
    async with open_campus(**vaults, tables={"buildings": expose, **UNLIMITED}) as campus:
        yield campus


@pytest.fixture
def campus(open_vaults: TestCampus, frame: Frame) -> TestCampus:
    return replace(open_vaults, frame=frame)


@pytest.mark.parametrize("building", ["vault", "served"])
async def test_a_tool_sees_the_lineage_and_scopes_of_the_callers_key_and_never_its_token(campus: TestCampus, building: str) -> None:
    key, token = await campus.service.keys.issue("vault")
    principal = str([key.id, key.lineage, key.lineage, ["vault"], {"key": key.id, "product": "vault"}])
    assert (await campus.call("who", key=token, building=building)).data == [principal, principal]
    everything, token = await campus.service.keys.issue("all")
    seen = (await campus.call("who", key=token, building=building)).data
    assert "['all', 'vault']" in seen[0]
    assert token not in str(seen)
    assert everything.lineage in str(seen)
    assert (await campus.call("who", building=building)).data == ["None", "None"]


@pytest.mark.parametrize("building", ["vault", "served"])
async def test_a_session_belongs_to_the_lineage_of_the_key(campus: TestCampus, building: str) -> None:
    async def remember(token: str, **fact: str) -> str:
        return str((await campus.call("remember", key=token, building=building, **fact)).data)

    key, token = await campus.service.keys.issue("vault")
    other = await campus.key("vault")
    assert [await remember(each, fact=fact) for each, fact in ((token, "a"), (other, "b"), (token, "c"))] == ["None", "None", "a"]
    _, rotated = await campus.service.keys.rotate(key.id)
    assert await remember(rotated) == "c"


async def listed(campus: TestCampus, token: str | None) -> tuple[Sequence[str], Sequence[str]]:
    async with campus.mcp(headers={"Authorization": f"Bearer {token}"} if token else {}) as client:
        return [tool.name for tool in await client.list_tools()], [str(each.uri) for each in await client.list_resources()]


async def test_a_component_that_requires_a_scope_opens_to_keys_of_that_scope_alone(campus: TestCampus) -> None:
    vault, everything, other = [await campus.key(name) for name in ("vault", "all", "other")]
    for token in (vault, everything):
        assert (await campus.call("ranked", key=token)).data == "ranked"
        assert await listed(campus, token) == (["who", "remember", "ranked"], ["vault://door"])
    for stranger in (other, None):
        refused = await campus.call("ranked", key=stranger)
        assert (refused.status, refused.code) == ((403, "forbidden") if campus.frame == "http" else (400, None))
        assert await listed(campus, stranger) == (["who", "remember"], [])


async def test_a_call_that_is_paid_for_has_no_principal() -> None:
    mcp: FastMCP[Any] = FastMCP("Seller")

    @mcp.tool(meta=route("POST /v1/stall/who") | access(price="0.01", key="never"))
    async def who() -> list[str]:
        """The principal."""
        return principals()

    async with open_paid_campus(Building(mcp)) as paid_campus:
        headers = {"Authorization": f"Bearer {await paid_campus.campus.key('stall')}"}
        unpaid = await paid_campus.campus.http.post("/v1/stall/who", json={}, headers=headers)
        payment = paid_campus.payer.payload(terms_of(unpaid))
        paid = await paid_campus.campus.http.post("/v1/stall/who", json={}, headers=headers | headers_of(payment))
        assert paid.json() == {"result": ["None", "None"]}
        over = {"x402/payment": paid_campus.payer.payload(terms_of(unpaid))}
        async with paid_campus.campus.mcp(headers=headers) as client:
            result = await client.call_tool("who", {}, meta=over)
        assert result.structured_content == {"result": ["None", "None"]}
