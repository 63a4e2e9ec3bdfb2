"""Every public route and MCP method against the worst requests of each kind: none holds the loop for long, none leaves much in memory."""

import gc
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any, Literal

import pytest
from features.connect.chat_app import ORIGIN
from hypothesis import settings
from pages.harbour import make_harbour
from patience import patience
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.asgi import open_admin
from campus.http.protocol import HEAD_BYTES
from campus.layout.forms import Cookies, new_token
from campus.testing import TestCampus, open_campus
from twins import RouteEntry

pytestmark = [pytest.mark.anyio, pytest.mark.hypothesis]
LONGEST_SECONDS = 0.050
MOST_KEPT = 1024 * 1024
TRIES = 5
"""How often a request that took long is sent again: the best counts, so that a busy machine is no mistake."""
EVERY = 1 if settings.default.max_examples >= 200 else 11
"""The part of the requests that is sent, all of them by `make laws`. No kind has 11 requests, so that each of them meets some route."""
HEAD, BODY, FORM = HEAD_BYTES - 1_500, 64 * 1024 - 1, 1024 * 1024 - 100
SECRET = "s" * 40
TABLES: Mapping[str, Any] = {
    "server": {"public_url": ORIGIN, "openapi": "cve"},
    "connect": {},
    "limits": {"free": "off", "unpaid": "off", "keyed": "off"},
    "payments": {
        "network": "eip155:84532",
        "pay_to": f"0x{'1' * 40}",
        "facilitators": ["http://127.0.0.1:9"],
        "rpc_url": "http://127.0.0.1:9",
    },
}
REAL = {
    "{building}": "harbour",
    "{tool}": "find",
    "{cve_id}": "CVE-2021-44228",
    "{day}": "2026-11-20",
    "{date}": "2026-11-20",
    "{code}": "x",
}
"""What stands in paths; other placeholders are replaced by their names."""


