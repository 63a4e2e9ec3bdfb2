"""APIs that are sold: those of which an author made tools by `FastMCP.from_openapi`, and those of `server = { openapi = "…" }`."""

import json
from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ResourceError, ToolError
from fastmcp.server.middleware.timing import TimingMiddleware
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ArgTransform
from features.foreign_servers.pets_api import DOCUMENT, HEADERS, REX, PetsApi
from listening import listening

from campus.features.chain import Chain, Payer, new_wallet, open_chain, open_facilitator
from campus.features.foreign_servers.apis import ApiServer, ApiTable
from campus.testing import Frame, TestCampus, open_campus

pytestmark = pytest.mark.anyio
BUILDINGS = ("pets", "authored")
FRAMES: tuple[Frame, ...] = ("http", "mcp")
LIMIT = 20_000
OUTCOMES: dict[str, tuple[str, dict[str, Any], int, str | None, str]] = {
    "an answer": ("get_pet", {"petId": 1}, 200, None, ""),
    "nothing there": ("get_pet", {"petId": 7}, 404, "upstream_refused", "answered 404 Not Found: no pet has the number 7"),
    "a conflict": ("change_pet", {"petId": 1, "name": "Max"}, 409, "upstream_refused", "somebody else changed it"),
    "arguments that the API refuses": ("odd", {"kind": "invalid"}, 422, "upstream_refused", '"msg":"is odd"'),
    "too many calls": ("odd", {"kind": "too_many"}, 429, "upstream_refused", "slower"),
    "a secret in its words": ("odd", {"kind": "secret"}, 403, "upstream_refused", "not with (hidden)"),
    "a login of the service": ("odd", {"kind": "unwelcome"}, 502, "upstream_failed", "does not let this service in (401)"),
    "a price of the service": ("odd", {"kind": "paid"}, 502, "upstream_failed", "does not let this service in (402)"),
    "a crash": ("odd", {"kind": "crash"}, 502, "upstream_failed", "the API behind this tool failed (500)"),
    "silence": ("odd", {"kind": "hang"}, 504, "timeout", "did not answer in time"),
    "a redirect elsewhere": ("odd", {"kind": "away"}, 502, "upstream_failed", "a redirect to another address"),
}
OVER_MCP: dict[str, tuple[str, dict[str, Any], int, str | None, str]] = {
    "a path that leads out": ("odd", {"kind": ".."}, 422, "invalid_request", "dot segments"),
}
"""What no address can say."""
OWN_CLIENT: dict[str, tuple[str, dict[str, Any], int, str | None, str]] = {
    "a redirect on the same host": ("odd", {"kind": "moved"}, 200, None, ""),
    "broken JSON": ("odd", {"kind": "broken"}, 502, "upstream_failed", "did not return a valid answer"),
    "a huge answer": ("odd", {"kind": "huge"}, 502, "upstream_failed", "a longer answer than is accepted here"),
    "no content": ("remove_pet", {"petId": 1}, 200, None, ""),
}
"""What only campus's own client sees to."""


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@dataclass(frozen=True)
class Shop:
    """A campus that sells one API twice: from its document, as `pets`, and from the tools that an author made, as `authored`."""

    campus: TestCampus
    api: PetsApi
    chain: Chain
    payer: Payer
    payee: str

    def over(self, frame: Frame) -> TestCampus:
        return replace(self.campus, frame=frame)


@pytest.fixture(scope="module")
async def shop() -> AsyncIterator[Shop]:
    api, payer, payee = PetsApi(), Payer(new_wallet()), new_wallet().address
    tools = {"*": {"price": "0.01"}}
    async with (
        open_chain() as chain,
        open_facilitator(chain) as facilitator,
        listening(api.app) as url,
        httpx2.AsyncClient(base_url=url, headers=HEADERS, timeout=1) as client,
    ):
        await chain.mint(payer.wallet.address, 1_000_000)
        server = {"openapi": f"{url}/openapi.json", "headers": HEADERS, "timeout": 1_000}
        tables = {
            "buildings": {"pets": {"server": server, "answer_limit": LIMIT, "tools": tools}, "authored": {"tools": tools}},
            "payments": facilitator.table(payee),
            "limits": dict.fromkeys(("keyed", "unpaid"), "off"),
        }
        authored = FastMCP.from_openapi(deepcopy(DOCUMENT), client, name="Pets")
        async with open_campus(pets=None, authored=authored, tables=tables) as campus:
            yield Shop(campus, api, chain, payer, payee)


