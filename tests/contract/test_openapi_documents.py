"""The OpenAPI documents of a served campus: valid, complete, every field described."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from contract.served_campus import ServedCampus
from features.payments.terms.samples import open_seller
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import OpenAPIV30SpecValidator, validate

from tests import patient

DOCUMENTS = (
    "/openapi.json",
    "/gateway/openapi.json",
    "/cve/openapi.json",
    "/recorder/openapi.json",
    "/checkout/openapi.json",
    "/v1/openapi.json",
)
FREE = {"/v1/brief/teaser", "/v1/next/teaser", "/v1/next/record", "/v1/brief/changes/counts", "/v1/cve/{cve_id}/facts"}
PAID = {
    *("/v1/brief/today", "/v1/kev/fresh", "/v1/cve/{cve_id}", "/v1/cve/{cve_id}/history", "/v1/archive/{date}", "/v1/next"),
    *("/v1/cve/verdicts", "/v1/brief/changes", "/v1/cves"),
}
RECORDER = "/v1/recorder"
OF_KEYS = {
    "/v1/feed-urls": {"get", "post"},
    "/v1/feed-urls/{feed_id}": {"delete"},
    "/v1/feed-urls/{feed_id}/keep": {"post"},
    "/v1/watches": {"get", "post"},
    "/v1/watches/reports": {"post"},
    "/v1/watches/{watch_id}": {"patch", "delete"},
    "/v1/watches/news": {"get"},
}
"""What a key owns: routes that only a key opens, with their methods."""
MONITOR = f"{RECORDER}/monitors/{{monitor_id}}"
BY_KEY = {
    *OF_KEYS,
    f"{RECORDER}/capsule/{{monitor_id}}",
    f"{RECORDER}/fleet",
    f"{MONITOR}/takeover",
    f"{MONITOR}/secret",
    f"{MONITOR}/claim",
    f"{MONITOR}/beat",
    f"{RECORDER}/keys",
    f"{RECORDER}/keys/{{hint}}",
    f"{RECORDER}/import",
    f"delete {RECORDER}/monitors",
}
"""Routes that only a key opens: paths, and methods with paths that other methods open to anybody."""
PURCHASE = "/v1/checkout/keys"
KEY, OR_NONE = {"key": []}, dict[str, list[str]]()


Documents = Mapping[str, dict[str, Any]]


@pytest.fixture(scope="module")
def documents(campus: ServedCampus) -> Documents:
    """Every document by its path."""
    answers = {path: patient.get(campus.url + path) for path in DOCUMENTS}
    assert {(answer.status_code, answer.headers["content-type"]) for answer in answers.values()} == {(200, "application/json")}
    return {path: answer.json() for path, answer in answers.items()}


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {f"{method} {path}": operation for path, item in document["paths"].items() for method, operation in item.items()}


def undescribed(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, list):
        for index, one in enumerate(schema):
            yield from undescribed(one, f"{place}/{index}")
    elif isinstance(schema, dict):
        for name, one in schema.items():
            properties = one.items() if name == "properties" and isinstance(one, dict) else ()
            yield from (f"{place}/{field}" for field, value in properties if not value.get("description") and "$ref" not in value)
            yield from undescribed(one, f"{place}/{name}")


def test_a_document_is_valid_openapi_3_0_3(documents: Documents) -> None:
    for path, document in documents.items():
        assert document["openapi"] == "3.0.3", path
        validate(document, cls=OpenAPIV30SpecValidator)


def test_every_field_of_every_answer_is_described(documents: Documents) -> None:
    for path, document in documents.items():
        assert list(undescribed(document["components"]["schemas"], path)) == []


def test_every_operation_has_its_own_id_and_a_description(documents: Documents) -> None:
    for path, document in documents.items():
        found = operations(document)
        assert len({operation["operationId"] for operation in found.values()}) == len(found), path
        assert [label for label, operation in found.items() if not (operation["summary"] and operation["description"])] == [], path


@pytest.mark.parametrize("path", ["/openapi.json", "/cve/openapi.json"])
def test_the_documents_of_cve_have_exactly_its_routes_and_the_short_one_by_get_alone(
    campus: ServedCampus, documents: Documents, path: str
) -> None:
    document = documents[path]
    assert document["info"]["version"] == "0.2.0"
    expected = {label: {"get"} for label in FREE | PAID}
    if path != "/openapi.json":
        expected |= {"/v1/cve/verdicts": {"get", "post"}, **OF_KEYS}
    assert {label: set(item) for label, item in document["paths"].items()} == expected
    assert [server["url"] for server in document["servers"]] == [campus.url]


def takes_key(label: str) -> bool:
    """Whether a key of another scope is refused."""
    path = label.partition(" ")[2]
    return needs_key(label) or path in PAID or path.startswith(f"{RECORDER}/monitors")


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        _, _, kind, name = node["$ref"].split("/")
        node = document["components"][kind][name]
    return node


def parameters(document: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    return [resolved(document, each) for each in operation.get("parameters", ())]


def needs_key(label: str) -> bool:
    return not BY_KEY.isdisjoint({label, label.partition(" ")[2]})


def opened_by(label: str) -> list[dict[str, list[str]]]:
    path = label.partition(" ")[2]
    if needs_key(label):
        return [KEY]
    return [KEY, OR_NONE] if path in PAID or path.startswith(f"{RECORDER}/monitors") else []


def test_every_route_has_its_402_key_and_price(documents: Documents) -> None:
    for path, document in documents.items():
        for label, operation in operations(document).items():
            path_there = label.partition(" ")[2]
            is_sold = path_there in {*PAID, PURCHASE}
            is_paid = is_sold or needs_key(label)
            expected = {"200", "default", *({"402"} if is_paid else ())}
            if path != "/openapi.json":  # the interface names 200 and 402 of the routes that it describes; its default has the others
                expected |= {*({"409", "429"} if is_sold else ()), *({"403"} if takes_key(label) else ())}
            assert set(operation["responses"]) == expected, label
            assert operation["security"] == opened_by(label), label
            assert ("x-payment-info" in operation) is is_sold, label
            assert set(resolved(document, operation["responses"]["default"])["content"]) == {"application/problem+json"}
            sent = {each["name"] for each in parameters(document, operation) if each["in"] == "header"}
            assert sent == ({"PAYMENT-SIGNATURE", "Idempotency-Key"} if is_sold else set()), label
            assert ("PAYMENT-RESPONSE" in operation["responses"]["200"].get("headers", {})) is is_sold, label
        assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer", path


def test_the_document_of_all_buildings_contains_the_others(documents: Documents) -> None:
    everything = documents["/v1/openapi.json"]
    parts = [documents[path] for path in DOCUMENTS[1:-1]]
    assert set(everything["paths"]) == {path for part in parts for path in part["paths"]}
    for part in parts:
        for label, operation in operations(part).items():
            assert set(operations(everything)[label]["responses"]) == set(operation["responses"])


def schemas_in(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        for index, one in enumerate(node):
            yield from schemas_in(one, f"{place}/{index}")
    elif isinstance(node, dict):
        if {"type", "enum", "nullable", "anyOf", "oneOf", "allOf", "$ref"} & node.keys() and not place.endswith("/properties"):
            yield place, node
        for name, one in node.items():
            yield from schemas_in(one, f"{place}/{name}")


def test_null_is_written_as_in_openapi_3_0_3(documents: Documents) -> None:
    for path, document in documents.items():
        schemas = dict(schemas_in(document, path))
        nullable = {place: schema for place, schema in schemas.items() if schema.get("nullable")}
        assert nullable or path == "/gateway/openapi.json"
        assert [place for place, schema in nullable.items() if "type" not in schema] == []
        assert [place for place, schema in nullable.items() if None not in schema.get("enum", [None])] == []
        assert [place for place, schema in schemas.items() if None in schema.get("enum", ()) and place not in nullable] == []


def test_one_schema_is_one_component_and_two_get_different_names(documents: Documents) -> None:
    for path, document in documents.items():
        components = document["components"]["schemas"]
        assert [name for name in components if name[-1].isdigit()] == [], path
        assert [name for name, schema in components.items() if "title" in schema] == [], path
        written = [json.dumps(schema, sort_keys=True) for schema in components.values()]
        assert len(set(written)) == len(written), path


def test_every_parameter_has_a_type(documents: Documents) -> None:
    for path, document in documents.items():
        for label, operation in operations(document).items():
            untyped = [each["name"] for each in parameters(document, operation) if not {"type", "anyOf"} & each["schema"].keys()]
            assert untyped == [], (path, label)


def test_every_answer_has_an_example_that_its_schema_describes(documents: Documents) -> None:
    for path, document in documents.items():
        seen = 0
        for label, operation in operations(document).items():
            for status, response in operation["responses"].items():
                for kind, media in resolved(document, response)["content"].items():
                    if not kind.endswith("json") or "sarif" in kind:
                        continue
                    examples = [media["example"]] if "example" in media else [each["value"] for each in media["examples"].values()]
                    schema = OAS30Validator({**media["schema"], "components": document["components"]})
                    assert [error.message for example in examples for error in schema.iter_errors(example)] == [], (path, label, status)
                    seen += len(examples)
        assert seen >= 2 * len(operations(document)), path


def test_every_component_is_referred_to_and_every_header_of_an_example_described(documents: Documents) -> None:
    for path, document in documents.items():
        text = json.dumps(document)
        for kind, components in document["components"].items():
            assert [name for name in components if kind != "securitySchemes" and f'"#/components/{kind}/{name}"' not in text] == [], path
        for response in document["components"]["responses"].values():
            for example in response["content"]["application/problem+json"]["examples"].values():
                if example["value"]["status"] in (402, 403):
                    assert "WWW-Authenticate" in response["headers"], (path, example)
                if example["value"]["code"] in ("payment_in_flight", "too_many_payments"):
                    assert "Retry-After" in response["headers"], (path, example)


def test_the_examples_of_refusals_are_what_the_service_answers(campus: ServedCampus, documents: Documents) -> None:
    document = documents["/cve/openapi.json"]
    operation = document["paths"]["/v1/brief/today"]["get"]["responses"]
    for status, code, key in (("402", "access_required", None), ("403", "insufficient_scope", campus.tokens.recorder)):
        response = resolved(document, operation[status])
        example = response["content"]["application/problem+json"]["examples"][code]["value"]
        answer = patient.get(f"{campus.url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"} if key else {})
        sent = answer.json()
        assert (str(answer.status_code), sent | {"request_id": ""}) == (status, example | {"request_id": ""})
        assert {name.lower() for name in response["headers"]} <= set(answer.headers)


def test_a_monitor_without_a_target_is_invalid_by_the_document_and_by_the_tool(campus: ServedCampus, documents: Documents) -> None:
    document = documents["/recorder/openapi.json"]
    schema = document["paths"][f"{RECORDER}/monitors"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    document_says = OAS30Validator(schema)
    for targets, status in (
        ({}, 422),
        ({"alert_webhook": None, "alert_email": None}, 422),
        ({"alert_webhook": "http://127.0.0.1:9/1"}, 200),
    ):
        answer = patient.post(f"{campus.url}{RECORDER}/monitors", json={"name": "m", **targets})
        assert answer.status_code == status, answer.text
        assert document_says.is_valid({"name": "m", **targets}) is (status == 200)


@pytest.mark.anyio
async def test_the_example_of_a_reached_limit_is_what_the_service_answers() -> None:
    async with open_seller(limits={"free": 1}) as seller:
        document = (await seller.http.get("/v1/openapi.json")).json()
        response = resolved(document, document["paths"]["/v1/stall/sample"]["get"]["responses"]["429"])
        example = response["content"]["application/problem+json"]["examples"]["too_many_calls"]["value"]
        taken, refused = [await seller.http.get("/v1/stall/sample") for _ in range(2)]
        sent = refused.json()
        assert (taken.status_code, refused.status_code, sent.keys(), sent["limit"]) == (200, 429, example.keys(), example["limit"])
        assert {name.lower() for name in response["headers"]} <= set(refused.headers)
        of_200 = document["paths"]["/v1/stall/sample"]["get"]["responses"]["200"]["headers"]
        assert {name.lower() for name in of_200} <= set(taken.headers)
