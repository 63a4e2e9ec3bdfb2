"""Examples of a tool's arguments, of a whole call and of its answer, made from its schemas. Pure.

Each example is checked against its schema, and there is none where none can be made: of a text by its pattern, that is often so. It
is always the same for the same schema: the author's own, else a value of the simplest kind; an object gets its required members.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from math import ceil, gcd, inf, isfinite
from typing import Any

from twins.tool.schemas import DEFINITIONS, PublishedSchema, Schema, resolved

TEXTS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1M",
    "uri": "https://example.com/",
    "uri-reference": "/page",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""An example for each format of texts."""
DEEPEST = 8  # In deeper levels lists are empty and nullable values are null; in twice as deep ones there is nothing.
LONGEST_TEXT = 4_096
LONGEST_LIST = 200
MOST_TRIED = 2_000  # Values that are tried within one example, which bounds the work for a schema of which none can be made.
COMPILED = 20  # The cost of a check with all definitions, in values that are tried.
MOST_WHOLE = 30
LONGEST_SPELLED = 64  # Characters of the texts that are tried for a pattern.
SAYS_NO_MORE = frozenset(("type", "title", "description"))
NOTHING = object()


class Examples:
    """The examples of one tool, each made once; None where none can be made."""

    def __init__(self, arguments: Schema, answer: Schema | None, *, any_of: Sequence[str] = (), is_own: bool = False) -> None:
        """`any_of` are arguments of which a call has one; for `is_own` see PublishedSchema."""
        self._arguments = arguments
        self._answer = answer
        self._any_of = any_of
        self._is_own = is_own
        self._made: dict[object, Any] = {}

    @cached_property
    def call(self) -> Mapping[str, Any] | None:
        required = [*dict.fromkeys((*self._arguments.get("required", ()), *self._any_of[:1]))]
        found: Mapping[str, Any] | None = example_of({**self._arguments, "required": required}, is_own=self._is_own)
        return found

    def argument(self, name: str) -> Any:
        return self._once(name, lambda: example_of(self._arguments["properties"][name], self._arguments, name=name, is_own=self._is_own))

    def answer(self, *, word: str = "", brief: bool = False) -> Any:
        """The body of an answer over HTTP; for `word` and `brief` see `example_of`."""
        schema = self._answer or {"type": "object"}
        return self._once((word, brief), lambda: example_of(schema, word=word, brief=brief, is_own=self._is_own))

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def example_of(
    schema: Any, root: Schema | None = None, *, name: str = "", word: str = "", brief: bool = False, is_own: bool = False
) -> Any:
    """A value that the schema describes; None if none can be made, or none but null. `root` has what its references point to.

    A text is its member's name in capitals, or `word`. In a brief example lists are empty, nullable values are null, and the author's
    examples of objects and lists are not used. For `is_own` see PublishedSchema.
    """
    if not isinstance(schema, Mapping):
        return None
    whole = {**{each: root[each] for each in DEFINITIONS if root and each in root}, **schema}
    try:
        published = PublishedSchema(whole, is_own=is_own, formats=True)
        for is_careful in (False, True):  # each part is checked on its own only where the first of all parts do not fit together
            maker = _Maker(whole, word=word, brief=brief, is_own=is_own, is_careful=is_careful)
            for value in islice(maker.fitting(whole, name), MOST_WHOLE):
                if published.accepts(value):
                    return value
    except ValueError:  # a schema that is not checked
        return None
    return None


