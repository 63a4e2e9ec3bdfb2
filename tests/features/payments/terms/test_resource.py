"""A call has one URL on both frames; another call has another."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from features.payments.terms.samples import make_seller
from hypothesis import given
from hypothesis import strategies as st

from campus.features.payments.terms import LONGEST_QUERY, resource_of
from twins import Operation, Twins

URL = "https://campus.example"
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def operations() -> dict[str, Operation]:
    twins = await Twins.open(make_seller().server, name="stall", gate=None)  # type: ignore[arg-type]  # a server, not a factory
    return {one.name: one for one in twins.operations}


async def test_placeholders_are_filled_and_the_rest_is_sorted_under_its_wire_name(operations: dict[str, Operation]) -> None:
    found = resource_of(operations["text_of"], URL, {"words": 4, "day": "2026-01-02", "language": "fr"})
    assert found == f"{URL}/v1/stall/text/2026-01-02?lang=fr&words=4"


async def test_values_other_than_strings_are_written_as_compact_json(operations: dict[str, Operation]) -> None:
    found = resource_of(operations["write_text"], URL, {"text": "a b&c=é", "marks": ["x", {"b": 1, "a": None}]})
    assert dict(parse_qsl(urlsplit(found).query)) == {"text": "a b&c=é", "marks": '["x",{"a":null,"b":1}]'}
    assert found.isascii()


async def test_long_values_are_replaced_by_their_digest(operations: dict[str, Operation]) -> None:
    short, long, longer = (resource_of(operations["write_text"], URL, {"text": "a" * size}) for size in (200, 201, 202))
    assert "a" * 200 in short
    assert "sha256" in long
    assert "sha256" in longer
    assert long != longer
    many = resource_of(operations["write_text"], URL, {f"name{number}": "a" * 100 for number in range(100)})
    assert len(many) < LONGEST_QUERY
    assert "arguments=sha256" in many


async def test_without_readable_arguments_the_url_is_the_path_alone(operations: dict[str, Operation]) -> None:
    assert resource_of(operations["text_of"], URL, None) == f"{URL}/v1/stall/text/:day"
    assert resource_of(operations["text_of"], URL, {"day": "x"}) == f"{URL}/v1/stall/text/x"


async def test_a_secret_argument_can_be_left_out(operations: dict[str, Operation]) -> None:
    found = resource_of(operations["buy"], URL, {"product": "x", "idempotency_key": "hush"}, without=("idempotency_key",))
    assert found == f"{URL}/v1/stall/buy?product=x"


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=300) | st.integers() | st.lists(st.text(max_size=5), max_size=3), max_size=4))
async def test_the_order_of_arguments_does_not_matter_and_the_url_is_always_short_ascii(
    operations: dict[str, Operation], sent: dict[str, Any]
) -> None:
    found = resource_of(operations["write_text"], URL, sent)
    assert found == resource_of(operations["write_text"], URL, dict(reversed(sent.items())))
    assert found.isascii()
    assert len(found) < 2_000
