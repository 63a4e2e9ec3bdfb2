"""The oracle for direct MCP answers: a corpus of requests, each sent to the direct endpoint and to the server's own app, and compared."""

import base64
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from patience import patience
from starlette.types import ASGIApp, Message

MODERN = "2026-07-28"
LEGACY = HANDSHAKE_PROTOCOL_VERSIONS[-1]
VERSIONS: tuple[str | None, ...] = (MODERN, *HANDSHAKE_PROTOCOL_VERSIONS, None)
"""Every version that mcp serves, and none: then the first that had a header is meant."""
P = "io.modelcontextprotocol/"
ENVELOPE: Mapping[str, Any] = {
    f"{P}protocolVersion": MODERN,
    f"{P}clientCapabilities": {},
    f"{P}clientInfo": {"name": "oracle", "version": "1"},
}
BOTH = "application/json, text/event-stream"
ANSWERED_BY = "x-mcp-answered-by"
SEAL = re.compile(r'("requestState": ")[^"]+')
WHAT_IS_WRONG = re.compile(r"(the tool's result is not what it publishes): [^\"]*")
"""What a test is told of a result that cannot be sent: FastMCP finds less of it, and names it otherwise."""
"""What mcp encrypts anew for each answer."""
ABSENT = object()
"""The value of a member that is left out."""


class Request(NamedTuple):
    """One HTTP request, and what is unusual about it."""

    what: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"


@dataclass(frozen=True)
class Answered:
    """An answer as a client sees it: the headers without those of framing, each JSON text in canonical form."""

    status: int
    headers: Mapping[str, str]
    texts: Sequence[str]
    way: str = ""
    """The header that says who answered; no part of the comparison."""


@dataclass
class Compared:
    """How many requests went each way, and what differed."""

    direct: int = 0
    by_server: int = 0
    differences: list[str] = field(default_factory=list)

    def note(self, request: Request, own: Answered, answered: Answered) -> None:
        if answered.way == "twins":
            self.direct += 1
        else:
            self.by_server += 1
        parts = {"status": (own.status, answered.status), "headers": (own.headers, answered.headers), "body": (own.texts, answered.texts)}
        for part, (one, other) in parts.items():
            if one != other:
                self.differences.append(f"{request.what} [{answered.way}]: {part} of the server's own app: {one}; answered: {other}")


async def compare(own: ASGIApp, direct: ASGIApp, path: str, requests: Iterable[Request]) -> Compared:
    compared = Compared()
    with silence():
        for request in requests:
            expected = await ask(own, path, request)
            compared.note(request, expected, first := await ask(direct, path, request))
            if "not known yet" in first.way:
                compared.note(request, expected, await ask(direct, path, request))
    return compared


@contextmanager
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def ask(app: ASGIApp, path: str, request: Request) -> Answered:
    given = {"host": "campus.test", "x-request-id": "oracle", "content-length": str(len(request.body)), **request.headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("campus.test", 80),
        "client": ("127.0.0.1", 5),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()],
    }
    sent: list[Message] = []
    waiting: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]
    done = anyio.Event()

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            done.set()

    with anyio.move_on_after(patience(20)):
        await app(scope, receive, send)
    return answered(sent)


def answered(sent: Sequence[Message]) -> Answered:
    """The answer in these ASGI messages."""
    if not sent:
        return Answered(0, {}, ())
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    way = headers.pop(ANSWERED_BY, "")
    for framing in ("content-length", "date", "transfer-encoding"):
        headers.pop(framing, None)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answered(sent[0]["status"], headers, texts_of(body, is_stream="event-stream" in headers.get("content-type", "")), way)


def texts_of(body: bytes, *, is_stream: bool) -> list[str]:
    parts = [body]
    if is_stream:
        parts = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
    try:
        return [WHAT_IS_WRONG.sub(r"\1", SEAL.sub(r"\1(sealed)", json.dumps(json.loads(part), sort_keys=True))) for part in parts]
    except ValueError:
        return [body.decode("latin-1")]