@dataclass
class _Maker:
    root: Schema
    word: str
    brief: bool
    is_own: bool
    is_careful: bool
    left: int = MOST_TRIED

    def first(self, schema: Any, name: str, depth: int) -> Any:
        return next(self.fitting(schema, name, depth), NOTHING)

    def fitting(self, schema: Any, name: str, depth: int = 0) -> Iterator[Any]:
        if depth > 2 * DEEPEST:
            return
        whole = self._whole(schema)
        fits = self._check_of(whole)
        for value in self._candidates(whole, name, depth):
            self.left -= 1
            if self.left < 0:
                return
            if fits(value):
                yield value

    def _whole(self, schema: Any) -> Schema:
        whole = resolved(schema, self.root)
        for part in whole.get("allOf", ()):
            whole = _both({name: value for name, value in whole.items() if name != "allOf"}, self._whole(part))
        return whole

    def _check_of(self, schema: Schema) -> Callable[[Any], bool]:
        is_plain = {"string", "integer", "number"}.issuperset(_types_of(schema))
        if schema.keys() <= SAYS_NO_MORE or not (is_plain or self.is_careful):
            return lambda _: True
        definitions = {} if is_plain else {each: self.root[each] for each in DEFINITIONS if each in self.root}
        self.left -= 0 if is_plain else COMPILED
        try:
            return PublishedSchema({**_without(schema, *DEFINITIONS), **definitions}, is_own=self.is_own, formats=True).accepts
        except ValueError:  # two that exclude each other were joined
            return lambda _: False

    def _candidates(self, schema: Schema, name: str, depth: int) -> Iterator[Any]:
        brief = self.brief or depth > DEEPEST
        if brief and _is_nullable(schema):
            yield None
        given = [*schema.get("examples", ()), *([schema["default"]] if schema.get("default") else [])]
        yield from (each for each in given if not (brief and isinstance(each, dict | list)))
        if "enum" in schema or "const" in schema:
            yield from sorted((schema["const"],) if "const" in schema else schema["enum"], key=lambda each: each is None)
        elif arms := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            rest = _without(schema, "anyOf", "oneOf", "examples", "default")
            for arm in sorted(map(self._whole, arms), key=lambda each: each.get("type") == "null"):
                yield from self.fitting(_both(rest, arm), name, depth + 1)
        else:
            for kind in sorted(_types_of(schema), key=lambda each: each == "null"):
                yield from self._of_kind(kind, schema, name, depth)

    def _of_kind(self, kind: str, schema: Schema, name: str, depth: int) -> Iterator[Any]:
        match kind:
            case "object":
                yield from self._objects(schema, depth)
            case "array":
                yield from self._lists(schema, name, depth)
            case "string":
                yield from self._texts(schema, name)
            case "integer" | "number":
                yield from _numbers(schema, is_integer=kind == "integer")
            case "boolean":
                yield from (False, True)
            case "null":
                yield None
            case _:
                yield from (None, self.word or name.upper() or "text", 1, True, [], {})

    def _objects(self, schema: Schema, depth: int) -> Iterator[dict[str, Any]]:
        properties, additional = schema.get("properties", {}), schema.get("additionalProperties", {})
        needed = {name: self.first(properties.get(name, additional), name, depth + 1) for name in schema.get("required", ())}
        if any(value is NOTHING for value in needed.values()):
            return
        yield needed
        others = {name: self.first(part, name, depth + 1) for name, part in properties.items() if name not in needed}
        others = {name: value for name, value in others.items() if value is not NOTHING}
        whole = needed | others
        yield whole
        more = self.first(additional, "value", depth + 1) if additional is not False else NOTHING
        if more is not NOTHING:
            count = min(schema.get("minProperties", 0), LONGEST_LIST)
            yield whole | {f"name{number}": more for number in range(1, count - len(whole) + 1)}
        yield from (needed | {name: value} for name, value in others.items())

    def _lists(self, schema: Schema, name: str, depth: int) -> Iterator[list[Any]]:
        brief = self.brief or depth > DEEPEST
        items = schema.get("items", {})
        tuple_items = items if isinstance(items, list) else schema.get("prefixItems", ())
        first = [self.first(each, name, depth + 1) for each in tuple_items]
        least = schema.get("minItems", 0)
        count = max(
            min(max(least, 0 if brief or not isinstance(items, Mapping) or not items else 1), schema.get("maxItems", inf)) - len(first), 0
        )
        if count <= LONGEST_LIST and not any(each is NOTHING for each in first):
            more = self._several(items, count, name, depth + 1, are_different=schema.get("uniqueItems") is True)
            if len(more) == count:
                yield first + more
            if "contains" in schema:
                wanted = self._several(schema["contains"], min(schema.get("minContains", 1), LONGEST_LIST), name, depth + 1)
                yield first + wanted + more[len(wanted) :]
        yield []

    def _several(self, schema: Any, count: int, name: str, depth: int, *, are_different: bool = False) -> list[Any]:
        if not count:
            return []
        if not are_different:
            value = self.first({} if isinstance(schema, list) else schema, name, depth)
            return [] if value is NOTHING else [value] * count
        found: list[Any] = []
        for value in self.fitting(schema, name, depth):
            if value not in found:
                found.append(value)
            if len(found) == count:
                break
        return found

    def _texts(self, schema: Schema, name: str) -> Iterator[str]:
        least, most = schema.get("minLength", 0), schema.get("maxLength", LONGEST_TEXT)
        if least > LONGEST_TEXT:
            return
        if (text := TEXTS.get(schema.get("format", ""))) is not None:
            yield text
        word = self.word or name.upper() or "text"
        if "pattern" in schema:
            words: Iterable[str] = (word, word.lower(), *TEXTS.values())
            spelled = (each * length for each in "1aA" for length in range(max(least, 1), min(most, LONGEST_SPELLED) + 1))
        else:
            words, spelled = (word,), (f"{word}{number}" for number in range(2, LONGEST_LIST))
        yield from (text.ljust(least, "X")[:most] for text in chain(words, spelled))


