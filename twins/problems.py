"""Problem, the error that a caller receives: RFC 9457 over HTTP, an error result over MCP."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastmcp.exceptions import ToolError

from twins.field_errors import MOST_ERRORS, FieldError, sentence_of

PROBLEM_JSON = "application/problem+json"
NO_TYPE = "about:blank"


class Problem(ToolError):  # RFC 9457's word
    """An error that a tool, a validator or a gate raises on purpose: a status and a body over HTTP, a sentence over MCP.

    `code` is stable, in snake_case. `detail` is one sentence for the caller. `more` are further members of the body.
    The headers are sent over HTTP only.
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
        # It is an answer, not a fault of the server: FastMCP must not log it as an error.
        super().__init__(detail, log_level=logging.DEBUG)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(asdict(error) if isinstance(error, FieldError) else dict(error) for error in errors)
        self.headers = dict(headers or {})
        self.more = more

    def body(self, types: str = NO_TYPE, *, request_id: str | None = None) -> dict[str, Any]:
        """The problem as an object of RFC 9457; `types` is the address under which codes are explained, with a slash at its end."""
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
    """The status in words; for an unregistered status those of its class, as in RFC 9110."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return HTTPStatus(status // 100 * 100).phrase


def invalid_request(errors: Iterable[FieldError], *, known: Mapping[str, Sequence[str]] | None = None) -> Problem:
    """422 `invalid_request`: its sentence names every argument that is wrong, and its `errors` are the first of them as data.

    `known` has the accepted names at each place, for errors about unknown names.
    """
    found = list(errors)
    kept = found[:MOST_ERRORS]
    return Problem(422, "invalid_request", sentence_of(kept, known or {}, more=len(found) - len(kept)), errors=kept)


def problem_schema() -> dict[str, Any]:
    """The JSON schema of `Problem.body`."""
    text = {"type": "string"}
    error = {
        "type": "object",
        "required": ["pointer", "code", "detail"],
        "properties": {
            "pointer": text | {"description": "JSON pointer to where the value was sent: under /path, /query, /body or /arguments (MCP)."},
            "code": text | {"description": "Stable code of what is wrong with it."},
            "detail": text | {"description": "What is wrong with it."},
        },
    }
    return {
        "type": "object",
        "description": "Why the call was not answered (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": text | {"format": "uri-reference", "description": "Address that explains the code."},
            "title": text | {"description": "The status in words."},
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": text | {"description": "What is wrong, and what to do."},
            "code": text | {"description": "Stable code of the error."},
            "request_id": text | {"description": "Id of this request in the server's log."},
            "errors": {"type": "array", "items": error, "description": "Each argument that cannot be accepted."},
        },
    }