def request_of(
    what: str,
    version: str | None,
    method: Any,
    params: Any = ABSENT,
    *,
    id: Any = 1,
    meta: Any = ABSENT,
    headers: Mapping[str, str | None] | None = None,
    raw: bytes | None = None,
    **members: Any,
) -> Request:
    said: dict[str, str | None] = {"accept": BOTH, "content-type": "application/json", "mcp-protocol-version": version}
    params = dict(params) if isinstance(params, Mapping) else params
    if isinstance(params, dict):
        if version == MODERN:
            params.setdefault("_meta", dict(ENVELOPE) | ({} if meta is ABSENT else meta))
        elif meta is not ABSENT:
            params["_meta"] = meta
    if version == MODERN:
        said["mcp-method"] = method if isinstance(method, str) else None
        named = params.get("uri" if method == "resources/read" else "name") if isinstance(params, dict) else None
        said["mcp-name"] = named if isinstance(named, str) else None
    said |= headers or {}
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params} | members
    data = json.dumps({name: value for name, value in body.items() if value is not ABSENT}).encode() if raw is None else raw
    return Request(f"{version} {what}", {name: value for name, value in said.items() if value is not None}, data)


def calls(
    tools: Iterable[tuple[str, Any]], *, tokens: Mapping[str, str | None], versions: Sequence[str | None] = VERSIONS
) -> Iterator[Request]:
    for (caller, token), version, (name, arguments) in itertools.product(tokens.items(), versions, tools):
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        headers = {"authorization": f"Bearer {token}" if token else None}
        yield request_of(f"{caller} {name} {arguments}", version, "tools/call", params, headers=headers)


METAS: Sequence[Any] = (
    *({"odd": 1}, {"odd": None, "deep": {"a": [{}]}}, {"openai/locale": "de", "claudecode/toolUseId": "t1"}, {"": 1}, {"x402/payment": 5}),
    *({"progressToken": token} for token in (1, "a", 0, "", 1.5, None, [], True, {}, 2**70)),
    *({"progress_token": []}, {"io_modelcontextprotocol_protocol_version": 5}, {f"{P}unheard": 1}, {f"{P}related-task": {"taskId": "1"}}),
    {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    *({"fastmcp": {"version": "1"}}, {"fastmcp": {}}, {"_fastmcp": {"version": "9"}}, {"fastmcp": 5}),
    *({f"{P}logLevel": level} for level in ("debug", "odd", None, 0)),
    *(
        {f"{P}clientInfo": info}
        for info in (None, {}, 5, {"name": "x"}, {"name": "x", "version": 1}, {"name": "", "version": "", "y": [1]})
    ),
    *(
        {f"{P}clientCapabilities": value}
        for value in (None, [], 5, {"sampling": {}}, {"sampling": 5}, {"odd": 1}, {"extensions": {"a": {}}})
    ),
    *({f"{P}protocolVersion": value} for value in (LEGACY, "9", None, 5, [MODERN])),
    *({"x402/payment": {"a": 1}}, {"idempotency-key": "k" * 20}, {"idempotency-key": "4f1c7a54-8d4c-4d8c-9be6-2fbe6f4b6c11"}),
)
IDS: Sequence[Any] = (0, -1, "", "x", "ü", "a\u2028b", 1.0, 1.5, True, None, [], {}, 2**53, 2**63, 2**70, -(2**63), ABSENT, "1e9", "1" * 30)
METHODS = (
    *("tools/list", "ping", "server/discover", "resources/list", "resources/templates/list", "prompts/list", "tools/unknown", ""),
    *("logging/setLevel", "resources/read", "prompts/get", "completion/complete", "notifications/initialized", "Tools/Call", "initialize"),
)
INITIALIZE: Mapping[str, Any] = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "oracle", "version": "1"}}
HEADERS: Sequence[Mapping[str, str | None]] = (
    *(
        {"accept": value}
        for value in (None, "*/*", "application/json", "text/event-stream", "application/*;q=0.5, text/*", "", "text/html")
    ),
    *(
        {"accept": value}
        for value in ("Application/JSON, TEXT/event-stream", BOTH + "x", f"{'a/b,' * 80}{BOTH}", "application/json;text/event-stream")
    ),
    *(
        {"content-type": value}
        for value in (None, "text/plain", "application/json; charset=utf-8", "Application/JSON", "application/jsonx")
    ),
    *({"content-type": value} for value in ("application/json;charset=latin-1", "application/json,text/plain", " application/json")),
    *(
        {"content-encoding": "gzip"},
        {"mcp-session-id": "abc"},
        {"last-event-id": "1"},
        {"origin": "http://elsewhere.test"},
        {"cookie": "a=b"},
    ),
    *({"mcp-protocol-version": value} for value in ("2099-01-01", "", "2025-06-18", f"{LEGACY} ", MODERN, "2024-10-07")),
    *({"mcp-method": value} for value in (None, "tools/list", "Tools/Call", "tools/call")),
    *({"mcp-name": value} for value in (None, "other", "=?base64?!!?=", "=?base64?eA==?=")),
    *({"mcp-param-country": "US"}, {"authorization": "Basic x"}, {"authorization": "Bearer "}, {"authorization": "bearer campus_nonsense"}),
    *({"x-payment": "abc"}, {"payment-signature": "abc"}, {"idempotency-key": "k" * 20}, {"expect": "100-continue"}),
)
PARAMS: Sequence[Any] = (
    *(
        {"arguments": {}},
        {"name": 5},
        {"name": None},
        {"name": ["x"]},
        {"name": ""},
        {"name": "ü"},
        {"name": "x\u0000"},
        {"name": "\ud800"},
    ),
    *([], "x", None, 5, ABSENT, {}),
)
EXTRA: Sequence[Mapping[str, Any]] = (
    *({"odd": 1}, {"task": {"ttl": 5}}, {"task": 5}, {"inputResponses": {}}, {"inputResponses": 5}, {"requestState": "x"}),
    *({"requestState": None}, {"cursor": "x"}, {"arguments": None}, {"arguments": []}, {"arguments": "x"}, {"arguments": 5}),
)
ENVELOPES: Sequence[Mapping[str, Any]] = (
    *({"jsonrpc": "1.0"}, {"jsonrpc": 2.0}, {"jsonrpc": ABSENT}, {"odd": 1}, {"result": {}}, {"error": {"code": 1, "message": "x"}}),
    *({"method": ABSENT}, {"method": 5}, {"method": None}, {"method": ["tools/call"]}),
)


