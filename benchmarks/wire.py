"""HTTP and MCP requests as bytes, and the result in an MCP answer's bytes."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def get(path: str, *, port: int, key: str | None = None, request_id: str | None = None, accept: str = "application/json") -> bytes:
    """A GET as a client library would send it; with a `request_id`, a refusal, which repeats it, is the same each time."""
    named = {"X-Request-Id": request_id} if request_id else {}
    return _request("GET", path, port=port, key=key, headers={"Accept": accept, **named})


def mcp_request(
    path: str,
    method: str,
    params: Mapping[str, Any],
    *,
    port: int,
    revision: str,
    key: str | None = None,
    session: str | None = None,
    number: int = 1,
) -> bytes:
    """A request over MCP's streamable HTTP, in the form of a protocol revision; `number` is its id."""
    params = dict(params)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "MCP-Protocol-Version": revision}
    if revision == MODERN:
        params["_meta"] = ENVELOPE
        headers |= {"Mcp-Method": method} | ({"Mcp-Name": params["name"]} if "name" in params else {})
    if session:
        headers["Mcp-Session-Id"] = session
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, separators=(",", ":")).encode()
    return _request("POST", path, port=port, key=key, headers=headers, body=body)


def open_session(path: str, *, port: int) -> str:
    """The id of a new session of a server that keeps them."""
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "benchmarks", "version": "1"}}
    connection.request("POST", path, json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": asked}), headers)
    answer = connection.getresponse()
    answer.read()
    session = answer.headers["Mcp-Session-Id"]
    connection.request("POST", path, '{"jsonrpc":"2.0","method":"notifications/initialized"}', {**headers, "Mcp-Session-Id": session})
    connection.getresponse().read()
    connection.close()
    return session


def _request(method: str, path: str, *, port: int, key: str | None, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "User-Agent: benchmarks"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def tool_names_of(body: bytes) -> Any:
    """The names of the tools in a JSON-RPC message that lists them."""
    text = next((line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")), body)
    return [tool["name"] for tool in json.loads(text)["result"]["tools"]]


def result_of(body: bytes) -> Any:
    """A tool's result in a JSON-RPC message, sent as JSON or as one server-sent event. Raises ValueError for a failure."""
    text = next((line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")), body)
    result = json.loads(text).get("result", {})
    if result.get("isError") or "structuredContent" not in result:
        raise ValueError(f"a tool call failed: {text[:300]!r}")
    return result["structuredContent"]