def _numbers(schema: Schema, *, is_integer: bool) -> Iterator[int | float]:
    least = max(schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf))
    most = min(schema.get("maximum", inf), schema.get("exclusiveMaximum", inf))
    step = schema.get("multipleOf", 1)
    near = min(max(least, 1), most)
    if not isfinite(near / step):
        return
    start = step * ceil(near / step)
    further = (start + step * number for number in chain(range(LONGEST_LIST), range(-1, -LONGEST_LIST, -1)))
    for value in chain((near,), further, [(least + most) / 2] if isfinite(least + most) else ()):
        yield int(value) if is_integer and value == int(value) else value


def _both(one: Schema, other: Schema) -> dict[str, Any]:
    return {**one, **other, **{name: JOINED[name](one[name], other[name]) for name in one.keys() & other.keys() & JOINED.keys()}}


def _joined_properties(one: Schema, other: Schema) -> Schema:
    return {**one, **other, **{name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}}


def _joined_types(one: Any, other: Any) -> list[str]:
    ours, theirs = ([each] if isinstance(each, str) else each for each in (one, other))
    both = {*ours, *(["integer"] if "number" in ours else [])} & {*theirs, *(["integer"] if "number" in theirs else [])}
    return sorted(both - {"integer"} if "number" in both else both)


JOINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "properties": _joined_properties,
    "type": _joined_types,
    "required": lambda one, other: [*dict.fromkeys((*one, *other))],
    "enum": lambda one, other: [each for each in one if each in other],
    "multipleOf": lambda one, other: one * other // gcd(one, other) if type(one) is type(other) is int else max(one, other),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


def _types_of(schema: Schema) -> Sequence[str]:
    if declared := schema.get("type"):
        return [declared] if isinstance(declared, str) else list(declared)
    return [kind for kind, keywords in OF_TYPES.items() if keywords & schema.keys()][:1] or ["any"]


OF_TYPES = {
    "object": {"properties", "required", "additionalProperties", "minProperties"},
    "array": {"items", "prefixItems", "minItems", "uniqueItems", "contains"},
    "string": {"pattern", "format", "minLength", "maxLength"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}


def _is_nullable(schema: Schema) -> bool:
    arms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return "null" in _types_of(schema) or any(isinstance(arm, Mapping) and arm.get("type") == "null" for arm in arms)


def _without(schema: Schema, *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}
