"""From errors to problems: arguments that pydantic rejects, named without their values; tools that time out or fail."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from fastmcp.tools import Tool
from mcp import MCPError
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType
from starlette.types import Scope

from twins.fastmcp import is_proxied
from twins.problems import FieldError, Problem, invalid_request, pointer_to, unknown_field, visible
from twins.tool.operation import Operation

# Messages of these kinds are written by pydantic and contain no value; all others may quote what was sent.
SAFE_KINDS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error", "union_tag_invalid"}
CODES = {"missing_argument": "missing", "missing_keyword_only_argument": "missing", "value_error": "invalid", "assertion_error": "invalid"}
MOST_FOUND = 5_000
"""Errors in the arguments of one call that are looked at one by one."""
SUBJECT = re.compile(r"^[A-Z]\w*(?: input| items)? (?=should )")
# Messages in which pydantic names Python's types, and the words for JSON instead.
IN_JSON = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"), "should be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "should be a list"),
    "none_required": "should be null",
}

logger = logging.getLogger(__name__)


def log_failure(error: BaseException, operation: Operation, scope: Scope) -> None:
    """Log what a tool raised that was not meant for its caller, with the request id that its caller was told."""
    data = {"tool": operation.name, "server": operation.server, "path": operation.path, "request_id": scope.get("request_id")}
    logger.error("a tool failed", exc_info=error, extra=data)


def invalid_arguments(error: ValidationError, operation: Operation, method: str | None, arguments: Mapping[str, Any]) -> Problem:
    """422 `invalid_request` for arguments that do not match the tool's signature; a `method` of None means MCP."""
    return invalid_request(field_errors(error, operation, method, arguments), known=operation.accepted_names(method))


def field_errors(error: ValidationError, operation: Operation, method: str | None, arguments: Mapping[str, Any]) -> list[FieldError]:
    """Each error that pydantic found, at the place where the caller sent the value; of far too many only how many there are."""
    if error.error_count() > MOST_FOUND:
        return [too_many_errors(operation, method, f"{error.error_count():,}")]
    found = error.errors(include_url=False, include_context=False)
    return [_field_error(each, operation, method, arguments) for each in found]


def too_many_errors(operation: Operation, method: str | None, count: str) -> FieldError:
    """The one error for more than MOST_FOUND of them: a sentence for each of 250,000 would stop all other calls for seconds."""
    place, _ = operation.place_of("", method)
    return FieldError(
        pointer_to(place), "too_many_errors", f"has {count} values that do not match the tool's input schema; send a few of them to see why"
    )


class ToolEndedError(Exception):
    """A tool raised what would have ended more than its call, such as SystemExit: its call failed, and the server goes on."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the tool raised {type(error).__name__}")
        self.__cause__ = error


def ends_more_than_its_call(error: BaseException) -> bool:
    """True for what ends a task, a server or a process, unless it is the cancellation of this task that somebody asked for."""
    if isinstance(error, Exception | GeneratorExit):
        return False
    task = asyncio.current_task()
    is_cancelled = task is not None and task.cancelling() > 0
    return not (is_cancelled and isinstance(error, asyncio.CancelledError | BaseExceptionGroup))


def problem_of_failure(cause: BaseException | None, tool: Tool) -> Problem:
    """The problem for a failure that the tool did not raise on purpose. The text of its `cause` is for the log only.

    504 `timeout` when FastMCP stopped the tool at its timeout, 502 `upstream_failed` for a tool of another server, and
    500 `internal_error` otherwise.
    """
    if timeout := timeout_problem(cause, tool):
        return timeout
    if is_proxied(tool):
        return Problem(502, "upstream_failed", "the server behind this tool did not return a valid answer; try again later")
    return Problem(500, "internal_error", "the call failed on the server; the cause is in its log")


def timeout_problem(cause: BaseException | None, tool: Tool) -> Problem | None:
    """504 `timeout` when FastMCP stopped the tool at its timeout, which only the text of an mcp error shows; None otherwise."""
    is_timeout = isinstance(cause, MCPError) and "timed out" in cause.error.message
    return ToolTimeoutProblem(tool.timeout) if is_timeout and tool.timeout is not None else None


class ToolTimeoutProblem(Problem):
    """504 `timeout`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(504, "timeout", f"the tool did not answer within {seconds:g} seconds")
        self.seconds = seconds

    def as_raised_by_fastmcp(self, tool: str) -> MCPError:
        """The error that FastMCP raises at a tool's timeout, in its words."""
        return MCPError(code=-32000, message=f"Tool {tool!r} execution timed out after {self.seconds}s")


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
    """The steps of a location that exist in the value that was sent; pydantic adds names of union members between them."""
    for step in location:
        try:
            value = value[step]
        except (TypeError, LookupError):
            continue
        yield step


def _sentence(error: ErrorDetails) -> str:
    """The error in words; a validator's own words are left out if they repeat the value."""
    if error["type"] not in SAFE_KINDS and any(text in error["msg"] for text in _texts(error["input"])):
        return "is not valid"
    if error["type"] in IN_JSON:
        return IN_JSON[error["type"]]
    words = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return visible(SUBJECT.sub("", words))


def _texts(value: Any) -> Iterator[str]:
    """Every text and number within a value, as text."""
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif text := str(value):
        yield text