def filled(piece: str, size: int = HEAD) -> str:
    return piece * (size // len(piece.encode()))


TEXTS = {
    "quotes": f'x="{filled(chr(92) + chr(34))}"',
    "octal": f'x="{filled(chr(92) + "101")}"',
    "semicolons": filled("; "),
    "open quote": f'x="{filled(";")}',
    "pairs": filled("a=b; "),
    "commas": filled(","),
    "tags": filled('"a",'),
    "weights": filled("text/html;q=0.5,"),
    "blanks": f"a{filled(' ')}b",
    "slashes": filled("/"),
    "addresses": filled("127.0.0.1, "),
    "brackets": filled("["),
    "escapes": filled("%41"),
    "dots": f"{filled('a.')}@",
    "unicode": filled("\u00e9"),
    "equals": filled("="),
    "less": filled("<"),
    "objects": filled('{"a":'),
    "digits": filled("9"),
    "base64": filled("W1tb"),
}
"""Worst texts, for headers, for parts of paths, and for parameters of a Content-Type."""
READ_ON_THE_WAY = (
    "host",
    "origin",
    "x-forwarded-for",
    "x-forwarded-proto",
    "access-control-request-headers",
    "traceparent",
    "x-request-id",
)
READ_BY_PAGES = ("cookie", "if-none-match", "accept-language", "prefer", "last-event-id", "referer", "sec-fetch-site", "x-forwarded-for")
READ_BY_TOOLS = (
    "accept",
    "authorization",
    "payment-signature",
    "x-payment",
    "idempotency-key",
    "mcp-session-id",
    "mcp-param-day",
    "mcp-name",
)
REPEATED = {
    "headers": [(f"x{number}", "") for number in range(HEAD // 9)],
    "cookies": [("cookie", "a=b")] * (HEAD // 13),
    "conditions": [("if-none-match", '"a"')] * (HEAD // 20),
    "addresses": [("x-forwarded-for", "127.0.0.1")] * (HEAD // 28),
}
QUERIES = {
    "names": "&".join(f"n{number}" for number in range(HEAD // 7)),
    "escaped names": "&".join(f"%61{number}" for number in range(1_900)),
    "one name": filled("ship=1&"),
    "list": filled("tags=1&"),
    "empty": filled("&"),
    "astral": f"ship={filled('%F0%9F%98%80')}",
    "less": f"ship={filled('%3C')}",
    "next": f"next=/{filled('a/')}",
    "request": f"request={filled('A')}",
    "client": f"client_id=https://a.example/{filled('a')}",
}
JSONS = {
    "open": f'{{"ship":{filled("[", BODY - 20)}',
    "nested": '{"ship":' + "[" * 30_000 + "]" * 30_000 + "}",
    "objects": '{"ship":' + '{"a":' * 9_000 + "1" + "}" * 9_001,
    "unknown": json.dumps({f"n{number}": 0 for number in range(4_900)}),
    "some unknown": json.dumps({f"n{number}": 0 for number in range(100)}),
    "repeated": "{" + ",".join(['"ship":1'] * (BODY // 10)) + "}",
    "escaped": '{"ship":"' + "\\u0041" * (BODY // 6 - 10) + '"}',
    "astral": json.dumps({"ship": "\U0001f600" * (BODY // 4 - 10)}, ensure_ascii=False),
    "digits": '{"ship":' + "9" * (BODY - 20) + "}",
    "list": json.dumps({"tags": [1] * (BODY // 3 - 10), "ship": []}),
    "texts": json.dumps({"tags": ["a"] * (BODY // 5 - 10), "ship": "a"}),
    "less": json.dumps({"ship": "<" * (BODY - 40), "name": "<" * 10}),
    "backslashes": '{"ship":"' + "\\\\" * (BODY // 2 - 20) + '"}',
    "pattern": json.dumps({"cve_id": f"{'a.' * 16_000}@", "name": "a" * 30_000}),
    "url": json.dumps({"name": "a", "alert_webhook": f"https://{'a.' * 15_000}example", "alert_email": f"{'a.' * 100}@{'a.' * 5_000}"}),
    "hex": json.dumps({"ship": "a" * 30_000 + "!", "status": "a" * 30_000}),
}
FORMS = {
    "escapes": f"argument.ship={'%41' * (FORM // 3 - 40)}",
    "less": f"argument.ship={'%3C' * 60_000}&key={'%3C' * 60_000}",
    "plus": f"a={'+' * (FORM - 20)}",
    "pairs": "a=b&" * (FORM // 4),
    "equals": "=" * FORM,
    "fields": "&".join(f"argument.f{number}={'%41' * 1_500}" for number in range(190)),
    "wrong token": f"form_token=x&a={'%41' * (FORM // 3 - 40)}",
}
LINE = 'Content-Disposition: form-data; name="a"'
PARTS = {
    "parts": f"--x\r\n{LINE}\r\n\r\n1\r\n" * (FORM // 60),
    "lines": f"--x\r\n{LINE}\r\n\r\n" + "\r\n" * (FORM // 2 - 100),
    "near": f"--x\r\n{LINE}\r\n\r\n" + "\r\n--" * (FORM // 4 - 100),
    "open quotes": f'--x\r\n{LINE}; a="{";" * 4_000}\r\n\r\n1\r\n' * 203,
    "long header": f"--x\r\n{LINE}; {'a=;' * (FORM // 3 - 100)}\r\n\r\n",
    "headers": "--x\r\n" + "a: b\r\n" * (FORM // 6 - 100) + "\r\n\r\n",
}
MODERN = {"protocolVersion": "2026-07-28", "clientCapabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    "server/discover": {},
    "tools/list": {},
    "tools/call": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "ui://x"},
    "prompts/list": {},
    "prompts/get": {"name": "x"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}},
    "tasks/get": {"taskId": "x"},
    "ping": {},
    "no/such": {},
}
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Worst:
    """One request, and what is bad about it."""

    name: str
    method: str
    path: str
    query: str = ""
    headers: Headers = ()
    body: bytes = b""


def requests_to(path: str, methods: Sequence[str], own: Headers) -> Iterator[Iterable[Worst]]:
    plain = path
    for placeholder, text in REAL.items():
        plain = plain.replace(placeholder, text)
    plain = plain.replace("{", "").replace("}", "")
    method = "GET" if {"GET", "*"} & {*methods} else methods[0]
    html, markdown = ("accept", "text/html"), ("accept", "text/markdown")
    token = f"form_token={new_token(SECRET)}"
    if path in ("/", "/v1/harbour/find", "/harbour/mcp"):
        yield (
            Worst(f"{name}: {kind}", method, plain, headers=[(name, text), html])
            for name in READ_ON_THE_WAY
            for kind, text in TEXTS.items()
        )
    for names in (READ_BY_PAGES, *([READ_BY_TOOLS] if path.startswith("/v1/") or path.endswith("/mcp") else [])):
        yield (Worst(f"headers: {kind}", method, plain, headers=[html, *((name, text) for name in names)]) for kind, text in TEXTS.items())
    yield (Worst(f"many {kind}", method, plain, headers=[*headers, html]) for kind, headers in REPEATED.items())
    yield (Worst(f"?{kind}", method, plain, query, [form]) for kind, query in QUERIES.items() for form in (html, markdown))
    first, brace, rest = path.partition("{")
    if brace or path == "/":
        after = rest.partition("}")[2].replace("{", "").replace("}", "")
        parts = ((kind, text.replace("/", "-") if brace else text) for kind, text in TEXTS.items())
        yield (Worst(f"path: {kind}", method, f"{first}{text}{after}", headers=[markdown]) for kind, text in parts)
    if not {"POST", "*"} & {*methods}:
        return
    yield (Worst(f"body: {kind}", "POST", plain, "", [("content-type", "application/json")], text.encode()) for kind, text in JSONS.items())
    encoded = [("content-type", "application/x-www-form-urlencoded"), markdown, *own]
    yield (Worst(f"form: {kind}", "POST", plain, "", encoded, f"{token}&{text}".encode()) for kind, text in FORMS.items())
    files = [("content-type", "multipart/form-data; boundary=x"), html, *own]
    sent = f'--x\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n{token.partition("=")[2]}\r\n'
    yield (Worst(f"parts: {kind}", "POST", plain, "", files, f"{sent}{text}--x--\r\n".encode()) for kind, text in PARTS.items())
    typed = ((kind, f"multipart/form-data; boundary=x; {text}") for kind, text in TEXTS.items())
    yield (Worst(f"type: {kind}", "POST", plain, "", [("content-type", text), *own], sent.encode()) for kind, text in typed)


def messages_to(path: str, tools: Sequence[str]) -> Iterator[Iterable[Worst]]:
    plain = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    for modern in (True, False):
        meta = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in MODERN.items()}} if modern else {}
        version = ("mcp-protocol-version", "2026-07-28" if modern else "2025-11-25")
        for method, params in METHODS.items():
            for name in tools if method == "tools/call" else ("",):
                named = {"name": name} if name else {}
                heads = [*plain, version, *([("mcp-method", method), ("mcp-name", name)] if modern else [])]
                message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**meta, **params, **named, "arguments": 0}})
                begin = message[: message.rindex("0")]
                yield (
                    Worst(f"{method} {name} {kind}", "POST", path, "", heads, f"{begin}{text}}}}}".encode()) for kind, text in JSONS.items()
                )
    yield (Worst(f"message: {kind}", "POST", path, "", plain, text.encode()) for kind, text in JSONS.items())
    yield [Worst("batch", "POST", path, "", plain, b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 1_500 + b"{}]")]


@dataclass
class Walk:
    """Sends requests to an app in this thread, each from an address of its own, and notes those that cost too much."""

    app: ASGIApp
    too_slow: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    sent: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    async def send(self, worst: Worst) -> float:
        """Send a request; returns the seconds of this thread's CPU, which has the loop."""
        given = {name for name, _ in worst.headers}
        number = next(self._numbers)
        address = "127.0.0.1" if "x-forwarded-for" in given else f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        scope: Scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": worst.method, "scheme": "https"},
            **{"path": worst.path, "raw_path": worst.path.encode(), "query_string": worst.query.encode(), "root_path": ""},
            "headers": [
                *((name.encode(), value.encode()) for name, value in worst.headers),
                *([] if "host" in given else [(b"host", b"localhost")]),
                *([(b"content-length", b"%d" % len(worst.body))] if worst.body else []),
            ],
            **{"client": (address, 1), "server": ("127.0.0.1", 80)},
        }
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": worst.body, "more_body": False}

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        began = time.thread_time()
        await self.app(scope, receive, send)
        seconds = time.thread_time() - began
        if statuses[:1] == [500]:
            self.failed.append(f"{worst.method} {worst.path[:60]} {worst.name}")
        return seconds

    async def measure(self, worst: Worst) -> None:
        self.sent += 1
        seconds = await self.send(worst)
        for _ in range(TRIES):
            if seconds > LONGEST_SECONDS / 2:
                seconds = min(seconds, await self.send(worst))
        name = f"{worst.method} {worst.path[:60]} {worst.name}: {seconds * 1000:.1f} ms"
        self.slowest = max(self.slowest, (seconds, name))
        if seconds > LONGEST_SECONDS * min(patience(1), 2):  # where others take the caches, the same work costs up to twice the CPU
            self.too_slow.append(name)

    async def weigh(self, worst: Worst) -> None:
        before, _ = tracemalloc.get_traced_memory()
        await self.send(worst)
        if tracemalloc.get_traced_memory()[0] - before > MOST_KEPT:
            gc.collect()
            if (kept := tracemalloc.get_traced_memory()[0] - before) > MOST_KEPT:
                self.kept.append(f"{worst.method} {worst.path[:60]} {worst.name}: {kept:,} bytes")


async def walk_of(app: ASGIApp, kinds: Callable[[], Iterable[Iterable[Worst]]]) -> Walk:
    walk = Walk(app)
    for worst in islice(chain.from_iterable(kinds()), 0, None, EVERY):
        await walk.measure(worst)
    tracemalloc.start()
    try:
        for number, kind in islice(enumerate(kinds()), 0, None, EVERY):
            *_, worst = islice(kind, 1 + number % len(TEXTS))
            await walk.weigh(worst)
    finally:
        tracemalloc.stop()
    return walk


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def campus() -> AsyncIterator[TestCampus]:
    buildings = {"cve": cve, "harbour": make_harbour(), "gateway": gateway, "recorder": recorder}
    secrets = {"CAMPUS_OPERATOR_PASSWORD": "harbour-master-7"}
    async with open_campus(settings={"sample": True}, tables=TABLES, secrets=secrets, **buildings) as opened:
        yield opened


def routes_of(entries: Iterable[RouteEntry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.path, []).extend(entry.methods)
    return {path: methods for path, methods in found.items() if path != "/sink"}


async def test_no_request_holds_the_loop_for_long_or_leaves_much_in_memory(campus: TestCampus) -> None:
    app: Any = campus.app
    routes = routes_of(app._app._table.entries)
    tools = {one.mcp_path: [*one.operations][:3] for one in campus.service.plan.opened}
    assert {"/", "/keys", "/v1/brief/teaser", "/connect/authorize", *tools} <= routes.keys()
    own = [("cookie", f"{Cookies(secure=True).form}={SECRET}")]

    def kinds() -> Iterator[Iterable[Worst]]:
        for path, methods in routes.items():
            yield from requests_to(path, methods, own)
        for path, names in tools.items():
            yield from messages_to(path, names)

    walk = await walk_of(app, kinds)
    print(f"{walk.sent} requests; the slowest: {walk.slowest[1]}")
    assert walk.too_slow == []
    assert walk.kept == []
    assert walk.failed == []


async def test_neither_does_one_to_the_operators_listener(campus: TestCampus) -> None:
    app: Any = open_admin(campus.service)
    own = [("cookie", f"campus_operator_form={SECRET}")]
    walk = await walk_of(
        app, lambda: (kind for path, methods in routes_of(app._app.entries).items() for kind in requests_to(path, methods, own))
    )
    assert (walk.too_slow, walk.kept, walk.failed) == ([], [], [])


async def test_the_walk_finds_pythons_parser_of_cookies_or_that_parser_is_quick(
    campus: TestCampus, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotes = f'x="{filled(chr(92) + chr(34), HEAD // 2)}"'
    began = time.thread_time()
    _ = Request({"type": "http", "headers": [(b"cookie", quotes.encode())]}).cookies
    is_slow = time.thread_time() - began > LONGEST_SECONDS
    monkeypatch.setattr(Cookies, "sent", staticmethod(lambda request, name: request.cookies.get(name)))
    monkeypatch.setattr(f"{__name__}.TRIES", 0)
    walk = Walk(campus.app)
    await walk.measure(Worst("quotes", "GET", "/keys", headers=[("accept", "text/html"), ("cookie", quotes)]))
    assert bool(walk.too_slow) == is_slow
