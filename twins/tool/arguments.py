"""Checks the arguments of one tool before it is called, and names everything that is wrong with them in one problem.

What Python and pydantic take for a number where the input schema has one is found here: `true` and `false`, which they treat as 1 and
0, and texts such as "NaN", "Infinity" and "1e999", which would pass every check that is a comparison.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from pydantic import ValidationError

from twins.fastmcp import allows_direct_calls, is_proxied
from twins.http.json_reader import require_storable, storable
from twins.problems import FieldError, Problem, invalid_request, pointer_to, refuse_too_many, unknown_field
from twins.tool.direct_call import DirectTool, without_nulls
from twins.tool.errors import MOST_FOUND, field_errors, invalid_arguments, too_many_errors
from twins.tool.operation import TYPE_NAMES, Operation, Schema, alternatives_of, resolve_reference

NOT_A_NUMBER, NOT_FINITE = "should be a number, not true or false", "should be a finite number"
NUMERIC = frozenset(("integer", "number"))
SUSPECTS = frozenset((bool, str, dict, list))
"""The types of values that are a false number, or may contain one."""
ANY_TYPE = frozenset(("boolean", "string"))
"""An alternative that names no type accepts booleans and texts, among everything else."""
TYPE_KEYWORDS = ("type", "enum", "const", "properties", "patternProperties", "additionalProperties", "items", "prefixItems")
Steps = tuple[str | int, ...]


class ArgumentChecker:
    """Checks the arguments of one operation, for both frames. A `method` of None means that they came over MCP."""

    def __init__(self, server: FastMCP[Any], operation: Operation) -> None:
        self.operation = operation
        self._server = server
        self._false_numbers = FalseNumbers(operation)
        self._is_proxied = is_proxied(operation.tool)
        self._has_own_rules = bool(self._false_numbers) or self._is_proxied

    @cached_property
    def direct(self) -> DirectTool | None:
        """The tool's function with its validator; None when only its server may validate the arguments and call it."""
        tool = self.operation.tool
        if type(tool) is not FunctionTool or tool.auth is not None or not allows_direct_calls(self._server):
            return None
        return DirectTool(self._server, tool)

    def has_false_numbers(self, arguments: Mapping[str, Any]) -> bool:
        """True if something was sent where the tool takes a number that is none, which its validator would accept."""
        return self._has_own_rules and not SUSPECTS.isdisjoint(map(type, arguments.values())) and any(self._false_numbers.find(arguments))

    def precheck(self, arguments: Mapping[str, Any], method: str | None = None) -> None:
        """Raises Problem 422 for what a validator would accept, and for what another server would reject in its own words."""
        if not self.operation.accepts_unknown:
            refuse_too_many(len(arguments), len(self.operation.by_name))
        if any(self._false_numbers.find(arguments)) or (self._is_proxied and self._wrong_names(arguments, method)):
            raise self.invalid(arguments, method)

    def check(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments, validated; unchanged when only the tool's server may validate them. Raises Problem 422."""
        direct = self.direct
        if self._has_own_rules and (direct is None or not SUSPECTS.isdisjoint(map(type, arguments.values()))):
            self.precheck(arguments, method)  # the condition is repeated here, since most calls have no such value
        if direct is None:
            return arguments
        try:
            return direct.validate(arguments)
        except ValidationError as error:
            if not self.operation.accepts_unknown:
                refuse_too_many(len(arguments), len(self.operation.by_name))  # before a sentence is made for each
            raise self.invalid(arguments, method, rejection=error) from None
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None

    def canonical(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments in canonical form; only without nulls when the tool's server validates them. Raises as `check`."""
        self.precheck(arguments, method)
        if self.direct is None:
            return without_nulls(arguments)
        try:
            return self.direct.canonical(arguments)
        except ValidationError as error:
            raise self.invalid(arguments, method, rejection=error) from None
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None

    def storable(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments; Unstorable replaces a value that cannot be stored where the tool's route is lenient.

        Raises Problem 400 `invalid_json`, which names each of the other arguments that cannot be stored.
        """
        if not self.operation.accepts_unknown:
            refuse_too_many(len(arguments), len(self.operation.by_name))
        lenient = self.operation.route.lenient
        require_storable({name: value for name, value in arguments.items() if name not in lenient})
        return dict(storable(arguments, lenient))

    def rejected(self, cause: BaseException | None, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """Problem 422 for a validation error of the tool's server, raised for this `cause`. No value is repeated."""
        if isinstance(cause, ValidationError):
            return invalid_arguments(cause, self.operation, method, arguments)
        return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")

    def with_wrong_names(self, problem: Problem, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """The problem that a validator raised for one argument; when names are wrong as well, a problem that lists everything."""
        if self.direct is None or not self._wrong_names(arguments, method):
            return problem
        return self.invalid(arguments, method)

    def invalid(
        self,
        arguments: Mapping[str, Any],
        method: str | None = None,
        *,
        found: Iterable[FieldError] = (),
        rejection: ValidationError | None = None,
    ) -> Problem:
        """Problem 422 with everything that is wrong: what was `found` before, and what these arguments show.

        `rejection` is what their validator raised, if they were validated before.
        """
        errors = list(found)
        false_numbers = list(islice(self._false_numbers.find(arguments), MOST_FOUND + 1))
        if len(false_numbers) > MOST_FOUND:
            return invalid_request([*errors, too_many_errors(self.operation, method, f"more than {MOST_FOUND:,}")])
        for path, is_text in false_numbers:
            wrong = ("finite_number", NOT_FINITE) if is_text else ("number_type", NOT_A_NUMBER)
            errors.append(FieldError(self._pointer(path, method), *wrong))
        named = {error.pointer for error in errors}
        errors += (error for error in self._validation_errors(dict(arguments), method, rejection) if error.pointer not in named)
        return invalid_request(errors, known=self.operation.accepted_names(method))

    def _validation_errors(self, arguments: dict[str, Any], method: str | None, rejection: ValidationError | None) -> list[FieldError]:
        if self.direct is None:
            return self._wrong_names(arguments, method)
        if rejection is not None:
            return field_errors(rejection, self.operation, method, arguments)
        try:
            self.direct.validate(arguments)
        except ValidationError as error:
            return field_errors(error, self.operation, method, arguments)
        except Problem as problem:
            return [*self._wrong_names(arguments, method), FieldError("", problem.code, problem.detail)]
        return []

    def _wrong_names(self, arguments: Mapping[str, Any], method: str | None) -> list[FieldError]:
        """Required arguments that are missing and names that the tool does not accept, by its input schema."""
        operation = self.operation
        missing = [each.name for each in operation.parameters if each.required and each.name not in arguments]
        errors = [FieldError(self._pointer((name,), method), "missing", "is required") for name in missing]
        if not operation.accepts_unknown:
            known = operation.accepted_names(method)
            places = [operation.place_of(name, method) for name in arguments if name not in operation.by_name]
            errors += (unknown_field(place, wire, known[place]) for place, wire in places)
        return errors

    def _pointer(self, path: tuple[str | int, ...], method: str | None) -> str:
        name, *steps = path
        return pointer_to(*self.operation.place_of(str(name), method), *steps)


class FalseNumbers:
    """The search in the arguments of one operation. It is false if the operation takes no numbers."""

    def __init__(self, operation: Operation) -> None:
        known: dict[frozenset[int], _Place | None] = {}
        root = operation.tool.parameters
        places = {each.name: _place_of([each.schema], root, known) for each in operation.parameters}
        self._places = {name: place for name, place in places.items() if place is not None}

    def __bool__(self) -> bool:
        return bool(self._places)

    def find(self, arguments: Mapping[str, Any]) -> Iterator[tuple[Steps, bool]]:
        """The path of each boolean and text that was sent for a number and is none, and whether it is a text."""
        for name, value in arguments.items():
            if type(value) in SUSPECTS and (place := self._places.get(name)) is not None and place.may_refuse(value):
                yield from (((name, *steps), is_text) for steps, is_text in _false_numbers(value, place))


class _Place:
    """What all schemas of one place in the arguments accept there; and the places below it, made when they are first asked for.

    Where the same schemas hold, the place is the same: a recursive schema has few, and a value deep within costs no more than any other.
    """

    def __init__(self, schemas: Iterable[Schema], root: Schema, known: "dict[frozenset[int], _Place | None]") -> None:
        self._root = root
        self._known = known
        self._arms = list({id(arm): arm for schema in schemas for arm in alternatives_of(schema, root)}.values())
        self._named = frozenset(name for arm in self._arms for name in arm.get("properties", ()))
        self._tuple_length = max((len(arm.get("prefixItems", ())) for arm in self._arms), default=0)
        self._below: dict[str | int | None, _Place | None] = {}
        kinds = frozenset[str]().union(*map(_types_of, self._arms))
        self.refuses_booleans = not kinds.isdisjoint(NUMERIC) and "boolean" not in kinds
        self.refuses_infinite_texts = "number" in kinds and "string" not in kinds

    def may_refuse(self, value: Any) -> bool:
        """False for a value in which no false number can be: a quick look, since nearly every call has such values."""
        if type(value) is str:
            return self.refuses_infinite_texts and _is_not_finite(value)
        return self.refuses_booleans if type(value) is bool else _contains_suspect([value])

    def below(self, step: str | int) -> "_Place | None":
        """The place of a member or an item; None if no number is accepted anywhere in it."""
        key: str | int | None  # members that no schema names are one place, and so are all items after those of a tuple
        key = min(step, self._tuple_length) if isinstance(step, int) else step if step in self._named else None
        if key not in self._below:
            self._below[key] = _place_of([part for arm in self._arms for part in _member_schemas(arm, step)], self._root, self._known)
        return self._below[key]


def _place_of(schemas: Sequence[Schema], root: Schema, known: dict[frozenset[int], _Place | None]) -> _Place | None:
    identity = frozenset(map(id, schemas))
    if identity not in known:
        known[identity] = _Place(schemas, root, known) if _reaches_number(schemas, root, set()) else None
    return known[identity]


def _contains_suspect(values: list[Any]) -> bool:
    """True if a boolean, or a text that spells no finite number, is anywhere in a list. One of plain numbers costs one pass in C."""
    waiting = [values]
    while waiting:
        node: Any = waiting.pop()
        members = list(node.values()) if type(node) is dict else node
        kinds = set(map(type, members))
        if bool in kinds or (str in kinds and any(type(member) is str and _is_not_finite(member) for member in members)):
            return True
        if not kinds.isdisjoint((dict, list)):
            waiting += (member for member in members if type(member) in (dict, list))
    return False


def _is_not_finite(text: str) -> bool:
    """True for what Python and pydantic read as NaN or an infinity."""
    try:
        return not isfinite(float(text))
    except ValueError:
        return False


def _false_numbers(value: Any, place: _Place) -> Iterator[tuple[Steps, bool]]:
    """The paths to booleans in a value where its schema takes numbers and no booleans, and to texts likewise; True for a text."""
    members: Iterable[tuple[str | int, Any]] = ()
    match value:
        case bool():
            if place.refuses_booleans:
                yield (), False
        case str():
            if place.refuses_infinite_texts and _is_not_finite(value):
                yield (), True
        case dict():
            members = value.items()
        case list():
            members = enumerate(value)
    for step, member in members:
        if type(member) in SUSPECTS and (below := place.below(step)) is not None:
            yield from (((step, *steps), is_text) for steps, is_text in _false_numbers(member, below))


def _member_schemas(arm: Schema, step: str | int) -> list[Schema]:
    """The schemas of one member or item in an alternative; those of all patterns for a name that it does not list."""
    if isinstance(step, int):
        first = arm.get("prefixItems", ())
        found = [first[step] if step < len(first) else arm.get("items")]
    elif step in (properties := arm.get("properties", {})):
        found = [properties[step]]
    else:
        found = [arm.get("additionalProperties"), *arm.get("patternProperties", {}).values()]
    return [each for each in found if isinstance(each, Mapping)]


def _types_of(arm: Schema) -> frozenset[str]:
    """JSON Schema's names of the types that an alternative accepts; a duration may also be a number of seconds."""
    if not any(keyword in arm for keyword in TYPE_KEYWORDS):
        return ANY_TYPE
    if arm.get("format") == "duration":
        return NUMERIC
    declared = arm.get("type")
    if declared is not None:
        return frozenset((declared,) if isinstance(declared, str) else declared)
    values = [*arm.get("enum", ()), *([arm["const"]] if "const" in arm else ())]
    return frozenset(TYPE_NAMES[type(value)] for value in values)


def _reaches_number(node: Any, root: Schema, seen: set[str]) -> bool:
    """True if a number is accepted anywhere within a schema."""
    if isinstance(node, list | tuple):
        return any(_reaches_number(each, root, seen) for each in node)
    if not isinstance(node, Mapping):
        return False
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        if _reaches_number(resolve_reference(reference, root), root, seen):
            return True
    if not _types_of(node).isdisjoint(NUMERIC):
        return True
    below = [node.get(keyword) for keyword in ("anyOf", "oneOf", "allOf", "items", "prefixItems", "additionalProperties")]
    members = (*node.get("properties", {}).values(), *node.get("patternProperties", {}).values())
    return _reaches_number([*below, *members], root, seen)
