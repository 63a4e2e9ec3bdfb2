"""What crawlers and facilitators read in the terms: how each tool is called and what it answers."""

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import httpx
import jsonschema
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from features.payments.terms.paid_campus import DAY, PATH, PaidCampus
from features.payments.terms.samples import Shop, make_seller, payment_v2
from features.payments.terms.test_prices import ARGUMENTS
from features.payments.terms.test_terms import terms_of
from pydantic_core import to_json
from x402.extensions.bazaar.facilitator import (
    _sanitize_resource_service_metadata,
    extract_discovery_info,
    validate_discovery_extension,
    validate_discovery_extension_spec,
)
from x402.extensions.bazaar.v1.facilitator import extract_discovery_info_v1
from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentRequirementsV1

from buildings.cve.models import EXAMPLE, EXAMPLE_OF_VERDICT, Entry, Verdict
from campus import Building
from campus.features.chain import headers_of
from campus.testing import ORIGIN, Frame, TestCampus, open_campus

pytestmark = pytest.mark.anyio


async def test_facilitators_accept_the_bazaar_extension(campus: TestCampus, frame: Frame) -> None:
    for tool, arguments in (("text_of", DAY), ("write_text", {"text": "x"}), ("buy", {})):
        terms = await terms_of(campus, tool, **arguments)
        extension = terms["extensions"]["bazaar"]
        assert validate_discovery_extension(extension).errors == []
        assert validate_discovery_extension_spec(extension).errors == []
        paid = PaymentPayload.model_validate(payment_v2(terms) | {"extensions": terms["extensions"]})
        found = extract_discovery_info(paid, terms["accepts"][0])
        assert found is not None
        if frame == "mcp":
            assert found.tool_name == tool
        else:
            assert (found.method, found.tool_name) == ("GET" if tool == "text_of" else "POST", None)
    assert found.resource_url.startswith("http://campus.test/v1/stall/")


async def test_the_bazaar_extension_describes_the_arguments_of_the_tool(campus: TestCampus) -> None:
    by_get = (await terms_of(campus, "text_of", **DAY))["extensions"]["bazaar"]
    by_post = (await terms_of(campus, "write_text"))["extensions"]["bazaar"]
    said = by_get["schema"]["properties"]["input"]["properties"]
    assert set(said["queryParams"]["properties"]) == {"lang", "words"}
    assert set(said["pathParams"]["properties"]) == {"day"}
    assert by_get["routeTemplate"] == "/v1/stall/text/:day"
    body = by_post["schema"]["properties"]["input"]["properties"]["body"]
    assert body["properties"]["text"]["type"] == "string"


def crawled(extension: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any], Any]:
    properties = extension["schema"]["properties"]
    inputs = properties["input"]["properties"]
    return inputs["body"] if "body" in inputs else inputs["queryParams"], properties["output"]["properties"]["example"], example(extension)


def example(extension: Mapping[str, Any]) -> Any:
    output = extension["info"]["output"]
    assert output["type"] == "json"
    return output["example"]


async def test_a_crawler_finds_the_arguments_of_every_tool_in_the_header_and_its_answer_in_the_body(shop: Shop) -> None:
    campus, http = shop
    tools = list(campus.plan.seller.paid_tools())  # type: ignore[union-attr]  # payments are on
    for paid_tool in tools:
        tool = paid_tool.operation.tool
        path = paid_tool.operation.path.format_map(ARGUMENTS)
        for method in paid_tool.operation.methods:
            answer = await http.request(method, path)
            takes, answers, shown = crawled(extension_of(answer))
            assert takes["type"] == "object"
            assert set(takes.get("properties", {})) == {one.wire for one in paid_tool.operation.parameters if not one.in_path}, path
            jsonschema.validate(shown, answers)
            complete = crawled(paid_tool.extensions[method]["bazaar"])
            assert shown_by(answer) == complete[2]
            assert complete[1]["properties"], path
            jsonschema.validate(complete[2], complete[1])
            jsonschema.validate(complete[2], tool.output_schema)
    assert len(tools) == 10


async def test_the_list_that_is_shown_has_a_real_entry(shop: Shop) -> None:
    _, http = shop
    for path, entry in (("/v1/brief/today", EXAMPLE), ("/v1/kev/fresh", EXAMPLE)):
        assert shown_by(await http.get(path))["entries"] == [entry]
    assert shown_by(await http.get("/v1/cve/CVE-2021-44228")) == EXAMPLE_OF_VERDICT
    assert Entry.model_validate(EXAMPLE).model_dump(mode="json", exclude_unset=True) == EXAMPLE
    assert Verdict.model_validate(EXAMPLE_OF_VERDICT).model_dump(mode="json", exclude_unset=True) == EXAMPLE_OF_VERDICT


