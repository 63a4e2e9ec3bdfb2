"""Answers over HTTP: those of a tool's results, and of problems; their headers, ETags, 304 and other formats; and how one is sent."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from fastmcp.tools import FunctionTool, Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, TextContent
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json
from starlette.types import Scope, Send

from twins.problems import NO_TYPE, PROBLEM_JSON, Problem, input_required
from twins.tool.direct_call import RequestDependency
from twins.tool.errors import problem_of_result
from twins.tool.operation import Operation
from twins.tool.results import FINISHED, KeptLast, ResultWriter, json_of

RawHeaders = tuple[tuple[bytes, bytes], ...]
JSON_HEADER = (b"content-type", b"application/json")
PRIVATE = (b"cache-control", b"private, no-store")
LONGEST_CONDITION = 4_096  # How many bytes of an If-None-Match are read: some sixty ETags.
CONTENT_MEMBER = "_content"
"""The member for links, images and the like that a tool returns beside structured content."""
AS_PYDANTIC = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # How texts begin that a spreadsheet runs.
JSON_RANGES = ("application/json", "application/*", "*/*")
VARY = (b"vary", b"Accept")
FORMAT_KEY = "twins.format"


class Answer(NamedTuple):
    """A finished response. `headers` are as in ASGI: lower-case names, latin-1. Content-Length is added when it is sent.

    It cannot be changed: `adding` and `_replace` return a new one.
    """

    status: int
    body: bytes
    headers: RawHeaders = ()

    def adding(self, headers: Mapping[str, str]) -> "Answer":
        """The same answer with more headers."""
        return self._replace(headers=(*self.headers, *raw_headers(headers)))


def raw_headers(headers: Mapping[str, str]) -> RawHeaders:
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())


def json_answer(body: bytes, *, status: int = 200, cache: str | None = None) -> Answer:
    """An answer of JSON bytes: with a strong ETag if it has a Cache-Control value; without one nobody may store it."""
    if cache is None:
        return Answer(status, body, (JSON_HEADER, PRIVATE))
    return Answer(status, body, (JSON_HEADER, (b"cache-control", cache.encode("latin-1")), (b"etag", etag_of(body).encode())))


def etag_of(body: bytes) -> str:
    """A strong entity tag for these bytes."""
    return f'"{hashlib.sha256(body).hexdigest()}"'


def or_not_modified(answer: Answer, scope: Scope) -> Answer:
    """The answer, or 304 if the request's If-None-Match contains its ETag."""
    if not (known := known_etags(scope)) or scope["method"] not in ("GET", "HEAD") or answer.status != 200:
        return answer
    etag = next((value for name, value in answer.headers if name == b"etag"), None)
    if etag is None or known.isdisjoint((etag, b"*")):
        return answer
    return Answer(304, b"", tuple(header for header in answer.headers if header[0] != b"content-type"))


def known_etags(scope: Scope) -> set[bytes]:
    """The ETags of the request's If-None-Match; of one that is longer than any cache writes, those at its beginning."""
    values = [value for name, value in scope["headers"] if name == b"if-none-match"]
    return {each.strip().removeprefix(b"W/") for each in b",".join(values)[:LONGEST_CONDITION].split(b",")} if values else set()


class ResultEncoder:
    def __init__(self, operation: Operation, writer: ResultWriter) -> None:
        self._operation = operation
        self._tool = operation.tool
        self._writer = writer
        self._kept = KeptLast(self._encode, is_plain=self._writer.is_plain)

    def encode(self, value: Any) -> Answer:
        """The answer for the return value of the tool's function. Raises Problem for a result that is an error."""
        return self._kept.of(value)

    def encode_server_result(self, result: ToolResult | BaseModel) -> Answer:
        """The answer for the result of the tool's server; a text that the server wrapped as content is unwrapped.

        A result that is not a tool's is that of an extension.
        """
        if not isinstance(result, (ToolResult, *FINISHED)):
            return self._json(result.model_dump_json(by_alias=True, exclude_none=True).encode())
        if not isinstance(result, ToolResult):
            return self._finished(result)
        untyped = isinstance(self._tool, FunctionTool) and not self._writer.typed and result.structured_content is None
        if untyped and not result.is_error and len(result.content) == 1 and isinstance(result.content[0], TextContent):
            return self._json(_wrapped(to_json(_json_or_text(result.content[0].text), inf_nan_mode="null")))
        return self._finished(result)

    def _encode(self, value: Any) -> Answer:
        writer = self._writer
        if isinstance(value, FINISHED):
            return self._finished(value, writer)
        if not writer.is_data(value):
            return self._finished(self._tool.convert_result(value), writer)
        try:
            body = writer.write(value)
        except PydanticSerializationError:
            return self._finished(self._tool.convert_result(value), writer)
        return self._json(_wrapped(body) if writer.wraps or not body.startswith(b"{") else body)

    def _finished(self, value: ToolResult | CallToolResult | InputRequiredResult, writer: ResultWriter | None = None) -> Answer:
        result = ToolResult.from_mcp_result(value) if isinstance(value, CallToolResult) else value
        if isinstance(result, InputRequiredToolResult | InputRequiredResult):
            asking = result.input_required if isinstance(result, InputRequiredToolResult) else result
            requests = asking.model_dump(mode="json", by_alias=True, exclude_none=True).get("inputRequests", {})
            raise input_required(requests)
        if result.is_error:
            raise problem_of_result(result, self._tool)
        if writer is not None:
            writer.contract.check_result(result)
        return self._json(body_of_result(result, wraps=self._operation.wraps_result))

    def _json(self, body: bytes) -> Answer:
        return json_answer(body, status=self._operation.status, cache=self._operation.cache)


