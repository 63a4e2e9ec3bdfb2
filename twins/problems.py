"""Problem, the error that a caller receives: RFC 9457 over HTTP, an error result over MCP; and the errors of single arguments in it."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from fastmcp.exceptions import ToolError

MOST_ERRORS = 20
MOST_UNKNOWN = 100
LONGEST_NAME = 80
NOUNS = {"arguments": "argument", "body": "body member", "query": "query parameter", "path": "path parameter"}
WHOLES = {"arguments": "the arguments", "body": "the body", "query": "the query string", "path": "the path"}
PLAIN_NAME = re.compile(r"[\w.~-]+")
# How a message begins if it continues a sentence: "argument count" + "should be a valid integer".
CONTINUES = ("is ", "are ", "has ", "must ", "should ", "cannot ", "may ", "needs ")
CODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
PROBLEM_JSON = "application/problem+json"
NO_TYPE = "about:blank"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One argument that cannot be accepted.

    `pointer` is the JSON pointer to where it was sent: under /path, /query or /body over HTTP, under /arguments over MCP.
    `code` is stable, in snake_case; `detail` says what is wrong. None of them contains the value that was sent.
    """

    pointer: str
    code: str
    detail: str


def pointer_to(place: str, *parts: str | int) -> str:
    """A JSON pointer to what a caller sent. The caller chose the names, so they are shortened and lose control characters."""
    return "/".join(("", place, *(_shown(str(part)).replace("~", "~0").replace("/", "~1") for part in parts)))


def refuse_too_many(sent: int, taken: int) -> None:
    """Raises Problem 422 for far more arguments than a tool takes: an error for each of 80,000 would stop all other calls for seconds."""
    if sent > taken + MOST_UNKNOWN:
        raise Problem(422, "invalid_request", f"{sent:,} arguments were sent, and this tool takes {taken}; send only those that it takes")


def unknown_field(place: str, name: str, known: Iterable[str]) -> FieldError:
    names = ", ".join(known)
    end = f"the {NOUNS[place]}s are: {names}" if names else f"the tool takes no {NOUNS[place]}s"
    return FieldError(pointer_to(place, name), "unknown", f"is no {NOUNS[place]} of this tool; {end}")


def sentence_of(errors: Sequence[FieldError], known: Mapping[str, Sequence[str]], *, more: int = 0) -> str:
    """All errors in one sentence that names each argument once; `known` has the accepted names at each place.

    Example: "argument cve_id is required; there is no argument cve".
    """
    details: dict[str, list[str]] = {}
    unknown: list[str] = []
    for error in errors:
        if error.code == "unknown" and _place_of(error.pointer) in known:
            unknown.append(error.pointer)
        elif error.detail not in details.setdefault(error.pointer, []):
            details[error.pointer].append(error.detail)
    clauses = [_clause(pointer, found) for pointer, found in details.items()]
    clauses += [f"there is no {subject_of(pointer)}" for pointer in unknown]
    if more:
        clauses.append(f"and {more} more")
    own_words = {pointer_to(place, name) for place, names in known.items() for name in names if _is_in(name, details.get("", ()))}
    return "; ".join([*clauses, *_others(unknown, known, named={*details, *unknown, *own_words})])


def subject_of(pointer: str) -> str:
    """The target of a pointer in words: "argument point.x", "query parameter s", "the body"."""
    _, place, *parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")] if pointer else ["", ""]
    if place not in NOUNS:
        return pointer
    if not parts:
        return WHOLES[place]
    first, *rest = parts
    return f"{NOUNS[place]} {_quoted(first)}" + "".join(f"[{part}]" if part.isdecimal() else f".{_quoted(part)}" for part in rest)


def _clause(pointer: str, details: Sequence[str]) -> str:
    subject = subject_of(pointer)
    predicate = ", or ".join(details)
    if not subject:
        return predicate
    return f"{subject} {predicate}" if predicate.startswith(CONTINUES) else f"{subject}: {predicate}"


def _others(unknown: Iterable[str], known: Mapping[str, Sequence[str]], *, named: Iterable[str]) -> list[str]:
    taken = {"/".join(pointer.split("/")[:3]) for pointer in named}
    clauses = []
    for place in dict.fromkeys(map(_place_of, unknown)):
        left = [name for name in known[place] if pointer_to(place, name) not in taken]
        others = "other " if len(left) < len(known[place]) else ""
        listed = ", ".join(left[:MOST_ERRORS]) + (f" and {len(left) - MOST_ERRORS} more" if len(left) > MOST_ERRORS else "")
        if left:
            clauses.append(f"the {others}{NOUNS[place]}s are: {listed}")
        elif not known[place]:
            clauses.append(f"the tool takes no {NOUNS[place]}s")
    return clauses


def _is_in(name: str, texts: Iterable[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts)


def _place_of(pointer: str) -> str:
    return pointer.split("/")[1] if pointer else ""


def _shown(name: str) -> str:
    return visible(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…")


def visible(text: str) -> str:
    """The text with a replacement character for each one that is not printable, such as a control character."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f'"{name}"'


class Problem(ToolError):  # RFC 9457's word
    """An error that a tool, a validator or a gate raises on purpose: a status and a body over HTTP, a sentence over MCP.

    `code` is stable, in snake_case. `detail` is one sentence for the caller. `more` are further members of the body.
    The headers are sent over HTTP only. Raises ValueError for a status that is no error's, for a code that no address can hold,
    and for a header with a line break or a character beyond latin-1.
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
        if not is_refusal(status, code):
            raise ValueError(f"Problem({status!r}, {code!r}, …) needs a status from 400 to 599, then a code such as no_city")
        for name, value in (headers or {}).items():
            if not HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the header {name} of Problem({code!r}) has a line break or a character beyond latin-1")
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


def is_refusal(status: object, code: object) -> bool:
    """True for the status and the code of a problem: an address that explains the code ends with it."""
    return type(status) is int and 400 <= status <= 599 and isinstance(code, str) and CODE.fullmatch(code) is not None


@lru_cache(maxsize=128)
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


def input_required(
    requests: Mapping[str, Mapping[str, Any]],
    *,
    how: str = "call it over MCP with a client that answers questions (elicitation), and not as a background task",
) -> Problem:
    """409 `input_required` for a tool that asks its caller first; `requests` are what it asks for, by name, as MCP sends them."""
    asked = [str(each.get("params", {}).get("message", "")) for each in requests.values()]
    question = f": {' '.join(filter(None, asked))}" if any(asked) else ""
    detail = f"this tool asks its caller first{question}; {how}; input_requests has what it asks for"
    return Problem(409, "input_required", detail, input_requests=dict(requests))


def internal_error() -> Problem:
    """500 for what nobody foresaw; the cause is for the log alone."""
    return Problem(500, "internal_error", "the call failed on the server; the cause is in its log")


def problem_schema() -> dict[str, Any]:
    """The schema of a problem's body, without what its `more` adds."""
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
            "input_requests": {"type": "object", "description": "What the tool asks its caller for, by name, as MCP sends it."},
        },
    }
