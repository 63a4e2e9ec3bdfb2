"""Which MCP requests are answered directly: their headers, JSON and envelope, read more strictly than a server's own app reads them.

Nothing here says what is wrong with a request. Whatever is unusual or means more than a plain call raises ServerAnswers, and
the server's own app reads it: protocol errors are always the server's own.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import mcp_types
import orjson
import pydantic
from mcp.server.streamable_http import check_accept_headers
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from starlette.requests import Request
from starlette.types import Scope

from twins.http.json_reader import LONG_NUMBER, SHAPES

MODERN = "2026-07-28"
WITHOUT_HEADER = "2025-03-26"  # The version of a request without MCP-Protocol-Version.
VERSIONS = {version.encode(): version for version in (*HANDSHAKE_PROTOCOL_VERSIONS, MODERN)}
LARGEST_BODY = 1 << 20
DEEPEST = 100
"""Opening brackets in a body, which bounds its nesting; some of the readers behind fail at other depths than orjson."""
LONGEST_HEADER = 200  # Bytes of a Content-Type and an Accept header whose meaning is remembered.
MOST_ENVELOPES, LONGEST_ENVELOPE = 1024, 1024  # How many accepted envelopes are remembered, and the bytes of the longest.
RESERVED = "io.modelcontextprotocol/"
VERSION_KEY = f"{RESERVED}protocolVersion"
ENVELOPE = (f"{RESERVED}clientCapabilities", f"{RESERVED}clientInfo", f"{RESERVED}logLevel")
ENVELOPE_KEYS = frozenset((*ENVELOPE, VERSION_KEY, "progressToken"))
ABSENT = orjson.Fragment(b"absent")  # Stands for a key that is left out, among remembered values: no JSON value is written so.
NOT_PLAIN = ("io.modelcontextprotocol", "io_modelcontextprotocol", "progress_token", "fastmcp", "_fastmcp")
"""Keys of `_meta` that begin so are for the protocol or for FastMCP. All others are the client's own, and mean nothing here."""
MESSAGE_MEMBERS = frozenset(("jsonrpc", "id", "method", "params"))
CALL_MEMBERS = frozenset(("name", "arguments", "_meta"))
INITIALIZE_MEMBERS = frozenset(("protocolVersion", "capabilities", "clientInfo"))
METHODS = {
    MODERN: {name: name.encode() for name in ("tools/call", "tools/list", "server/discover")},
    "": {name: name.encode() for name in ("tools/call", "tools/list", "ping", "initialize")},
}
"""The methods that can be answered directly, in the current version and in those before it, with the bytes of Mcp-Method."""


class ServerAnswers(Exception):
    """The server's own app has to read and answer a request; the text is the reason."""


class McpRequest(NamedTuple):
    """A request that is understood: a JSON-RPC message with the protocol version that its headers name."""

    version: str
    id: int | str
    method: str
    params: dict[str, Any]
    meta: dict[str, Any]  # The request's `_meta`.
    is_modern: bool  # True for the version without handshake and sessions.


