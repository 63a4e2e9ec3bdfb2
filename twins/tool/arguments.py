"""Checks the arguments of one tool before it is called, and names everything that is wrong with them in one problem.

What judges them is what the tool publishes. For a function that is pydantic's validator, from which its input schema was made; for every
other tool, such as one of another server, of an API or made from another tool, the input schema itself.

What Python and pydantic take for a number where the input schema has one is found here: `true` and `false`, which they treat as 1 and
0, and texts such as "NaN", "Infinity" and "1e999", which would pass every check that is a comparison.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import Any, get_args, get_type_hints

from anyio import CapacityLimiter
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import FunctionTool
from fastmcp.tools.base import ToolResult
from pydantic import BaseModel, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo

from twins.catalog import Catalog
from twins.fastmcp import CrashError, ends_in_a_function, function_of, is_unsendable
from twins.http.json_reader import require_storable, unstorable_reason
from twins.problems import FieldError, Problem, invalid_request, pointer_to, refuse_too_many, unknown_field
from twins.tool.direct_call import DirectTool, innermost, runs_in_thread, without_nulls
from twins.tool.errors import MOST_FOUND, ToolEndedError, ends_more_than_its_call, field_errors, invalid_arguments, too_many_errors
from twins.tool.operation import Operation
from twins.tool.results import VALUE, ResultWriter
from twins.tool.schemas import PublishedSchema, Schema, alternatives_of, types_of

NOT_A_NUMBER, NOT_FINITE = "should be a number, not true or false", "should be a finite number"
NUMERIC = frozenset(("integer", "number"))
SUSPECTS = frozenset((bool, str, dict, list))  # The types of values that are a false number, or may contain one.
MEMBER_KEYWORDS = frozenset(("properties", "patternProperties", "additionalProperties", "items", "prefixItems"))
SAYS_NOTHING = frozenset(("title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly", "$comment"))
"""Keywords of JSON Schema that every value satisfies."""
OBJECT_KEYWORDS = frozenset(("type", "properties", "$ref"))  # By these FastMCP knows a schema of objects.
Steps = tuple[str | int, ...]
logger = logging.getLogger(__name__)


class ArgumentChecker:
    """Checks the arguments of one operation, for both frames. A `method` of None means that they came over MCP."""

    def __init__(
        self,
        server: FastMCP[Any],
        operation: Operation,
        *,
        catalog: Catalog | None = None,
        threads: CapacityLimiter | None = None,
        reveals: bool = False,
    ) -> None:
        """`catalog` is that from which the operation was made, or one is made of the server as it is now.

        `threads` limits those in which the server's functions run that are not async; by default all servers share anyio's.
        For `reveals` see ResultContract.
        """
        self.operation = operation
        self._reveals = reveals
        self._catalog = catalog or Catalog(server)
        self._threads = threads
        self._server = server
        self._false_numbers = FalseNumbers(operation)
        self._schema = None if type(operation.tool) is FunctionTool else self._compiled()
        self._reads_texts = ends_in_a_function(operation.tool)

    @cached_property
    def direct(self) -> DirectTool | None:
        """The tool's function with its validator; None when only its server may validate the arguments and call it."""
        tool = self.operation.tool
        if not isinstance(tool, FunctionTool) or self._catalog.why_not(tool) is not None:
            return None
        if self.operation.wraps_result or (tool.output_schema and OBJECT_KEYWORDS.isdisjoint(tool.output_schema)):
            return None  # whether its results are wrapped depends on the client's version: the server knows
        return DirectTool(self._server, tool, threads=self._threads)

    @cached_property
    def _validator(self) -> DirectTool | None:
        tool = self.operation.tool
        return self.direct or (DirectTool(self._server, tool) if type(tool) is FunctionTool else None)

    def _compiled(self) -> PublishedSchema | None:
        """The input schema of a tool that is no function; None, and logged, for one that only the tool's server can check."""
        tool = self.operation.tool
        try:
            return PublishedSchema(tool.parameters, is_own=function_of(tool) is not None)
        except Exception as error:  # the border to another server's schemas: whatever cannot be compiled
            data = {"server": self.operation.server, "tool": self.operation.name, "reason": str(error)[:200]}
            logger.warning("arguments are checked by the server alone", extra=data)
            return None

    @cached_property
    def _written_by_hand(self) -> PublishedSchema | None:
        """Of a function: what its author promises of arguments in JSON Schema itself, which pydantic publishes and does not check."""
        tool = self.operation.tool
        names = promised_by_hand(tool.fn) if isinstance(tool, FunctionTool) else ()
        shown = {name: schema for name, schema in tool.parameters.get("properties", {}).items() if name in names}
        return PublishedSchema({"properties": shown, "$defs": tool.parameters.get("$defs", {})}, is_own=True) if shown else None

    def _check_by_hand(self, arguments: Mapping[str, Any], method: str | None) -> None:
        if self._written_by_hand is None or self._written_by_hand.accepts(judged := self._as_judged(arguments)):
            return
        errors = self._written_by_hand.mismatches(judged).items()
        raise invalid_request([FieldError(self._pointer((name,), method), "schema_mismatch", words) for name, words in errors])

    @cached_property
    def results(self) -> ResultWriter:
        return ResultWriter(self.operation.tool, reveals=self._reveals)

    def check_result(self, result: ToolResult | BaseModel) -> None:
        """Raises InvalidResultProblem for a result of the tool's server that is not what the tool publishes."""
        if isinstance(result, ToolResult):
            self.results.contract.check_result(result)

    def unsendable(self, error: ToolError) -> Problem | None:
        """The problem for an error by which the server says that it cannot write the tool's result; None for any other."""
        if not is_unsendable(error):
            return None
        fault = VALUE.sub("", str(error.__cause__ or error)).partition(". Got ")[0]
        return self.results.contract.broken("", fault, "what cannot be written")

    @asynccontextmanager
    async def thread(self) -> AsyncIterator[None]:
        """Entered around a call through the server: a place among the threads, if the tool's function takes one.

        What would end the server or this task is a failure of the tool.
        """
        tool = self.operation.tool
        takes_place = isinstance(tool, FunctionTool) and runs_in_thread(tool)
        async with (self._threads if takes_place else None) or nullcontext():
            try:
                yield
            except BaseException as error:
                if ends_more_than_its_call(error):
                    raise CrashError(self._server, tool, ended := ToolEndedError(error)) from ended
                raise

    def has_false_numbers(self, arguments: Mapping[str, Any]) -> bool:
        """True if something was sent where the tool takes a number that is none, which its validator would accept."""
        return not SUSPECTS.isdisjoint(map(type, arguments.values())) and any(self._false_numbers.find(arguments))

    def precheck(self, arguments: Mapping[str, Any], method: str | None = None) -> None:
        """Raises Problem 422 for what a validator would accept, and for all else that is wrong where the tool is not called directly."""
        if not self.operation.accepts_unknown:
            refuse_too_many(len(arguments), len(self.operation.by_name))
        if any(self._false_numbers.find(arguments)) or (self.direct is None and self._is_wrong(arguments, method)):
            raise self.invalid(arguments, method)

    def _is_wrong(self, arguments: Mapping[str, Any], method: str | None) -> bool:
        if self._validator is None:
            return bool(self._wrong_names(arguments, method)) or not self._matches(arguments)
        try:
            self._validator.validate(dict(arguments))
        except ValidationError:
            return True
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None
        except Exception:  # a validator of the author's failed: it will again, where that is handled
            return False
        self._check_by_hand(arguments, method)
        return False

    def _matches(self, arguments: Mapping[str, Any]) -> bool:
        try:
            return self._schema is None or self._schema.accepts(self._as_judged(arguments))
        except ValueError:  # too long, or with texts that are no Unicode: the server checks them itself
            return True

    def _as_judged(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Numbers and the like without the quotes that pydantic accepts around them, where pydantic judges in the end.

        A body that is no text stands for one: JSON has no bytes.
        """
        known = self.operation.by_name if self._reads_texts else {}
        texts = {name: value for name, value in arguments.items() if type(value) is str and name in known}
        whole = {name: "" for name, value in arguments.items() if type(value) is bytes}
        return {**arguments, **whole, **{name: known[name].decoder.decode_one(text) for name, text in texts.items()}}

    def check(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments, validated; unchanged when only the tool's server may validate them. Raises Problem 422."""
        direct = self.direct
        if direct is None or not SUSPECTS.isdisjoint(map(type, arguments.values())):
            self.precheck(arguments, method)  # the condition is repeated here, since most calls have no such value
        if direct is None:
            return arguments
        try:
            validated = direct.validate(arguments)
        except ValidationError as error:
            if not self.operation.accepts_unknown:
                refuse_too_many(len(arguments), len(self.operation.by_name))  # before a sentence is made for each
            raise self.invalid(arguments, method, rejection=error) from None
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None
        if self._written_by_hand is not None:
            self._check_by_hand(arguments, method)
        return validated

    def canonical(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments in canonical form; only without nulls when the tool's server validates them. Raises as `check`."""
        validated = self.check(arguments, method)
        return without_nulls(arguments) if self.direct is None else self.direct.canonical(arguments, validated)

    def require_storable(self, arguments: Mapping[str, Any]) -> None:
        """Raises Problem 400 `invalid_json`, which names each argument that cannot be stored where the tool's route is not lenient."""
        if unstorable_reason(arguments) is None:
            return
        if not self.operation.accepts_unknown:
            refuse_too_many(len(arguments), len(self.operation.by_name))
        require_storable({name: value for name, value in arguments.items() if name not in self.operation.route.lenient})

    def rejected(self, cause: BaseException | None, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """Problem 422 for a validation error of the tool's server, raised for this `cause`. No value is repeated."""
        if isinstance(cause, ValidationError):
            return invalid_arguments(cause, self.operation, method, arguments)
        return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")

    def with_wrong_names(self, problem: Problem, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """The problem that a validator raised for one argument; when names are wrong as well, a problem that lists everything."""
        if self._validator is None or not self._wrong_names(arguments, method):
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
        rest = self._validation_errors(dict(arguments), method, rejection)
        errors += (error for error in rest if not error.pointer or not any(f"{each}/".startswith(f"{error.pointer}/") for each in named))
        return invalid_request(errors, known=self.operation.accepted_names(method))

    def _validation_errors(self, arguments: dict[str, Any], method: str | None, rejection: ValidationError | None) -> list[FieldError]:
        if rejection is not None:
            return field_errors(rejection, self.operation, method, arguments)
        if self._validator is None:
            return [*self._wrong_names(arguments, method), *self._mismatches(arguments, method)]
        try:
            self._validator.validate(arguments)
        except ValidationError as error:
            return field_errors(error, self.operation, method, arguments)
        except Problem as problem:
            return [*self._wrong_names(arguments, method), FieldError("", problem.code, problem.detail)]
        return []

    def _mismatches(self, arguments: Mapping[str, Any], method: str | None) -> list[FieldError]:
        if self._schema is None or self._matches(arguments):
            return []
        found = self._schema.mismatches(self._as_judged(arguments))
        errors = [FieldError(self._pointer((name,), method), "schema_mismatch", words) for name, words in found.items()]
        if errors or self._wrong_names(arguments, method):
            return errors
        place, _ = self.operation.place_of("", method)
        return [FieldError(pointer_to(place), "schema_mismatch", "must match the tool's input schema")]

    def _wrong_names(self, arguments: Mapping[str, Any], method: str | None) -> list[FieldError]:
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


def promised_by_hand(function: Callable[..., Any]) -> frozenset[str]:
    """The arguments of a function to whose schemas WithJsonSchema or json_schema_extra adds more than words."""
    found = set()
    hints = get_type_hints(innermost(function), include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        for each in (*get_args(hints.get(name)), parameter.default):
            more = each.json_schema if isinstance(each, WithJsonSchema) else each.json_schema_extra if isinstance(each, FieldInfo) else None
            if callable(more) or (more and not SAYS_NOTHING.issuperset(more)):
                found.add(name)
    return frozenset(found)


class FalseNumbers:
    """The search in the arguments of one operation.

    It reads the input schema, since a tool of another server has nothing else. pydantic cannot search: in its strict mode it also
    refuses the numbers in quotes that tools accept.
    """

    def __init__(self, operation: Operation) -> None:
        known: dict[frozenset[int], _Place] = {}
        root = operation.tool.parameters
        self._places = {each.name: _place_of([each.schema], root, known) for each in operation.parameters}

    def find(self, arguments: Mapping[str, Any]) -> Iterator[tuple[Steps, bool]]:
        """The path of each boolean and text that was sent for a number and is none, and whether it is a text."""
        waiting: list[tuple[Steps, Any, _Place]] = [
            ((name,), value, place)
            for name, value in arguments.items()
            if type(value) in SUSPECTS and (place := self._places.get(name)) is not None and place.may_refuse(value)
        ]
        waiting.reverse()
        while waiting:
            steps, value, place = waiting.pop()
            if not isinstance(value, dict | list):
                if place.may_refuse(value):
                    yield steps, type(value) is str
            elif place.has_places_below:
                members = list(value.items() if isinstance(value, dict) else enumerate(value))
                waiting += (((*steps, step), each, place.below(step)) for step, each in reversed(members) if type(each) in SUSPECTS)


class _Place:
    """What all schemas of one place in the arguments accept there; and the places below it, made when they are first asked for.

    Where the same schemas hold, the place is the same: a recursive schema has few, and a value deep within costs no more than any other.
    """

    def __init__(self, schemas: Iterable[Schema], root: Schema, known: "dict[frozenset[int], _Place]") -> None:
        self._root = root
        self._known = known
        self._arms = list({id(arm): arm for schema in schemas for arm in alternatives_of(schema, root)}.values())
        self._named = frozenset(name for arm in self._arms for name in arm.get("properties", ()))
        self._tuple_length = max((len(arm.get("prefixItems", ())) for arm in self._arms), default=0)
        self._below: dict[str | int | None, _Place] = {}
        self.has_places_below = not all(MEMBER_KEYWORDS.isdisjoint(arm) for arm in self._arms)
        # a duration may also be a number of seconds
        kinds = frozenset[str]().union(*(NUMERIC if arm.get("format") == "duration" else types_of(arm) for arm in self._arms))
        self.refuses_booleans = not kinds.isdisjoint(NUMERIC) and "boolean" not in kinds
        self.refuses_infinite_texts = "number" in kinds and "string" not in kinds

    def may_refuse(self, value: Any) -> bool:
        """False for a value in which no false number can be: a quick look, since nearly every call has such values."""
        if type(value) is str:
            return self.refuses_infinite_texts and _is_not_finite(value)
        return self.refuses_booleans if type(value) is bool else self.has_places_below and _contains_suspect([value])

    def below(self, step: str | int) -> "_Place":
        key: str | int | None  # members that no schema names are one place, and so are all items after those of a tuple
        key = min(step, self._tuple_length) if isinstance(step, int) else step if step in self._named else None
        if key not in self._below:
            self._below[key] = _place_of([part for arm in self._arms for part in _member_schemas(arm, step)], self._root, self._known)
        return self._below[key]


def _place_of(schemas: Sequence[Schema], root: Schema, known: dict[frozenset[int], _Place]) -> _Place:
    identity = frozenset(map(id, schemas))
    if identity not in known:
        known[identity] = _Place(schemas, root, known)
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
    try:
        return not isfinite(float(text))
    except ValueError:
        return False


def _member_schemas(arm: Schema, step: str | int) -> list[Schema]:
    if isinstance(step, int):
        first = arm.get("prefixItems", ())
        found = [first[step] if step < len(first) else arm.get("items")]
    elif step in (properties := arm.get("properties", {})):
        found = [properties[step]]
    else:
        found = [arm.get("additionalProperties"), *arm.get("patternProperties", {}).values()]
    return [each for each in found if isinstance(each, Mapping)]
