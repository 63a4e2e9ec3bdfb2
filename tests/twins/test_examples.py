"""Examples of schemas: each is one of what its schema describes, and where none can be made there is none."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model

from twins.tool.examples import Examples, example_of

A_OR_B = [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]
NODE = {
    "$ref": "#/$defs/Node",
    "$defs": {"Node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}},
}
POSSIBLE: dict[str, Any] = {
    "minimum": {"type": "integer", "minimum": 7},
    "maximum": {"type": "integer", "maximum": -3},
    "exclusive bounds": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    "an exclusive minimum of whole numbers": {"type": "integer", "exclusiveMinimum": 4, "maximum": 5},
    "an exclusive maximum": {"type": "integer", "exclusiveMaximum": 1},
    "multiples": {"type": "integer", "minimum": 10, "multipleOf": 7},
    "multiples with an exclusive minimum": {"type": "number", "exclusiveMinimum": 14, "multipleOf": 7},
    "parts of one": {"type": "number", "multipleOf": 0.25, "maximum": 0.5, "minimum": 0.3},
    "a pattern of digits": {"type": "string", "pattern": "^[0-9]{6}$"},
    "a pattern of letters with bounds": {"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 5},
    "a pattern that a date fits": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
    **{
        f"format {name}": {"type": "string", "format": name} for name in ("date", "date-time", "uri", "email", "uuid", "ipv4", "unheard-of")
    },
    "length": {"type": "string", "minLength": 12, "maxLength": 14},
    "a short text": {"type": "string", "maxLength": 2},
    "enum": {"enum": [None, "red"]},
    "const": {"const": {"kind": "circle"}},
    "anyOf": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]},
    "oneOf of which all fit": {"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 0.5}]},
    "anyOf of members": {"type": "object", "properties": {"c": {"type": "boolean"}}, "required": ["c"], "anyOf": A_OR_B},
    "anyOf with an arm of another type": {"type": "string", "anyOf": [{"type": "integer"}, {"minLength": 3}]},
    "a reference into the schema itself": {
        "type": "object",
        "required": ["b"],
        "properties": {"a": {"type": "integer", "minimum": 4}, "b": {"$ref": "#/properties/a"}},
    },
    "oneOf of members": {"type": "object", "oneOf": A_OR_B},
    "allOf": {"allOf": [{"type": "integer", "minimum": 5}, {"multipleOf": 4}, {"maximum": 9}]},
    "allOf of members": {"allOf": [*A_OR_B, {"properties": {"a": {"minimum": 40}}}]},
    "allOf of types": {"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]},
    "a reference": {"$ref": "#/$defs/Kind", "$defs": {"Kind": {"enum": ["a", "b"]}}},
    "a reference with more beside it": {"$ref": "#/$defs/Number", "minimum": 8, "$defs": {"Number": {"type": "integer", "maximum": 9}}},
    "a recursive reference": NODE,
    "nested objects": {
        "type": "object",
        "required": ["inner"],
        "properties": {"inner": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "exclusiveMinimum": 2}}}},
    },
    "minItems": {"type": "array", "items": {"type": "string"}, "minItems": 3},
    "maxItems": {"type": "array", "items": {"type": "string"}, "maxItems": 0},
    "uniqueItems": {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 3, "uniqueItems": True},
    "different texts": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 2, "uniqueItems": True},
    "items of any kind": {"type": "array", "minItems": 2},
    "a tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 50}},
    "nullable": {"type": ["null", "string"]},
    "null alone, or a number": {"type": ["null", "number"], "minimum": 2},
    "an example that does not fit": {"type": "integer", "minimum": 3, "examples": [1]},
    "a default that does not fit": {"type": "string", "minLength": 3, "default": "x"},
    "a wrong example deep within": {
        "type": "array",
        "items": {"anyOf": [{"type": "object", "required": ["a"], "examples": [{}]}, {"type": "null"}]},
    },
    "no other members": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    "members of any name": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 2}, "minProperties": 2},
    "a required member that is not described": {"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}},
    "members that need one another": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "minProperties": 2,
    },
    "not": {"type": "integer", "not": {"const": 1}},
    "no type": {"minLength": 4},
    "anything but null": {"not": {"type": "null"}},
    "if and then": {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"const": 1}, "b": {"type": "integer"}},
        "if": {},
        "then": {"required": ["b"]},
    },
}
IMPOSSIBLE: dict[str, Any] = {
    "a pattern that would have to be understood": {"type": "string", "pattern": "^[a-c]{2}-[x-z]{3}$"},
    "nothing": {"not": {}},
    "bounds without room": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    "a required member without a value": {"type": "object", "required": ["a"], "properties": {"a": {"enum": []}}},
    "too many items": {"type": "array", "items": {"type": "string"}, "minItems": 10**9},
    "too long a text": {"type": "string", "minLength": 10**9},
    "different items of two kinds": {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "uniqueItems": True},
    "no end": {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    },
    "a schema that is none": {"type": "strin"},
    "a reference to nowhere": {"$ref": "#/$defs/Node"},
}


def is_valid(value: Any, schema: Any) -> bool:
    checker = jsonschema.Draft202012Validator
    return bool(checker(schema, format_checker=checker.FORMAT_CHECKER).is_valid(value))


@pytest.mark.parametrize("named", POSSIBLE)
def test_an_example_is_one_of_what_its_schema_describes(named: str) -> None:
    schema = POSSIBLE[named]
    found, brief = [example_of(schema, name="port", brief=is_brief, is_own=True) for is_brief in (False, True)]
    assert is_valid(found, schema), found
    assert is_valid(brief, schema), brief
    assert found is not None
    inner = {"type": "object", "required": ["it"], "properties": {"it": {name: part for name, part in schema.items() if name != "$defs"}}}
    whole = inner | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
    assert "#/properties" in str(schema) or is_valid(Examples(whole, None, is_own=True).call, whole)


def test_where_no_example_can_be_made_there_is_none() -> None:
    assert {named: example_of(schema, is_own=True) for named, schema in IMPOSSIBLE.items()} == dict.fromkeys(IMPOSSIBLE)


def test_the_authors_examples_come_first_and_a_text_is_its_name_in_capitals() -> None:
    schema = {
        "type": "object",
        "required": ["ship", "berth", "side", "speed"],
        "properties": {
            "ship": {"type": "string"},
            "berth": {"anyOf": [{"type": "string"}, {"type": "null"}], "examples": ["A 3"]},
            "side": {"enum": ["port", "starboard"]},
            "speed": {"type": "number", "default": 4.5},
            "crew": {"type": "integer"},
        },
    }
    examples = Examples(schema, schema, any_of=("crew", "ship"))
    assert Examples(schema, None, any_of=("ship",)).call is not None
    needed = {"ship": "SHIP", "berth": "A 3", "side": "port", "speed": 4.5}
    assert examples.call == {**needed, "crew": 1}
    assert examples.answer() == needed
    assert examples.answer(word="text", brief=True) == {**needed, "ship": "text", "berth": None}
    assert [examples.argument(name) for name in ("ship", "crew")] == ["SHIP", 1]


def test_a_strangers_schema_that_is_endless_or_too_much_work_has_no_example() -> None:
    bomb = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(30)} | {"a30": {"type": "integer"}}
    for schema in (NODE, {"$ref": "#/$defs/a0", "$defs": bomb}):
        assert example_of(schema) is None


PLAIN = [int, str, bool, float, date, datetime, Literal["b", "a"], Annotated[int, Field(ge=5)], Annotated[float, Field(gt=0, le=1)], None]
KINDS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),  # type: ignore[valid-type]  # made at run time
        inner.map(lambda one: Annotated[list[one], Field(min_length=2)]),  # type: ignore[valid-type]
        inner.map(lambda one: Optional[one]),  # noqa: UP045 None among them
        inner.map(lambda one: dict[str, one]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda pair: tuple[pair[0], pair[1]]),  # type: ignore[valid-type, misc]
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda them: create_model("Made", **{each: (them[each], ...) for each in them})
        ),
    ),
    max_leaves=8,
)


@given(KINDS, st.booleans())
def test_every_type_of_pydantic_has_an_example(kind: Any, brief: bool) -> None:
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    assert is_valid(example_of(schema, brief=brief, is_own=True), schema)


def test_an_example_of_a_recursive_schema_ends() -> None:
    class Node(BaseModel):
        name: str
        next: "Node | None"
        others: list["Node"]

    schema = TypeAdapter(Node).json_schema()
    found = example_of(schema, is_own=True)
    assert is_valid(found, schema)
    assert found["next"]["next"]["name"] == "NAME"