def unusual(
    tool: str, arguments: Mapping[str, Any], *, token: str | None = None, versions: Sequence[str | None] = (MODERN, LEGACY, None)
) -> Iterator[Request]:
    call = {"name": tool, "arguments": dict(arguments)}
    auth = {"authorization": f"Bearer {token}" if token else None}
    for version in versions:

        def changed(what: str, method: Any = "tools/call", params: Any = call, headers: Any = None, **more: Any) -> Request:
            return request_of(what, version, method, params, headers={**auth, **(headers or {})}, **more)  # noqa: B023 # used at once

        yield from (changed(f"id {value!r}"[:60], id=value) for value in IDS)
        for method, params in itertools.product(METHODS, ({}, {"cursor": "x"}, {"cursor": None}, {"odd": 1}, ABSENT, None, [], 5)):
            yield changed(f"{method} {params!r}", method, params)
        for name in ("initialized", "cancelled", "progress", "unknown"):
            yield changed(f"notification {name}", f"notifications/{name}", {"requestId": 1, "progressToken": 1, "progress": 1}, id=ABSENT)
        yield from (changed(f"initialize {params}", "initialize", params) for params in initializations())
        for meta in METAS:
            yield changed(f"_meta {meta}", meta=meta)
            yield changed(f"tools/list _meta {meta}", "tools/list", {}, meta=meta)
        yield from (changed(f"_meta is {value!r}", params=call | {"_meta": value}) for value in (None, 5, [], {}))
        yield from (changed(f"params {params!r}", params=params) for params in PARAMS)
        yield from (changed(f"params and {more}", params=call | dict(more)) for more in EXTRA)
        yield changed("another name", params=call | {"name": tool.upper()})
        yield from (changed(f"envelope {more}", **dict(more)) for more in ENVELOPES)
        for headers in (*HEADERS, {"mcp-name": f"=?base64?{base64.b64encode(tool.encode()).decode()}?="}):
            yield changed(f"headers {headers}", headers=headers)
            yield changed(f"tools/list headers {headers}", "tools/list", {}, headers=headers)
        good = changed("").body
        yield from (changed(f"bytes {what}", raw=raw) for what, raw in odd_bytes(good).items())
        for length in ("0", "abc", "-1", "99999999", str(len(good) - 1), "٣", "1e3"):
            yield changed(f"content-length {length!r}", headers={"content-length": length})
        yield changed("without content-length", headers={"content-length": None, "transfer-encoding": "chunked"})
    yield from (
        request_of(method, LEGACY, "tools/call", call)._replace(method=method) for method in ("GET", "DELETE", "PUT", "HEAD", "OPTIONS")
    )


