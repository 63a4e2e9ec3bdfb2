"""From errors to problems: arguments that pydantic rejects, named without their values; and whose fault the failure of a tool was."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import httpx2
from fastmcp.exceptions import AuthorizationError, NotFoundError, ToolError
from fastmcp.exceptions import ValidationError as FastMCPValidationError
from fastmcp.tools import FunctionTool, Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.exceptions import get_http_status_code, is_request_error, is_timeout_error
from mcp import MCPError
from mcp_types import TextContent
from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json
from pydantic_core.core_schema import ErrorType
from starlette.types import Scope

from twins.fastmcp import AS_TOOLS, OPENAPI, PROXY, came_through, is_crash, is_proxied
from twins.problems import FieldError, Problem, internal_error, invalid_request, is_refusal, pointer_to, unknown_field, visible
from twins.tool.operation import Operation

# Messages of these kinds are written by pydantic and contain no value; all others may quote what was sent.
SAFE_KINDS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error", "union_tag_invalid"}
CODES = {"missing_argument": "missing", "missing_keyword_only_argument": "missing", "value_error": "invalid", "assertion_error": "invalid"}
MOST_FOUND = 5_000  # Errors in the arguments of one call that are looked at one by one.
SUBJECT = re.compile(r"^[A-Z]\w*(?: input| items)? (?=should )")
# Messages in which pydantic names Python's types, and the words for JSON instead.
IN_JSON = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"), "should be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "should be a list"),
    "none_required": "should be null",
}
OWN_MEMBERS = ("type", "title", "request_id", "headers")  # Members of a problem that each frame makes itself.
INVALID_ARGUMENTS = re.compile(r"(Error executing tool \S+: )?\d+ validation errors? for |Input validation error|MCP error -32602")
"""How servers of FastMCP, the Python SDK and the TypeScript SDK begin the text of an error for invalid arguments."""
SERVICES_OWN = (401, 402, 407)
"""What an API answers to whom it does not let in: that is the service, whose caller can do nothing about it."""
LONGEST_WORDS = 500  # Characters of what an API says why it refuses a call.
SHORTEST_SECRET = 6  # Characters that the value of a header has at least where it may be a secret.
PLAIN_HEADERS = frozenset(("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"))
"""The names of headers whose value is no secret."""
IN_WORDS = ("detail", "message", "error_description", "error", "title")
"""Members of an API's errors that say in words what is wrong, the most telling first."""

logger = logging.getLogger(__name__)


def log_failure(error: BaseException, operation: Operation, scope: Scope) -> None:
    logger.error("a tool failed", exc_info=error, extra=_about(operation, scope))


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


def problem_of(error: Exception, operation: Operation, scope: Scope, *, is_logged: bool = False) -> Problem:
    """The problem for whatever a call raised. Whose fault it was is decided here, for both frames and for every source of tools.

    The caller's fault is a 4xx with words: arguments that do not fit, a refusal of the tool, of its server (`problem_of_result`) or
    of its API. That of another server or API is 502 `upstream_failed`, or 504 `timeout` if it is late. What an author's code raises
    is 500 `internal_error`, and its text is for the log alone, unless it `is_logged` already.
    """
    tool = operation.tool
    match error:
        case Problem():
            return error
        case AuthorizationError():
            return forbidden()
        case FastMCPValidationError() if error.__cause__ is None:  # those of arguments, which have one, are named before
            return Problem(422, "invalid_request", str(error))
        case ToolError() if not is_crash(error):
            return Problem(400, "tool_error", str(error))
    cause = error.__cause__ if isinstance(error, ToolError) and error.__cause__ is not None else error
    if isinstance(cause, NotFoundError) and came_through(cause, *AS_TOOLS):
        return Problem(404, "not_found", str(cause))
    problem = timeout_problem(cause, tool) or problem_of_upstream(cause)
    if problem is None and (is_proxied(tool) or came_through(cause, PROXY)):
        problem = upstream_failed()
    if problem is None:
        if not is_logged:
            log_failure(cause, operation, scope)
        return internal_error()
    if problem.status >= 500 and not is_logged:
        reason = f"{type(cause).__name__}: {str(cause)[:300]}"
        logger.warning("the server behind a tool failed", extra=_about(operation, scope) | {"status": problem.status, "reason": reason})
    return problem


def problem_of_upstream(error: BaseException) -> Problem | None:
    """The problem for an error of an API behind the tool; None if it is an author's.

    A tool that FastMCP made of an API (`from_openapi`) has no code of an author: what it raises is the API's answer or its silence.
    From any other tool an HTTP error is as much a fault of the author as each other exception: only he knows what he asked for, and
    whose word that was. Two exceptions are FastMCP's own, which names the upstream for them to every caller: late answers, and 429.
    """
    if not came_through(error, OPENAPI):
        if get_http_status_code(error) == 429:
            return Problem(503, "upstream_unavailable", "the API behind this tool takes no more calls at the moment; try again later")
        return upstream_late() if is_timeout_error(error) else None
    inner = error.__cause__ if type(error) is ValueError and error.__cause__ is not None else error  # as FastMCP wraps some
    if get_http_status_code(inner) is not None:
        return problem_of_status(inner.response)  # type: ignore[attr-defined]  # of httpx2 or httpx, which are alike
    if is_timeout_error(inner):
        return upstream_late()
    if is_request_error(inner) or isinstance(inner, httpx2.StreamError | UnicodeDecodeError):
        return upstream_failed()
    if inner is not error and isinstance(inner, ValueError | httpx2.InvalidURL):  # FastMCP could make no request of the arguments
        words = f": {visible(str(inner))[:LONGEST_WORDS]}" if isinstance(inner, ValueError) else ""
        return Problem(422, "invalid_request", f"the API behind this tool cannot be asked with these arguments{words}")
    return None


