"""The form of a tool: its fields from the tool's schema, and the arguments from what was sent. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from campus.visitors import spelled
from twins import Operation, Parameter, Problem, read_json, resolved

PREFIX = "argument."  # Before the name of an argument in a form, so that no argument collides with the form's own fields.
Kind = Literal["text", "number", "scalar", "choice", "json"]
"""`scalar`: a number, a word or the like, read as JSON where it is JSON; `json`: anything, in a larger field."""
Schema = Mapping[str, Any]
SCALARS = {"string", "integer", "number", "boolean", "null"}
ANYTHING = "any JSON value"
DEEPEST = 3
LONGEST_CHAIN = 10  # References that are followed from one to the next.
MOST_ROWS = 60


@dataclass(frozen=True)
class Member:
    path: str
    type: str
    description: str


@dataclass(frozen=True)
class Argument:
    """One field of the form. `choices` are the accepted texts of a choice, `members` those of an object or of a list of objects."""

    name: str
    kind: Kind
    type: str
    required: bool
    description: str
    default: str
    example: str
    members: tuple[Member, ...] = ()
    choices: tuple[str, ...] = ()
    value: str = ""

    @property
    def field(self) -> str:
        return f"{PREFIX}{self.name}"


def arguments_of(operation: Operation, values: Mapping[str, str]) -> tuple[Argument, ...]:
    root = operation.tool.parameters
    return tuple(
        _argument(one, root, example=operation.examples.argument(one.name), value=values.get(one.name, "")) for one in operation.parameters
    )


def _argument(parameter: Parameter, root: Schema, *, example: Any, value: str) -> Argument:
    schema = parameter.schema
    plain = _without_null(schema, root)
    choices = _choices(plain)
    default = schema.get("default")
    return Argument(
        name=parameter.name,
        kind="choice" if choices else _kind(plain),
        type=type_of(schema, root),
        required=parameter.required,
        description=str(schema.get("description") or plain.get("description") or ""),
        default="" if default is None else spelled(default),
        example="" if example is None else spelled(example),
        members=members_of({"properties": {parameter.name: schema}}, root)[1:],
        choices=choices,
        value=value,
    )


def _choices(schema: Schema) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return ("true", "false")
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(map(spelled, values))


def _kind(schema: Schema) -> Kind:
    match schema.get("type"):
        case "string":
            return "text"
        case "integer" | "number":
            return "number"
    options = schema.get("anyOf")
    kinds = [one.get("type") for one in options if isinstance(one, Mapping)] if isinstance(options, list) else []
    return "scalar" if kinds and set(kinds) <= SCALARS else "json"


def sent_values(fields: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): value for name, value in fields.items() if name.startswith(PREFIX) and value.strip()}


def read_values(arguments: Sequence[Argument]) -> dict[str, Any]:
    """The arguments as JSON values.

    Text that is not of an argument's type, or JSON that no call may contain, is passed on as text: the tool's refusal explains it.
    """
    return {one.name: _read(one) for one in arguments if one.value}


def _read(argument: Argument) -> Any:
    text = argument.value.strip() if argument.kind != "text" else argument.value
    if argument.kind == "text" or (argument.kind == "choice" and argument.type.startswith("string")):
        return text
    try:
        return read_json(text.encode())
    except Problem:
        return text


def example_values(operation: Operation, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Arguments for a sample call: what was typed, and an example of each other argument that a call needs.

    One of which no example can be made is its name in capitals.
    """
    call = operation.examples.call
    if call is None:
        needed = {*(one.name for one in arguments if one.required), *operation.route.any_of[:1]}
        call = {one.name: operation.examples.argument(one.name) or one.name.upper() for one in arguments if one.name in needed}
    values = {**call, **read_values(arguments)}
    return {one.name: values[one.name] for one in arguments if one.name in values}


def example_answer(operation: Operation) -> str:
    answer = operation.examples.answer()
    return json.dumps(answer, indent=2, ensure_ascii=False) if answer else ""


def places_of(operation: Operation) -> dict[str, str]:
    found = {one.name: operation.place_of(one.name, operation.methods[0]) for one in operation.parameters}
    return {name: place if sent_as == name else f"{place} as {sent_as}" for name, (place, sent_as) in found.items()}


def missing_in_path(operation: Operation, arguments: Mapping[str, Any]) -> list[str]:
    return [name for name in operation.route.placeholders if not spelled(arguments.get(name, ""))]


def result_fields(operation: Operation) -> tuple[Member, ...]:
    schema = operation.answer_schema
    if not schema:
        return ()
    return members_of(schema, schema)


def members_of(schema: Schema, root: Schema) -> tuple[Member, ...]:
    return tuple(islice(_members(schema, root, "", 0), MOST_ROWS))


def _members(schema: Schema, root: Schema, before: str, depth: int) -> Iterator[Member]:
    for name, member in _properties(_without_null(schema, root)):
        plain = _without_null(member, root)
        each = plain.get("items")
        items = (_without_null(each, root) if isinstance(each, Mapping) else {}) if plain.get("type") == "array" else None
        path = f"{before}{name}{'[]' if items is not None else ''}"
        yield Member(path, type_of(member, root), str(member.get("description") or plain.get("description") or ""))
        inner = plain if items is None else items
        if depth + 1 < DEEPEST:
            yield from _members(inner, root, f"{path}.", depth + 1)


def _properties(schema: Schema) -> list[tuple[str, Schema]]:
    properties = schema.get("properties")
    return [(str(name), one) for name, one in properties.items() if isinstance(one, Mapping)] if isinstance(properties, Mapping) else []


def type_of(schema: object, root: Schema, within: tuple[object, ...] = ()) -> str:
    """A schema's type in a few words: string, list of objects, integer or null. `within` are the references that led to it.

    Types may contain themselves, and `true` is a schema too: both are any JSON value.
    """
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or (reference is not None and reference in within):
        return ANYTHING
    within = (*within, reference)
    schema = resolved(schema, root)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(option, root, within) for option in options))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return "string" if all(isinstance(value, str) for value in values) else "constant"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    if kind == "array":
        return f"list of {type_of(schema['items'], root, within)}" if isinstance(schema.get("items"), Mapping) else "list"
    return {"string": _string_type(schema), None: ANYTHING}.get(kind, str(kind))


def _string_type(schema: Schema) -> str:
    return {"date": "date", "date-time": "time", "uri": "address"}.get(str(schema.get("format")), "string")


def _without_null(schema: Schema, root: Schema) -> Schema:
    for _ in range(LONGEST_CHAIN):
        schema = resolved(schema, root)
        options = schema.get("anyOf")
        others = [one for one in options if isinstance(one, Mapping) and one.get("type") != "null"] if isinstance(options, list) else []
        if len(others) != 1:
            break
        schema = others[0]
    kinds = schema.get("type")
    others = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else []
    return {**schema, "type": others[0]} if len(others) == 1 else schema