async def test_an_apis_answers_reach_the_caller_as_they_are_and_its_failures_are_its_own(shop: Shop) -> None:
    for building, frame in product(BUILDINGS, FRAMES):
        outcomes = OUTCOMES | (OWN_CLIENT if building == "pets" else {}) | (OVER_MCP if frame == "mcp" else {})
        key = await shop.campus.key(building)
        for case, (tool, arguments, status, code, words) in outcomes.items():
            reply = await shop.over(frame).call(tool, building=building, key=key, **arguments)
            said = str(reply.data.get("detail", "")) if isinstance(reply.data, dict) and reply.status >= 400 else ""
            assert (reply.status, reply.code, words in said) == (status, code, True), (building, frame, case, said)
            assert "hunter2" not in json.dumps(reply.data)
            if case == "too many calls" and frame == "http":
                assert reply.headers["retry-after"] == "7"


async def test_arguments_that_do_not_fit_are_refused_before_the_api_is_asked(shop: Shop) -> None:
    before = shop.api.asked.total()
    for building in BUILDINGS:
        for tool, arguments in {"add_pet": {"id": 3}, "list_pets": {"limit": True}}.items():
            reply = await shop.campus.call(tool, building=building, key=building, **arguments)
            assert (reply.status, reply.code) == (422, "invalid_request")
    assert shop.api.asked.total() == before


async def test_only_an_answer_of_the_api_is_charged(shop: Shop) -> None:
    for building, frame in product(BUILDINGS, FRAMES):
        before = await shop.chain.balance(shop.payee)
        call = partial(shop.over(frame).call, building=building, payer=shop.payer)
        for kind in ("crash", "hang", "too_many", "unwelcome", "away"):
            assert (await call("odd", kind=kind)).status >= 400
        assert (await call("get_pet", petId=7)).status == 404
        bought = await call("get_pet", petId=1)
        assert (bought.data, bought.receipt is None) == (REX, False)
        assert await shop.chain.balance(shop.payee) == before + 10_000, (building, frame)


async def test_an_operation_keeps_its_method_its_path_its_status_and_its_words(shop: Shop) -> None:
    http, api = shop.campus.http, shop.api
    key = {"Authorization": f"Bearer {await shop.campus.key('pets')}", "X-Caller": "private", "Cookie": "mine=1"}
    document = (await http.get("/pets/openapi.json")).json()
    served = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    added = await http.post("/v1/pets/pets", json={"name": "Tom"}, headers=key)
    assert (added.status_code, added.json()) == (201, {"id": 2, "name": "Tom"})
    assert (await http.get("/v1/pets/pets?limit=2", headers=key)).json() == {"result": [REX]}
    assert api.heads["authorization"] == HEADERS["Authorization"]
    assert (await http.get("/v1/pets/pets/1", headers=key)).json() == REX
    assert not {"cookie", "x-caller"} & api.heads.keys()  # neither of this caller nor, by the API's cookie, of the one before
    removed = await http.delete("/v1/pets/pets/1", headers=key)
    assert (removed.status_code, removed.json()) == (200, {"result": None})
    async with shop.campus.mcp() as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert client.instructions == "Pets and who keeps them."
    assert served == {
        *("GET /v1/pets/pets", "POST /v1/pets/pets", "GET /v1/pets/odd/{kind}"),
        *("GET /v1/pets/pets/{petId}", "PUT /v1/pets/pets/{petId}", "DELETE /v1/pets/pets/{petId}"),
    }
    got, listed = tools["get_pet"], tools["list_pets"]
    assert (got.title, str(got.description).partition("\n")[0]) == ("Get a pet", "One pet, by its number.")
    assert [tools[name].annotations.read_only_hint for name in ("get_pet", "add_pet")] == [True, False]
    assert listed.input_schema["properties"]["limit"]["examples"] == [5]
    assert "Authorization" not in listed.input_schema["properties"]
    assert got.output_schema is not None


async def test_get_operations_of_an_authors_api_are_get_routes(shop: Shop) -> None:
    key = {"Authorization": f"Bearer {await shop.campus.key('authored')}"}
    assert (await shop.campus.http.get("/v1/authored/get_pet?petId=1", headers=key)).json() == REX
    assert (await shop.campus.http.get("/v1/authored/add_pet?name=Tom", headers=key)).status_code == 405


async def test_an_api_that_is_mounted_or_whose_tools_are_transformed_keeps_its_words() -> None:
    async with listening(PetsApi().app) as url, httpx2.AsyncClient(base_url=url) as client:
        pets = FastMCP.from_openapi(deepcopy(DOCUMENT), client, name="Pets")
        zoo: FastMCP[Any] = FastMCP("Zoo")
        zoo.mount(pets, namespace="zoo")
        pet = await pets.get_tool("get_pet")
        assert pet is not None
        zoo.add_tool(Tool.from_tool(pet, name="pet", transform_args={"petId": ArgTransform(name="number")}))
        async with open_campus(zoo=zoo) as opened:
            for campus in (replace(opened, frame=frame) for frame in FRAMES):
                for reply in (await campus.call("zoo_get_pet", petId=7), await campus.call("pet", number=7)):
                    assert (reply.status, reply.code) == (404, "upstream_refused")
                    assert "no pet has the number 7" in reply.data["detail"]


