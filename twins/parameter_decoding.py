"""How a JSON value is spelled in a path or a query, by its schema. Pure.

A text stays a text wherever the schema takes one (anything takes one). Otherwise numbers, booleans and null are read
as JSON, a list is a repeated name, an object is one JSON text. What is none of these is handed on as it came, for the
validator to refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

Schema = Mapping[str, Any]
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
# A number is a number: whether 1e3 will do where an integer is asked for is the validator's to say.
TAKEN_AS = {kind: ("integer", "number") if name in ("integer", "number") else (name,) for kind, name in NAMES.items()}


@dataclass(frozen=True)
class ParameterDecoder:
    """What a value may be: JSON's names of types, with the only texts taken where these are few.

    `items` is what each one may be where the name may be repeated.
    """

    types: frozenset[str]
    words: frozenset[str] | None = None
    items: "ParameterDecoder | None" = None

    @property
    def as_json(self) -> bool:
        """Whether a value is written as one JSON text."""
        return "string" not in self.types and not self.types.isdisjoint(("object", "array"))

    def read(self, texts: Sequence[str]) -> Any:
        """The value of these texts, one per time that the name was sent; ValueError where one value was sent twice."""
        if self.items is not None and (len(texts) > 1 or not self.types - {"null"}):
            return [self.items.read_one(text) for text in texts]
        if len(texts) > 1:
            raise ValueError("is sent more than once; it takes one value")
        return self.read_one(texts[0])

    def read_one(self, text: str) -> Any:
        if "string" in self.types and (self.words is None or text in self.words):
            return text
        try:
            value = from_json(text.encode(), allow_inf_nan=False)
        except ValueError:
            return text
        return text if self.types.isdisjoint(TAKEN_AS[type(value)]) else value


def decoder_of(schema: Schema, root: Schema) -> ParameterDecoder:
    """How values of `schema` are spelled; `root` is the document that its references point into."""
    types: set[str] = set()
    words: set[str] | None = set()
    items: ParameterDecoder | None = None
    for arm in alternatives_of(schema, root):
        names = _types_of(arm)
        if "array" in names:
            items = _spelling_of_items(arm, root)
        if "string" in names:
            said = _values_of(arm)
            words = words | {value for value in said if isinstance(value, str)} if said and words is not None else None
        types |= names - {"array"}
    return ParameterDecoder(frozenset(types), None if words is None else frozenset(words), items)


def _spelling_of_items(arm: Schema, root: Schema) -> ParameterDecoder:
    among = [each for each in (*arm.get("prefixItems", ()), arm.get("items")) if isinstance(each, Mapping)]
    item = decoder_of({"anyOf": among or [{}]}, root)
    # A list within a list cannot be spelled by repeating: each is one JSON text.
    return ParameterDecoder(item.types | {"array"}, item.words) if item.items else item


def alternatives_of(schema: Schema, root: Schema, seen: tuple[str, ...] = ()) -> Iterator[Schema]:
    """The alternatives of a schema, references followed (a circle of them once)."""
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
    """What a reference within the document points at, such as `#/$defs/Name`; {} where it points elsewhere."""
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
    said = arm.get("type")
    if said is not None:
        return {said} if isinstance(said, str) else set(said)
    if values := _values_of(arm):
        return {NAMES[type(value)] for value in values}
    return {"object"} if "properties" in arm else {"array"} if "items" in arm else {"string"}
