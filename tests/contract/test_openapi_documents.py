"""The OpenAPI documents: valid, true to the interface, and nothing left undescribed."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from conformance.town import Town
from openapi_spec_validator import OpenAPIV30SpecValidator, validate

DOCUMENTS = ("/openapi.json", "/gateway/openapi.json", "/cve/openapi.json", "/recorder/openapi.json", "/v1/openapi.json")
FREE = "/v1/brief/teaser"
PAID = {"/v1/brief/today", "/v1/kev/fresh", "/v1/cve/{cve_id}", "/v1/archive/{date}"}
RECORDER = "/v1/recorder"
BY_KEY = {f"{RECORDER}/capsule/{{monitor_id}}", f"{RECORDER}/fleet", f"{RECORDER}/monitors/{{monitor_id}}/takeover"}
KEY, OR_NONE = {"key": []}, dict[str, list[str]]()


def read(town: Town, path: str) -> dict[str, Any]:
    answer = httpx.get(town.url + path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    document: dict[str, Any] = answer.json()
    return document


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {f"{method} {path}": operation for path, item in document["paths"].items() for method, operation in item.items()}


def undescribed(schema: Any, place: str) -> Iterator[str]:
    """Every property that has no description of its own."""
    if isinstance(schema, list):
        for index, one in enumerate(schema):
            yield from undescribed(one, f"{place}/{index}")
    elif isinstance(schema, dict):
        for name, one in schema.items():
            properties = one.items() if name == "properties" and isinstance(one, dict) else ()
            yield from (f"{place}/{field}" for field, value in properties if not value.get("description") and "$ref" not in value)
            yield from undescribed(one, f"{place}/{name}")


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_document_is_valid_openapi_of_the_version_that_the_interface_names(town: Town, path: str) -> None:
    document = read(town, path)
    assert document["openapi"] == "3.0.3"
    validate(document, cls=OpenAPIV30SpecValidator)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_field_of_every_answer_is_described(town: Town, path: str) -> None:
    assert list(undescribed(read(town, path)["components"]["schemas"], "")) == []


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_operation_has_an_id_of_its_own_and_says_what_it_does(town: Town, path: str) -> None:
    found = operations(read(town, path))
    assert len({operation["operationId"] for operation in found.values()}) == len(found)
    assert all(operation["summary"] and operation["description"] for operation in found.values())


@pytest.mark.parametrize("path", ["/openapi.json", "/cve/openapi.json"])
def test_the_document_of_cve_has_exactly_the_five_routes_of_the_interface(town: Town, path: str) -> None:
    document = read(town, path)
    assert document["info"]["version"] == "0.2.0"
    assert set(document["paths"]) == {FREE, *PAID}
    assert {method for item in document["paths"].values() for method in item} == {"get"}
    assert [server["url"] for server in document["servers"]] == [town.url]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_402_and_the_key_stand_on_the_paid_routes_and_on_no_other(town: Town, path: str) -> None:
    document = read(town, path)
    for label, operation in operations(document).items():
        path_there = label.partition(" ")[2]
        is_paid = path_there in PAID | BY_KEY
        more_by_key = path_there.startswith(f"{RECORDER}/monitors") and not is_paid
        assert set(operation["responses"]) == {"200", "default", *({"402"} if is_paid else ())}, label
        assert operation.get("security", []) == ([KEY] if is_paid else [KEY, OR_NONE] if more_by_key else []), label
        assert set(operation["responses"]["default"]["content"]) == {"application/problem+json"}
    schemes = document["components"].get("securitySchemes", {})
    assert not any("402" in one["responses"] for one in operations(document).values()) or schemes["key"]["scheme"] == "bearer"


def test_the_document_of_everything_holds_what_the_others_hold(town: Town) -> None:
    everything = read(town, "/v1/openapi.json")
    parts = [read(town, path) for path in DOCUMENTS[1:-1]]
    assert set(everything["paths"]) == {path for part in parts for path in part["paths"]}
    for part in parts:
        for label, operation in operations(part).items():
            assert set(operations(everything)[label]["responses"]) == set(operation["responses"])