def make_words(**options: Any) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Words", **options)

    @mcp.tool
    async def refuse(kind: str, ctx: Context) -> str:
        """Refuse, or fail."""
        try:
            return {"known": "yes"}[kind]
        except KeyError as error:
            if kind == "file":
                return str(await ctx.read_resource("file://broken"))
            if kind == "gone":
                return str(await ctx.read_resource("file://gone"))
            raise ToolError("Error calling tool 'refuse': no such kind") from error

    @mcp.resource("file://broken")
    def broken() -> str:
        """A resource that fails."""
        raise ResourceError("hunter2")

    @mcp.tool(annotations={"readOnlyHint": True})
    async def pet(number: int) -> str:
        """A pet, from an API whose errors this tool forgets."""
        request = httpx2.Request("GET", "http://127.0.0.1/pets")
        httpx2.Response(number, text="hunter2", request=request).raise_for_status()
        return "Rex"

    return mcp


async def test_a_refusal_has_its_words_and_a_crash_has_none_however_the_tool_is_reached() -> None:
    async with open_campus(direct=make_words(), through=make_words(middleware=[TimingMiddleware()])) as opened:
        for building, frame in product(("direct", "through"), FRAMES):
            call = partial(replace(opened, frame=frame).call, building=building)
            refused = await call("refuse", kind="other")
            expected = 400, "tool_error", "Error calling tool 'refuse': no such kind"
            assert (refused.status, refused.code, refused.data["detail"]) == expected, (building, frame)
            crashes = [await call("refuse", kind=kind) for kind in ("file", "gone")]
            let_through = [await call("pet", number=status) for status in (404, 429)]
            assert [(reply.status, reply.code) for reply in (*crashes, *let_through)] == [
                *[(500, "internal_error")] * 3,
                (503, "upstream_unavailable"),
            ], (building, frame)
            assert "hunter2" not in str([reply.data for reply in (*crashes, *let_through)])


async def test_a_document_that_is_wrong_or_leads_to_a_private_address_closes_its_building_alone(tmp_path: Path) -> None:
    private = DOCUMENT | {"servers": [{"url": "http://169.254.169.254/latest"}]}
    for name, text in {
        "old": json.dumps({"swagger": "2.0"}),
        "words": "no document",
        "aliases": "openapi: 3.0.0\ninfo: &i {title: A, version: '1'}\npaths: {}\nx: *i\n",
        "private": json.dumps(private),
        "nowhere": json.dumps(DOCUMENT),
        "long": json.dumps(DOCUMENT | {"x-fill": "x" * 2_000_000}),
    }.items():
        (tmp_path / name).write_text(text)
    names = ("old", "words", "aliases", "private", "nowhere", "long", "missing")
    api = PetsApi(DOCUMENT | {"servers": [{"url": "http://169.254.169.254/latest"}]})
    async with listening(api.app) as url:
        tables = {name: {"server": {"openapi": name}} for name in names}
        tables |= {"pets": {"server": {"openapi": f"{url}/openapi.json", "base_url": url}}}
        tables |= {"lured": {"server": {"openapi": f"{url}/openapi.json"}}}
        async with open_campus(pets=None, tables={"buildings": tables, "folder": tmp_path}) as campus:
            assert (await campus.call("get_pet", petId=1)).data == REX
            found = await campus.findings()
    said = {name: " ".join(found[name]) for name in (*names, "lured")}
    for name, words in {
        "old": "Swagger 2.0",
        "words": "no OpenAPI document",
        "aliases": "aliases",
        "private": "http://169.254.169.254, which is no public address",
        "nowhere": "write base_url",
        "long": "raise answer_limit",
        "missing": "cannot be read: No such file",
        "lured": "no public address",
    }.items():
        assert words in said[name], name


async def test_a_document_in_yaml_is_served_and_a_changed_one_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    text = "openapi: 3.1.0\ninfo: {title: T, version: 2026-01-01}\nservers: [{url: 'https://api.example/v1'}]\npaths:\n  /now:\n"
    file.write_text(f"{text}    get: {{operationId: now, responses: {{200: {{description: Now}}}}}}\n")
    api = ApiServer("times", ApiTable(openapi="api.yaml"), folder=tmp_path, answer_limit=LIMIT, is_local=False)
    await api.open(seconds=60)
    assert [tool.name for tool in await api.server().list_tools()] == ["now"]
    assert not await api.has_changed()
    file.write_text(text + "    get: {operationId: then, responses: {200: {description: Then}}}\n")
    assert await api.has_changed()