def problem_of_status(response: httpx2.Response) -> Problem:
    """The problem for an API's answer that is no success: a 4xx stays what it is, with the API's words."""
    status = response.status_code
    if 300 <= status <= 399:
        detail = f"the API behind this tool answered {status}, a redirect to another address, which is not followed"
        return Problem(502, "upstream_failed", f"{detail}; the operator of this service can correct the address")
    if status in SERVICES_OWN:
        return Problem(502, "upstream_failed", f"the API behind this tool does not let this service in ({status}); its operator has to act")
    if status == 408:
        return upstream_late()
    if not 400 <= status <= 499:
        return Problem(502, "upstream_failed", f"the API behind this tool failed ({status}); try again later")
    again = response.headers.get("retry-after", "")
    headers = {"Retry-After": again} if again.isascii() and again.isdecimal() and len(again) < 8 else {}
    words = words_of(response)
    said = f"{status} {response.reason_phrase}".strip()
    return Problem(status, "upstream_refused", f"the API behind this tool answered {said}{f': {words}' if words else ''}", headers=headers)


def words_of(response: httpx2.Response) -> str:
    """What an API says in an error, in at most LONGEST_WORDS characters; nothing of a page, and no header that was sent to it."""
    text = response.text.strip()
    if "html" in response.headers.get("content-type", "") or text.startswith("<"):
        return ""
    try:
        body = from_json(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        text = next((body[name] for name in IN_WORDS if isinstance(body.get(name), str) and body[name]), text)
    sent = [value for name, value in response.request.headers.items() if name not in PLAIN_HEADERS]
    for secret in [*sent, *(value.rpartition(" ")[2] for value in sent)]:  # also without `Bearer` before it
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "(hidden)")
    words = visible(" ".join(text.split()))
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…"


def problem_of_result(result: ToolResult, tool: Tool) -> Problem:
    """The problem of a result that is an error: the one that it contains, else 400 `tool_error` with its words.

    Of another server's result, 422 where it says that the arguments are not valid. The server is up, and this is its answer: also where
    its words say no more than that the tool failed.
    """
    match result.structured_content:
        case {"status": int(status), "code": str(code), "detail": str(detail), **more} if is_refusal(status, code):
            members: dict[str, Any] = {str(name): value for name, value in more.items() if name not in OWN_MEMBERS}
            return Problem(status, code, detail, **members)
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent)).strip()
    if not isinstance(tool, FunctionTool) and INVALID_ARGUMENTS.match(text):
        return Problem(422, "invalid_request", f"the arguments do not match the tool's input schema: {text}")
    return Problem(400, "tool_error", text or "the tool could not answer")


def forbidden() -> Problem:
    """403 for a tool whose own `auth=`, or whose server, refuses the caller."""
    return Problem(403, "forbidden", "this caller may not use the tool")


def upstream_failed(how: str = "") -> Problem:
    """502: what the server or API behind the tool answers is of no use to the caller, or it does not answer at all.

    An error's words are for the log: they may be of a transport, with addresses.
    """
    return Problem(502, "upstream_failed", f"the server behind this tool did not return a valid answer{how}; try again later")


def upstream_too_long() -> Problem:
    """502: it sent more than is accepted of it."""
    return Problem(502, "upstream_failed", "the server behind this tool sent a longer answer than is accepted here; ask for less")


def upstream_late() -> Problem:
    """504: the server or API behind the tool took longer than it may."""
    return Problem(504, "timeout", "the server behind this tool did not answer in time")


def timeout_problem(cause: BaseException | None, tool: Tool) -> Problem | None:
    """504 `timeout` when FastMCP stopped the tool at its timeout, which only the text of an mcp error shows; None otherwise."""
    is_timeout = isinstance(cause, MCPError) and "timed out" in cause.error.message
    return ToolTimeoutProblem(tool.timeout) if is_timeout and tool.timeout is not None else None


class ToolTimeoutProblem(Problem):
    def __init__(self, seconds: float) -> None:
        super().__init__(504, "timeout", f"the tool did not answer within {seconds:g} seconds")
        self.seconds = seconds

    def as_raised_by_fastmcp(self, tool: str) -> MCPError:
        return MCPError(code=-32000, message=f"Tool {tool!r} execution timed out after {self.seconds}s")


def _about(operation: Operation, scope: Scope) -> dict[str, Any]:
    return {"tool": operation.name, "server": operation.server, "path": operation.path, "request_id": scope.get("request_id")}


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
    words = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").replace(" after validation,", ",")
    return visible(SUBJECT.sub("", words))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif text := str(value):
        yield text
