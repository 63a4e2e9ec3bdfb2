"""A tool's result over MCP as bytes: its structured content, and the same once more as text, as mcp would send them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastmcp import FastMCP
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp_types import InputRequiredResult, TextContent
from pydantic_core import PydanticSerializationError

from twins.fastmcp import has_wire_form, result_on_wire, server_stamp
from twins.mcp.messages import MODERN
from twins.tool.operation import Operation
from twins.tool.result_json import KeptLast, ResultWriter, json_of
from twins.tool.result_schema import InvalidResultProblem

WRAPPED: Mapping[str, Any] = {"fastmcp": {"wrap_result": True}}
"""The `_meta` that FastMCP adds to a result which it wrapped into an object."""

TOOL_NAMES = b'"toolNames"'
"""A member by which an interface names tools: FastMCP writes the names under which this server lists them."""


class AsksForInputError(Exception):
    """The tool asks its caller for input first, which only the server's own app can seal and send."""


class EncodedResult:
    """A result as the beginning of a JSON object, without the closing brace, and its `_meta`, which a gate may replace.

    `structured` is its structured content, which is in `members` too, as HTTP sends it.
    """

    __slots__ = ("members", "meta", "structured")

    def __init__(self, members: bytes, meta: Mapping[str, Any] | None, structured: bytes) -> None:
        self.members = members
        self.meta = meta
        self.structured = structured


class McpResultEncoder:
    """Writes the results of one operation, and keeps the bytes of the last one. What is no data becomes a ToolResult, as in FastMCP."""

    def __init__(self, operation: Operation, writer: ResultWriter, *, refuses: bool) -> None:
        """With `refuses`, what is not as published is a Problem; else FastMCP sends it, or refuses it in its own words."""
        self._refuses = refuses
        self._tool = operation.tool
        self._writer = writer
        self._kept = KeptLast(self._encode, is_plain=self._writer.is_plain)

    def encode(self, value: Any) -> EncodedResult | ToolResult:
        """The result for the return value of the tool's function. Raises as FastMCP's own conversion, or AsksForInputError."""
        made = self._kept.of(value)
        return EncodedResult(*made) if isinstance(made, tuple) else made

    def _encode(self, value: Any) -> tuple[bytes, Mapping[str, Any] | None, bytes] | ToolResult:
        writer = self._writer
        if writer.is_data(value):
            try:
                body = writer.write(value)
            except PydanticSerializationError:
                body = b""
            except InvalidResultProblem:
                if self._refuses:
                    raise
                body = b""
            if writer.wraps and body:
                # a text is sent as it is; an empty list and null have no content, but NaN, which becomes null, has
                text = body if body.startswith(b'"') else orjson.dumps(body.decode())
                is_empty = body == b"[]" or (body == b"null" and not isinstance(value, float))
                blocks = b"" if is_empty else b'{"type":"text","text":%b}' % text
                structured = b'{"result":%b}' % body
                return b'{"content":[%b],"structuredContent":%b,"isError":false' % (blocks, structured), WRAPPED, structured
            if body.startswith(b"{") and TOOL_NAMES not in body:
                return members_of(body, orjson.dumps(body.decode())), None, body
        elif isinstance(value, InputRequiredResult | InputRequiredToolResult):
            raise AsksForInputError
        result = self._tool.convert_result(value)
        if self._refuses:
            writer.contract.check_result(result)
        return result


def members_of(structured: bytes, text: bytes, *, is_error: bool = False) -> bytes:
    """A result of structured content and one text, both as JSON."""
    flag = b"true" if is_error else b"false"
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":%b' % (text, structured, flag)


class ResultFinisher:
    """Completes results for one server: `_meta`, and what the protocol's current version adds."""

    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = server
        self._stamp = server_stamp(server)
        self._modern_end = b',"resultType":"complete","_meta":%b}' % orjson.dumps(self._stamp)

    async def finish(self, result: EncodedResult | ToolResult, version: str) -> Sequence[bytes]:
        """The whole result object for this version of the protocol, in parts."""
        members = result.members if isinstance(result, EncodedResult) else plain_members(result)
        meta = result.meta
        if members is None:
            assert isinstance(result, ToolResult)
            return (await self._converted(result, version),)
        if version != MODERN:
            return (members, b',"_meta":', json_of(meta), b"}") if meta is not None else (members, b"}")
        if not meta:
            return members, self._modern_end
        return members, b',"resultType":"complete","_meta":', json_of({**meta, **self._stamp}), b"}"

    async def _converted(self, result: ToolResult, version: str) -> bytes:
        dumped = await result_on_wire(self._server, result, version)
        if version == MODERN:
            dumped["_meta"] = {**self._stamp, **(dumped.get("_meta") or {})}
        return json_of(dumped)


def plain_members(result: ToolResult) -> bytes | None:
    """The members of a refusal: an error with one text and structured content. None for any other result, which mcp's models write."""
    match result:
        case ToolResult(content=[TextContent(annotations=None, meta=None) as block], structured_content=dict(body), is_error=True):
            return None if has_wire_form(result) else members_of(json_of(body), json_of(block.text), is_error=True)
    return None