async def test_catalogs_learn_of_which_service_a_tool_is_and_v1_clients_what_it_takes_and_answers(shop: Shop) -> None:
    campus, http = shop
    assert campus.plan.seller is not None
    for paid_tool in campus.plan.seller.paid_tools():
        answer = await http.request(paid_tool.operation.methods[0], paid_tool.operation.path.format_map(ARGUMENTS))
        resource = json.loads(b64decode(answer.headers["payment-required"]))["resource"]
        found = _sanitize_resource_service_metadata(resource)
        assert (found.service_name, found.tags, found.icon_url) == tuple(resource[one] for one in ("serviceName", "tags", "iconUrl"))
        assert (await http.get(resource["iconUrl"].removeprefix(ORIGIN))).headers["content-type"] == "image/png"
        legacy = answer.json()["accepts"][0]
        info = extract_discovery_info_v1(legacy)
        assert info is not None
        assert (info.input.method, info.output and info.output.example) == (answer.request.method, shown_by(answer))
        taken = legacy["outputSchema"]["input"]
        fields = {name for kind in ("queryParams", "bodyFields", "pathParams") for name in taken.get(kind, {})}
        assert fields == {one.wire for one in paid_tool.operation.parameters}
        assert PaymentRequirementsV1.model_validate(legacy).output_schema == legacy["outputSchema"]


async def test_the_free_tools_are_described_like_those_that_are_sold(shop: Shop) -> None:
    campus, http = shop
    document = (await http.get("/.well-known/x402")).json()
    offers = {(one.name, name): offer for one in campus.plan.opened for name, offer in one.offers.items()}
    assert {(one["building"], one["tool"]) for one in document["free"]} == {at for at, offer in offers.items() if offer.access.is_free}
    for one in (*document["free"], *document["terms"]):
        assert validate_discovery_extension_spec(one["extensions"]["bazaar"]).errors == []
        assert validate_discovery_extension(one["extensions"]["bazaar"]).errors == []
        assert one["serviceName"], one
    async with open_campus(stall=make_seller(sells_keys=False)) as campus_without:
        free = (await campus_without.http.get("/.well-known/x402")).json()["free"]
        assert [one["tool"] for one in free] == ["sample"]


def test_a_building_names_no_tags_that_catalogs_drop() -> None:
    for tags in (["x" * 33], [""], ["naïve"], list("abcdef")):
        with pytest.raises(ValueError, match="tags= takes up to 5"):
            Building(FastMCP("x"), tags=tags)


def shown_by(answer: httpx.Response) -> Any:
    return answer.json()["accepts"][0]["outputSchema"]["output"]


def extension_of(answer: httpx.Response) -> Any:
    return json.loads(b64decode(answer.headers["payment-required"]))["extensions"]["bazaar"]


async def test_over_mcp_less_is_shown_and_all_values_in_a_path_are_one_resource(shop: Shop) -> None:
    campus, _ = shop
    assert campus.plan.seller is not None
    for paid_tool in campus.plan.seller.paid_tools():
        extension = paid_tool.extensions["mcp"]["bazaar"]
        jsonschema.validate(extension["info"], extension["schema"])
        if shown := example(extension):
            jsonschema.validate(shown, paid_tool.operation.tool.output_schema or {})
        assert len(to_json(extension)) < 1_500
        assert extension.get("routeTemplate") == paid_tool.extensions[paid_tool.operation.methods[0]]["bazaar"].get("routeTemplate")


async def test_a_tool_without_an_output_schema_shows_an_object(campus: TestCampus) -> None:
    takes, answers, shown = crawled((await terms_of(campus, "said", text="x"))["extensions"]["bazaar"])
    assert set(takes["properties"]) == {"text"}
    assert (answers, shown) == ({"type": "object"}, {})


async def paid(paid_campus: PaidCampus, way: str) -> dict[str, Any]:
    """Pay for the sentence of the day; the terms that were accepted."""
    if way == "mcp":
        async with Client(StreamableHttpTransport(f"{ORIGIN}/stall/mcp", httpx_client_factory=paid_campus.campus._client)) as client:
            asked = await client.call_tool("text_of", DAY, raise_on_error=False)
            assert not (await paid_campus.payer.call_mcp(client, "text_of", DAY)).is_error
        return asked.structured_content or {}
    asked = await paid_campus.campus.http.get(PATH)
    payment = paid_campus.payer.payload(await paid_campus.terms() if way == "x402 v2" else asked.json())
    lied = payment | {"extensions": {"bazaar": {"info": {"input": {"type": "http", "method": "GET"}}, "routeTemplate": "/v1/elsewhere"}}}
    assert (await paid_campus.campus.http.get(PATH, headers=headers_of(lied if way == "x402 v2" else payment))).status_code == 200
    return await paid_campus.terms()


async def test_a_facilitator_receives_what_the_terms_say_whatever_the_payer_says(paid_campus: PaidCampus) -> None:
    for way in ("x402 v2", "x402 v1", "mcp"):
        paid_campus.facilitator.bodies.clear()
        terms = await paid(paid_campus, way)
        assert [one["paymentRequirements"]["amount"] for one in paid_campus.facilitator.bodies] == ["20000"] * 2, way
        for body in paid_campus.facilitator.bodies:
            sent = body["paymentPayload"]
            assert {name: value for name, value in sent["resource"].items() if value is not None} == terms["resource"]
            assert sent["extensions"] == terms["extensions"]
            found = extract_discovery_info(sent, body["paymentRequirements"])
            assert found is not None
            assert (found.description, found.mime_type) == ("The sentence of a day.", "application/json")
            assert found.resource_url == f"{ORIGIN}/v1/stall/text/:day"
            assert (found.tool_name, found.method) == (("text_of", "") if way == "mcp" else (None, "GET"))
