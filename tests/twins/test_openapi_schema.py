"""JSON Schema as pydantic writes it, converted to the dialect of OpenAPI 3.0."""

import datetime
import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel, Field, TypeAdapter

from twins.documents.schema import NULL, to_3_0, without_null


@pytest.mark.parametrize(
    ("schema", "older"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "null"}, {"type": "object", "nullable": True, "enum": [None]}),
        (
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            {"type": "integer", "minimum": 1, "default": None, "nullable": True},
        ),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, {"anyOf": [{"$ref": "#/components/schemas/A"}, NULL]}),
        (
            {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"type": "null"}]},
            {"anyOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/schemas/B"}, NULL]},
        ),
        ({"anyOf": [{}, {"type": "null"}], "description": "d"}, {"description": "d"}),
        ({"anyOf": [{"type": "null"}]}, NULL),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer"}]},
        ),
        ({"const": "a", "type": "string"}, {"enum": ["a"], "type": "string"}),
        ({"const": 1}, {"enum": [1], "type": "integer"}),
        (
            {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]},
            {"enum": ["a", "b", None], "type": "string", "nullable": True},
        ),
        ({"enum": ["a"], "type": ["string", "null"]}, {"enum": ["a"], "type": "string"}),
        ({"const": None, "type": "null"}, NULL),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": "string", "nullable": True}),
        ({"enum": [1, "a"]}, {"enum": [1, "a"], "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
        ({"$ref": "#/$defs/A", "description": "d"}, {"allOf": [{"$ref": "#/components/schemas/A"}], "description": "d"}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/components/schemas/A"}),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}, {"type": "integer"}], "minItems": 3, "maxItems": 3},
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "minItems": 3, "maxItems": 3},
        ),
        ({"type": "array"}, {"type": "array", "items": {}}),
        (
            {"type": "object", "properties": {"last_beat": {"type": "string", "title": "Last Beat"}, "a": {"title": "Its own"}}},
            {"type": "object", "properties": {"last_beat": {"type": "string"}, "a": {"title": "Its own"}}},
        ),
        ({"type": "array", "items": False}, {"type": "array", "items": {"not": {}}}),
        (
            {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
            {"type": "object", "additionalProperties": {"type": "integer", "nullable": True}},
        ),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        ({"type": "string", "contentMediaType": "text/plain", "$comment": "c", "x-own": 1}, {"type": "string", "x-own": 1}),
        (True, {}),
        (False, {"not": {}}),
    ],
)
def test_a_schema_means_the_same_in_the_older_dialect(schema: Any, older: Any) -> None:
    assert to_3_0(schema) == older


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}, {"type": "integer", "minimum": 1}),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "title": "T"}, {"$ref": "#/$defs/A", "title": "T"}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": 1},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 1},
        ),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"type": ["string"], "enum": ["a"]}),
        ({"default": None}, {}),
        ({"type": "string"}, {"type": "string"}),
    ],
)
def test_a_schema_without_null(schema: Any, left: Any) -> None:
    assert without_null(schema) == left


class Color(enum.Enum):
    RED = "red"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(gt=0, lt=10)]


class Dog(BaseModel):
    kind: Literal["dog"]
    friend: "Cat | Dog | None" = None


@dataclass
class Box:
    size: tuple[int, str]
    more: dict[str, list[int | None]]


class Everything(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    color: Color | None = Field(None, description="Its color.", examples=["red"])
    box: Box
    price: Decimal
    at: datetime.datetime
    took: datetime.timedelta
    raw: bytes
    one_of: Literal["a", 1, None]
    anything: Any = None
    names: set[str] = set()
    fixed: frozenset[int] = frozenset({1})


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_every_schema_of_pydantic_makes_a_valid_document(mode: Any) -> None:
    schema = TypeAdapter(Everything).json_schema(mode=mode)
    schemas = {"Everything": to_3_0(schema)} | {name: to_3_0(each) for name, each in schema["$defs"].items()}
    validate({"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {}, "components": {"schemas": schemas}})
    pet = schemas["Everything"]["properties"]["pet"]
    assert pet["discriminator"] == {
        "propertyName": "kind",
        "mapping": {name: f"#/components/schemas/{name.title()}" for name in ("cat", "dog")},
    }
