"""Problems: what a caller is told when a call cannot be answered (RFC 9457 over HTTP, an error result over MCP)."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from fastmcp.exceptions import ToolError

PROBLEM_JSON = "application/problem+json"
NO_TYPE = "about:blank"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One argument that cannot be taken.

    `pointer` is where it was sent, as a JSON pointer under /path, /query or /body; `code` is stable, in
    snake_case; `detail` is one sentence. None of them repeats the value that was sent.
    """

    pointer: str
    code: str
    detail: str


class Problem(ToolError):  # RFC 9457's word
    """A refusal, raised by a tool, a validator or a gate: its status and body over HTTP, its sentence over MCP.

    `code` is stable, in snake_case; `detail` one sentence for the caller; `more` further members of the body.
    Headers go out over HTTP only.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError | Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        # A refusal is an answer, not a fault of the server: FastMCP shall not log it as an error.
        super().__init__(detail, log_level=logging.DEBUG)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(asdict(error) if isinstance(error, FieldError) else dict(error) for error in errors)
        self.headers = dict(headers or {})
        self.more = more

    def body(self, types: str = NO_TYPE, *, request_id: str | None = None) -> dict[str, Any]:
        """The problem as RFC 9457 has it; `types` is the address under which each code is explained, with a slash at its end."""
        body: dict[str, Any] = {
            "type": types if types == NO_TYPE else types + self.code,
            "title": title_of(self.status),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if request_id is not None:
            body["request_id"] = request_id
        if self.errors:
            body["errors"] = list(self.errors)
        return body | self.more


def title_of(status: int) -> str:
    """The status in words; an unregistered one is named after its class, as RFC 9110 treats it."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return HTTPStatus(status // 100 * 100).phrase


def invalid_request(errors: Iterable[FieldError]) -> Problem:
    """422: one or more arguments cannot be taken."""
    found = tuple(errors)
    detail = f"{found[0].pointer}: {found[0].detail}" if len(found) == 1 else f"{len(found)} fields are not valid; errors names each"
    return Problem(422, "invalid_request", detail, errors=found)


def problem_schema() -> dict[str, Any]:
    """The JSON schema of `Problem.body`."""
    text = {"type": "string"}
    error = {
        "type": "object",
        "required": ["pointer", "code", "detail"],
        "properties": {
            "pointer": text | {"description": "Where the value was sent: a JSON pointer under /path, /query or /body."},
            "code": text | {"description": "What is wrong with it, in a word that does not change."},
            "detail": text | {"description": "What is wrong with it, in a sentence."},
        },
    }
    return {
        "type": "object",
        "description": "Why the call was not answered (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": text | {"format": "uri-reference", "description": "The address where the code is explained."},
            "title": text | {"description": "The status in words."},
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": text | {"description": "What is wrong and what to do, in a sentence."},
            "code": text | {"description": "What is wrong, in a word that does not change."},
            "request_id": text | {"description": "Names this request in the server's log."},
            "errors": {"type": "array", "items": error, "description": "Each argument that cannot be taken."},
        },
    }