def body_of_result(result: ToolResult, *, wraps: bool = False) -> bytes:
    """A result as one JSON object: its content blocks, as in MCP; or its structured content, and in `_content` what is no text.

    Texts beside structured content repeat it for models. With `wraps`, the structured content is the member `result`.
    """
    structured = {"result": result.structured_content} if wraps else result.structured_content
    if result.structured_content is None:
        return to_json({"content": _blocks(result.content)})
    content = _blocks(block for block in result.content if not isinstance(block, TextContent))
    return to_json({**structured, CONTENT_MEMBER: content} if content and structured else structured, inf_nan_mode="null")


def _blocks(content: Iterable[ContentBlock]) -> list[dict[str, Any]]:
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]


def _wrapped(body: bytes) -> bytes:
    return b'{"result":%b}' % body


def _json_or_text(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return text


def problem_answer(problem: Problem, *, types: str = NO_TYPE, request_id: str | None = None) -> Answer:
    """The answer for a problem."""
    headers = ((b"content-type", PROBLEM_JSON.encode()), (b"cache-control", b"no-store"), *raw_headers(problem.headers))
    body = json_of(problem.body(types, request_id=request_id), option=AS_PYDANTIC, fallback=str)
    return Answer(problem.status, body, headers)


@dataclass(frozen=True)
class Formats:
    """The other formats of one tool's answers, such as CSV: its result model, and the name of the method that writes each media type.

        class Tides(BaseModel):
            other_formats: ClassVar = {"text/csv": "as_csv"}

            def as_csv(self) -> str: ...

    JSON stays the format of every answer that the gate sees, that is stored and that MCP sends: another is written from it last.
    """

    model: type[BaseModel]
    writers: Mapping[str, str]

    def wanted(self, scope: Scope) -> str | None:
        """The media type that a request prefers; None for JSON."""
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        return preferred(accept, self.writers)

    def negotiated(self, answer: Answer, scope: Scope) -> Answer:
        if answer.status != 200 or JSON_HEADER not in answer.headers:
            return answer
        chosen = scope[FORMAT_KEY]
        headers = (*answer.headers, VARY)
        if chosen is None:
            return answer._replace(headers=headers)
        text: str = getattr(self.model.model_validate_json(answer.body), self.writers[chosen])()
        named = (b"content-type", f"{chosen}; charset=utf-8".encode())
        kept = (named if header == JSON_HEADER else header for header in headers if header[0] != b"etag")  # that is of the JSON
        return answer._replace(body=text.encode(), headers=tuple(kept))


class _CurrentFormat(RequestDependency[str]):
    scope_key = FORMAT_KEY

    def without_request(self) -> str:
        return "application/json"


def CurrentFormat() -> Any:
    """The default of a tool's parameter that holds the media type in which the answer will be sent, such as text/csv.

    For a tool whose result has other formats: what it leaves out of JSON for a reader's sake, it can put in there.
    """
    return _CurrentFormat()


def formats_of(tool: Tool) -> Formats | None:
    model: Any = tool.return_type
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    writers = getattr(model, "other_formats", None)
    return Formats(model, dict(writers)) if writers else None


def preferred(accept: str, available: Mapping[str, Any]) -> str | None:
    """The available media type that an Accept header prefers, the first of equals; None for JSON, also if nothing fits."""
    ranges = [part.strip().lower() for part in accept.split(",") if part.strip()]
    acceptable = [(quality, one.partition(";")[0].strip()) for one in ranges if (quality := _quality(one)) > 0]
    for _, media_range in sorted(acceptable, key=lambda pair: -pair[0]):
        if media_range in JSON_RANGES:
            return None
        if found := next((one for one in available if media_range in (one, f"{one.partition('/')[0]}/*")), None):
            return found
    return None


def _quality(media_range: str) -> float:
    for parameter in media_range.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def spreadsheet_text(text: str) -> str:
    """A text for CSV: with an apostrophe before it if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


async def send_answer(send: Send, answer: Answer, *, with_body: bool = True) -> None:
    """Send an answer. Without its body (for HEAD) the headers are the same."""
    headers = answer.headers
    if answer.status not in (204, 304):
        headers = (*headers, (b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if with_body else b""})