class RequestReader:
    def __init__(self) -> None:
        self._envelopes: set[bytes] = set()

    def headers(self, scope: Scope) -> tuple[dict[bytes, bytes], str]:
        """The headers of a request whose body may be read, and the protocol version that they name. Raises ServerAnswers."""
        given = scope["headers"]
        headers: dict[bytes, bytes] = dict(given)
        length = headers.get(b"content-length", b"")
        if scope["method"] != "POST":
            raise ServerAnswers("the method is not POST")
        if len(headers) != len(given):
            raise ServerAnswers("a header is sent twice")
        if not length.isdigit() or len(length) > 7 or int(length) > LARGEST_BODY or b"transfer-encoding" in headers:
            raise ServerAnswers("the length of the body is unknown, or over 1 MiB")
        version = _version_of(headers.get(b"content-type", b""), headers.get(b"accept", b""), headers.get(b"mcp-protocol-version"))
        return headers, version

    def message(self, body: bytes, headers: Mapping[bytes, bytes], version: str) -> McpRequest:
        """The request in this body. Raises ServerAnswers."""
        data = read_object(body)
        method = data["method"]
        params = data.get("params", {})
        is_modern = version == MODERN
        routed = METHODS[MODERN if is_modern else ""].get(method)
        if routed is None:
            raise ServerAnswers("the method is not one that is answered directly")
        if type(params) is not dict:
            raise ServerAnswers("params is not an object")
        if is_modern and headers.get(b"mcp-method") != routed:
            raise ServerAnswers("the header Mcp-Method is not the method")
        message = McpRequest(version, data["id"], method, params, params.get("_meta") or {}, is_modern)
        if method == "initialize":
            _check_initialize(message)
        else:
            self._check_meta(message)
            if method != "tools/call" and not params.keys() <= {"_meta"}:
                raise ServerAnswers("the request has parameters")
        return message

    def _check_meta(self, message: McpRequest) -> None:
        """Raises ServerAnswers unless `_meta` is valid and asks for nothing but progress and a log level."""
        meta = message.params.get("_meta")
        if meta is None and not message.is_modern:
            return
        if type(meta) is not dict:
            raise ServerAnswers("_meta is not an object")
        allowed = ENVELOPE_KEYS if message.is_modern else ("progressToken",)
        for key in meta:
            if key not in allowed and key.startswith(NOT_PLAIN):
                raise ServerAnswers("_meta has a key of the protocol or of FastMCP")
        if "progressToken" in meta and type(meta["progressToken"]) not in (int, str):
            raise ServerAnswers("the progress token is no integer or text")
        if message.is_modern:
            self._check_envelope(meta)

    def _check_envelope(self, meta: dict[str, Any]) -> None:
        if meta.get(VERSION_KEY) != MODERN:
            raise ServerAnswers("the envelope names another version than the header")
        known = orjson.dumps([meta.get(key, ABSENT) for key in ENVELOPE])
        if known in self._envelopes:
            return
        try:
            validate_client_request("tools/list", MODERN, {"_meta": meta})
            mcp_types.PaginatedRequestParams.model_validate({"_meta": meta}, by_name=False)
        except pydantic.ValidationError:
            raise ServerAnswers("the envelope is not valid") from None
        if len(known) <= LONGEST_ENVELOPE:
            if len(self._envelopes) >= MOST_ENVELOPES:
                self._envelopes.clear()
            self._envelopes.add(known)


def read_object(body: bytes) -> dict[str, Any]:
    """The members of a JSON-RPC request, from JSON that every reader understands alike. Raises ServerAnswers for anything else."""
    if b"\\u0000" in body or LONG_NUMBER in body.translate(SHAPES) or body.count(b"[") + body.count(b"{") > DEEPEST:
        raise ServerAnswers("the JSON has a NUL, a long number or deep nesting")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ServerAnswers("the body is not strict JSON") from None
    if type(data) is not dict or data.get("jsonrpc") != "2.0" or not data.keys() <= MESSAGE_MEMBERS:
        raise ServerAnswers("the body is not a plain JSON-RPC message")
    if type(data.get("id")) not in (int, str) or type(data.get("method")) is not str:
        raise ServerAnswers("the message is not a request with an integer or a text as its id")
    return data


def called_tool(message: McpRequest, headers: Mapping[bytes, bytes]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a `tools/call`. Raises ServerAnswers."""
    params = message.params
    name = params.get("name")
    arguments = params.get("arguments")
    if not params.keys() <= CALL_MEMBERS or type(name) is not str or not (arguments is None or type(arguments) is dict):
        raise ServerAnswers("the call has parameters other than a name and arguments")
    # the protocol also allows names in base64
    if message.is_modern and (not name.isascii() or name.startswith("=?") or headers.get(b"mcp-name") != name.encode()):
        raise ServerAnswers("the header Mcp-Name is not the tool's name")
    return name, arguments or {}


def negotiated(message: McpRequest) -> str:
    asked: str = message.params["protocolVersion"]
    return asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


def _check_initialize(message: McpRequest) -> None:
    if not message.params.keys() <= INITIALIZE_MEMBERS:
        raise ServerAnswers("the request has unusual parameters")
    try:
        validate_client_request("initialize", message.version, message.params)
        mcp_types.InitializeRequestParams.model_validate(message.params, by_name=False)
    except pydantic.ValidationError:
        raise ServerAnswers("the parameters are not valid") from None


@lru_cache(maxsize=256)
def _version_of(content_type: bytes, accept: bytes, version: bytes | None) -> str:
    """The protocol version of a request with these headers. Raises ServerAnswers; what is returned is remembered for the next request."""
    if content_type != b"application/json" and not content_type.startswith(b"application/json;"):
        raise ServerAnswers("the Content-Type is not application/json")
    if max(len(content_type), len(accept)) > LONGEST_HEADER or not _accepts_both(accept):
        raise ServerAnswers("the Accept header does not name both JSON and event streams")
    named = WITHOUT_HEADER if version is None else VERSIONS.get(version)
    if named is None:
        raise ServerAnswers("the protocol version is not known")
    return named


def _accepts_both(accept: bytes) -> bool:
    return all(check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]})))
