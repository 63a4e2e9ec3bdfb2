"""What a caller is told when its arguments do not validate, without any value sent, and when its tool did not answer."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from fastmcp.tools import Tool
from mcp import MCPError
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from twins.field_errors import FieldError, pointer_to, unknown_field, visible
from twins.operation import Operation
from twins.problems import Problem, invalid_request

# The messages of these kinds are pydantic's own and name no value; all others were written by a validator's author, or quote.
SAFE_KINDS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error", "union_tag_invalid"}
CODES = {"missing_argument": "missing", "missing_keyword_only_argument": "missing", "value_error": "invalid", "assertion_error": "invalid"}
SUBJECT = re.compile(r"^[A-Z]\w*(?: input| items)? (?=should )")
# Where pydantic speaks of Python's types.
IN_JSON = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"), "should be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "should be a list"),
    "none_required": "should be null",
}


def invalid_arguments(error: ValidationError, operation: Operation, method: str | None, arguments: Mapping[str, Any]) -> Problem:
    """422 `invalid_request` for arguments that the tool's signature does not take; a `method` of None means MCP."""
    return invalid_request(field_errors(error, operation, method, arguments), known=operation.accepted_names(method))


def field_errors(error: ValidationError, operation: Operation, method: str | None, arguments: Mapping[str, Any]) -> list[FieldError]:
    """What a validator found, each by where the caller sent it."""
    found = error.errors(include_url=False, include_context=False)
    return [_field_error(each, operation, method, arguments) for each in found]


def timed_out(seconds: float) -> Problem:
    """504 `timeout`."""
    return Problem(504, "timeout", f"the tool did not answer within {seconds:g} seconds")


def upstream_failed() -> Problem:
    """502 `upstream_failed`: a tool of another server, which cannot be reached or did not answer."""
    return Problem(502, "upstream_failed", "the server behind this tool did not return a valid answer; try again later")


def timeout_problem(cause: BaseException | None, tool: Tool) -> Problem | None:
    """504, where FastMCP stopped the tool at its timeout: only the words of an mcp error tell."""
    late = isinstance(cause, MCPError) and "timed out" in cause.error.message
    return timed_out(tool.timeout) if late and tool.timeout is not None else None


def _field_error(error: ErrorDetails, operation: Operation, method: str | None, arguments: Mapping[str, Any]) -> FieldError:
    name, *rest = error["loc"] or ("",)
    place, wire = operation.place_of(str(name), method)
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        return unknown_field(place, wire, operation.accepted_names(method).get(place, ()))
    code = CODES.get(kind, kind)
    steps = [*_steps(rest, arguments.get(str(name))), *(rest[-1:] if code == "missing" else ())]
    pointer = pointer_to(place, wire, *steps)
    return FieldError(pointer, code, "is required" if code == "missing" else _sentence(error))


def _steps(location: list[str | int], value: Any) -> Iterator[str | int]:
    """The parts of a location that lead through what was sent; pydantic puts names of union arms between them."""
    for step in location:
        try:
            value = value[step]
        except (TypeError, LookupError):
            continue
        yield step


def _sentence(error: ErrorDetails) -> str:
    """The finding in words; a validator's own words are withheld where they repeat the value."""
    if error["type"] not in SAFE_KINDS and any(text in error["msg"] for text in _texts(error["input"])):
        return "is not valid"
    if error["type"] in IN_JSON:
        return IN_JSON[error["type"]]
    words = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return visible(SUBJECT.sub("", words))


def _texts(value: Any) -> Iterator[str]:
    """Every text and number within a value, as it would be printed."""
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif text := str(value):
        yield text
