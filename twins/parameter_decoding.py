"""How the text of a path or query parameter becomes a JSON value, by the parameter's JSON schema. Pure.

A text stays a text if the schema accepts one (a schema that names no type accepts anything). Otherwise numbers, booleans
and null are read as JSON, a list is a repeated name, and an object is one JSON text. A text that is none of these is
passed on unchanged, for the validator to reject.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from pydantic_core import from_json

Schema = Mapping[str, Any]
TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
"""JSON Schema's name of each Python type."""
# A number is a number: the validator decides whether 1e3 is acceptable as an integer.
ACCEPTED_AS = {kind: ("integer", "number") if name in ("integer", "number") else (name,) for kind, name in TYPE_NAMES.items()}


@dataclass(frozen=True)
class ParameterDecoder:
    """The types that a value may have, as JSON Schema names them; `words` are the only texts accepted, if there are few.

    `items` decodes each text of a parameter that may be repeated.
    """

    types: frozenset[str]
    words: frozenset[str] | None = None
    items: "ParameterDecoder | None" = None

    @property
    def as_json(self) -> bool:
        """True if a value is written as one JSON text."""
        return "string" not in self.types and not self.types.isdisjoint(("object", "array"))

    def decode(self, texts: Sequence[str]) -> Any:
        """The value of these texts, one for each time that the name was sent. ValueError if a single value was sent twice."""
        if self.items is not None and (len(texts) > 1 or not self.types - {"null"}):
            return [self.items.decode_one(text) for text in texts]
        if len(texts) > 1:
            raise ValueError("is sent more than once; it takes one value")
        return self.decode_one(texts[0])

    def decode_one(self, text: str) -> Any:
        """The value of one text."""
        if "string" in self.types and (self.words is None or text in self.words):
            return text
        try:
            value = from_json(text.encode(), allow_inf_nan=False)
        except ValueError:
            return text
        is_infinite = type(value) is float and isinf(value)  # 1e999: the number was too large for its type
        return text if is_infinite or self.types.isdisjoint(ACCEPTED_AS[type(value)]) else value


def decoder_of(schema: Schema, root: Schema) -> ParameterDecoder:
    """The decoder for values of `schema`; `root` is the document that its references point into."""
    types: set[str] = set()
    words: set[str] | None = set()
    items: ParameterDecoder | None = None
    for arm in alternatives_of(schema, root):
        names = _types_of(arm)
        if "array" in names:
            items = _decoder_of_items(arm, root)
        if "string" in names:
            values = _values_of(arm)
            words = words | {value for value in values if isinstance(value, str)} if values and words is not None else None
        types |= names - {"array"}
    return ParameterDecoder(frozenset(types), None if words is None else frozenset(words), items)


def _decoder_of_items(arm: Schema, root: Schema) -> ParameterDecoder:
    among = [each for each in (*arm.get("prefixItems", ()), arm.get("items")) if isinstance(each, Mapping)]
    item = decoder_of({"anyOf": among or [{}]}, root)
    # A list within a list cannot be written by repeating a name: each inner list is one JSON text.
    return ParameterDecoder(item.types | {"array"}, item.words) if item.items else item


def alternatives_of(schema: Schema, root: Schema, seen: tuple[str, ...] = ()) -> Iterator[Schema]:
    """The alternatives of a schema, with references resolved (each of a circle once)."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        yield from alternatives_of(resolve_reference(reference, root), root, (*seen, reference))
        return
    among = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    for arm in among:
        yield from alternatives_of(arm, root, seen)
    if not among:
        yield schema


def resolve_reference(reference: str, root: Schema) -> Schema:
    """The schema that a reference within the document `root` points at, such as `#/$defs/Name`; {} if it points elsewhere."""
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            return {}
        node = node[key]
    return node if isinstance(node, Mapping) else {}


def _values_of(arm: Schema) -> list[Any]:
    return [*arm.get("enum", ()), *([arm["const"]] if "const" in arm else ())]


def _types_of(arm: Schema) -> set[str]:
    declared = arm.get("type")
    if declared is not None:
        return {declared} if isinstance(declared, str) else set(declared)
    if values := _values_of(arm):
        return {TYPE_NAMES[type(value)] for value in values}
    return {"object"} if "properties" in arm else {"array"} if "items" in arm else {"string"}
