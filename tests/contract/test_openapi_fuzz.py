"""A small run of Schemathesis: generated calls of the gateway and cve. `make conformance` runs all of it, for every building."""

from collections import Counter
from typing import Any

import pytest
import schemathesis
from contract.served_campus import ServedCampus
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests import patient

pytestmark = pytest.mark.hypothesis
CHANGES, COUNTS, HISTORY, VERDICTS = "/v1/brief/changes", "/v1/brief/changes/counts", "/v1/cve/{cve_id}/history", "/v1/cve/verdicts"
FREE = (
    *("/v1/gateway/list_buildings", "/v1/gateway/how_to_pay", "/v1/gateway/about_service", "/v1/gateway/how_to_connect"),
    *("/v1/brief/teaser", "/v1/next/teaser", "/v1/next/record", COUNTS, "/v1/cve/{cve_id}/facts"),
)
PAID = (
    *("/v1/brief/today", "/v1/kev/fresh", "/v1/cve/{cve_id}", HISTORY, "/v1/archive/{date}", "/v1/next"),
    *(VERDICTS, CHANGES, "/v1/cves"),
)
OWN_REFUSALS = {"no_data_for_date", "invalid_window", "no_cve_ids", "invalid_cve_ids", "no_history", "no_cve_for_name", "unreadable_report"}
EXAMPLES = settings.default.max_examples // 2
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def document(campus: ServedCampus) -> dict[str, Any]:
    """Without the headers of payments: no generated text is a signature. tests/contract/test_generated_payments.py sends them."""
    found: dict[str, Any] = patient.get(f"{campus.url}/v1/openapi.json").json()
    for operation in (each for item in found["paths"].values() for each in item.values()):
        operation["parameters"] = [each for each in operation.get("parameters", ()) if "$ref" not in each]
    return found


def schema_of(document: dict[str, Any]) -> OpenApiSchema:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(with_security_parameters=False, allow_x00=False)
    return schema


def answers(
    campus: ServedCampus, document: dict[str, Any], path: str, *, mode: GenerationMode, key: str | None, examples: int = EXAMPLES
) -> Counter[tuple[int, str | None]]:
    seen: Counter[tuple[int, str | None]] = Counter()
    operation = schema_of(document)[path]["GET"]
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True)
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def call(case: Any, known: bool) -> None:
        if known and "date" in case.path_parameters and mode.is_positive:
            case.path_parameters["date"] = str(campus.day)
        if known and path == VERDICTS and mode.is_positive:
            case.query = {"cve_ids": ["CVE-2021-44228"]}
        if known and path == HISTORY and mode.is_positive:
            case.path_parameters["cve_id"], case.query = "CVE-2021-44228", {}
        if known and path in (CHANGES, COUNTS) and mode.is_positive:
            case.query = {"from": str(campus.day_before), "to": str(campus.day)}
        response = case.call(base_url=campus.url, headers=headers)
        case.validate_response(response, checks=CHECKS)
        seen[response.status_code, response.json().get("code")] += 1

    call()
    return seen


def reached(seen: Counter[tuple[int, str | None]]) -> int:
    return sum(count for (status, code), count in seen.items() if status == 200 or code in OWN_REFUSALS)


def test_every_served_operation_is_tested_here(document: dict[str, Any]) -> None:
    elsewhere = ("/v1/recorder/", "/v1/checkout/", "/v1/feed-urls", "/v1/watches")
    assert {path for path in document["paths"] if not path.startswith(elsewhere)} == {
        *FREE,
        *PAID,
    }


def test_well_formed_calls_with_a_key_reach_the_tool(campus: ServedCampus, document: dict[str, Any]) -> None:
    for path in (*FREE, *PAID):
        seen = answers(campus, document, path, mode=GenerationMode.POSITIVE, key=campus.tokens.cve)
        assert reached(seen) == seen.total() > 0, path
        assert (200, None) in seen, path


def test_malformed_calls_with_a_key_are_refused_as_documented(campus: ServedCampus, document: dict[str, Any]) -> None:
    for path in (each for each in PAID if "{" in each):
        seen = answers(campus, document, path, mode=GenerationMode.NEGATIVE, key=campus.tokens.cve)
        assert (200, None) not in seen, path
        assert reached(seen) < seen.total() / 2, "a number that is malformed as JSON may be well-formed in a URL, but few are"
        assert {status for status, _ in seen} <= {400, 404, 422}, path


def test_calls_of_paid_tools_without_a_key_are_refused_as_documented(campus: ServedCampus, document: dict[str, Any]) -> None:
    for path in PAID:
        seen = answers(campus, document, path, mode=GenerationMode.POSITIVE, key=None, examples=2)
        assert set(seen) == {(402, "access_required")}, path


def test_an_answer_that_is_not_as_documented_is_noticed(campus: ServedCampus, document: dict[str, Any]) -> None:
    teaser = document["components"]["schemas"]["TeaserEntry"]
    wrong = {**teaser, "properties": {**teaser["properties"], "rank": {"type": "integer"}}}
    schemas = {**document["components"]["schemas"], "TeaserEntry": wrong}
    lying = {**document, "components": {**document["components"], "schemas": schemas}}
    with pytest.raises(FailureGroup, match="Response violates schema"):
        answers(campus, lying, "/v1/brief/teaser", mode=GenerationMode.POSITIVE, key=None)