def initializations() -> Iterator[Any]:
    changes: Sequence[Mapping[str, Any]] = (
        *({}, {"protocolVersion": "2024-11-05"}, {"protocolVersion": "1999-01-01"}, {"protocolVersion": MODERN}, {"protocolVersion": 5}),
        *({"capabilities": {"roots": {"listChanged": True}, "x": 1}}, {"capabilities": []}, {"clientInfo": {}}, {"clientInfo": None}),
        *({"odd": 1}, {"_meta": {"a": 1}}, {"_meta": None}, {"protocolVersion": ""}, {"capabilities": {"sampling": 5}}),
    )
    yield from (dict(INITIALIZE) | dict(each) for each in changes)
    yield {}


def odd_bytes(good: bytes) -> dict[str, bytes]:
    def in_arguments(member: bytes) -> bytes:
        rest = good.partition(b'"arguments": {')[2]
        return good.replace(b'"arguments": {', b'"arguments": {' + member + (b"" if rest.startswith(b"}") else b", "))

    return {
        "empty": b"",
        "no JSON": b"{",
        "text": b'"x"',
        "null": b"null",
        "number": b"5",
        "array": b"[]",
        "batch": b"[" + good + b"]",
        "batch of two": b"[" + good + b"," + good + b"]",
        "trailing": good + b"x",
        "two objects": good + good,
        "spaces": b" \r\n\t" + good + b"\n ",
        "form feed": b"\x0c" + good,
        "BOM": b"\xef\xbb\xbf" + good,
        "UTF-16": good.decode().encode("utf-16"),
        "latin-1": good.replace(b"tools/call", b"tools/c\xe4ll"),
        "overlong UTF-8": good.replace(b"tools/call", b"tools\xc0\xafcall"),
        "NaN id": good.replace(b'"id": 1', b'"id": NaN'),
        "NaN": in_arguments(b'"q": NaN'),
        "Infinity": in_arguments(b'"q": -Infinity'),
        "1e999": in_arguments(b'"q": 1e999'),
        "1E-999": in_arguments(b'"q": 1E-999'),
        "-0": in_arguments(b'"q": -0'),
        "long fraction": in_arguments(b'"q": 0.1000000000000000055511151231257827'),
        "2**64": in_arguments(b'"q": 18446744073709551616'),
        "huge number": in_arguments(b'"q": 1' + b"0" * 5000),
        "id twice": good.replace(b'"id": 1', b'"id": 1, "id": 2'),
        "method twice": good.replace(b'"id": 1', b'"id": 1, "method": "ping"'),
        "params twice": good.replace(b'"id": 1', b'"id": 1, "params": {"name": "other"}'),
        "name twice": good.replace(b'"name"', b'"name": "other", "name"'),
        "argument twice": in_arguments(b'"q": 1, "q": 2'),
        "surrogate id": good.replace(b'"id": 1', b'"id": "\\ud800"'),
        "surrogate": in_arguments(b'"q": "\\udc00x"'),
        "surrogate pair": good.replace(b'"id": 1', b'"id": "\\ud83d\\ude00"'),
        "NUL id": good.replace(b'"id": 1', b'"id": "\\u0000"'),
        "NUL": in_arguments(b'"q": "a\\u0000b"'),
        "raw NUL": in_arguments(b'"q": "a\x00b"'),
        "control character": in_arguments(b'"q": "a\x01b"'),
        "deep": b"[" * 2000 + b"]" * 2000,
        "deep argument": in_arguments(b'"q": ' + b"[" * 300 + b"]" * 300),
        "deep object": in_arguments(b'"q": ' + b'{"a":' * 150 + b"1" + b"}" * 150),
        "deep enough": in_arguments(b'"q": ' + b"[" * 60 + b"]" * 60),
        "comment": good + b"/* */",
        "single quotes": good.replace(b'"', b"'"),
        "trailing comma": good[:-1] + b",}",
        "long id": good.replace(b'"id": 1', b'"id": "' + b"x" * 100_000 + b'"'),
        "escaped name": good.replace(b'"name"', b'"n\\u0061me"'),
        "float id": good.replace(b'"id": 1', b'"id": 1e0'),
        "id 1.0": good.replace(b'"id": 1', b'"id": 1.0'),
        "leading zero": good.replace(b'"id": 1', b'"id": 01'),
        "plus": good.replace(b'"id": 1', b'"id": +1'),
        "response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
        "error": b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
    }
