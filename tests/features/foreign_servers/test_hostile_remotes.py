"""Another server that sends what nobody should: lists and schemas of any shape, results without end. It harms itself alone."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from time import process_time, sleep
from typing import Any

import pytest
from fastmcp import Client
from features.foreign_servers.hostile_server import Hostile, hostile, text, tool
from patience import patience
from serving import Served, serving

from tests import patient
from tests.features.foreign_servers.test_remote_down import until
from twins.tool.schemas import PublishedSchema

pytestmark = pytest.mark.anyio
TESTS = Path(__file__).parents[2]
OTHERS = '[buildings.gateway]\npath = "/"\n'
REMOTE = '[buildings.{name}]\nserver = {{ url = "http://127.0.0.1:{port}/mcp"{more} }}\ntools = {{ "*" = {{ free = true }} }}\n'
EXPONENTIAL = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(30)}
BOMB = {"type": "object", "$defs": {**EXPONENTIAL, "a30": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/a0"}}}
TREE = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}}, {"type": "array", "minItems": 0, "items": {"$ref": "#/$defs/t"}}]}
WIDE = {"type": "object", "patternProperties": {f"^a{number}b?": {"type": "string"} for number in range(1_300)}}
UNEVALUATED: Any = {"type": "object", "properties": {"x": {}}}
for _ in range(20):
    UNEVALUATED = {"unevaluatedProperties": False, "anyOf": [UNEVALUATED]}
NESTED: Any = "leaf"
for _ in range(60):
    NESTED = [NESTED]
COSTLY: dict[str, tuple[Any, Any]] = {
    "a pattern that backtracks": (
        {"type": "object", "properties": {"x": {"type": "string", "pattern": r"^([a-zA-Z0-9]+\.?)+@[a-z]+$"}}},
        {"x": "a" * 40},
    ),
    "a pattern that follows a thousand paths": (
        {"type": "object", "properties": {"x": {"pattern": "a[ab]{1000}c"}}},
        {"x": "".join(Random(1).choices("ab", k=800_000))},
    ),
    "unique items of many types": (
        {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}},
        {"x": [[number] if number % 2 else {"a": number} for number in range(6_000)]},
    ),
    "alternatives of alternatives": (BOMB, {"x": "text"}),
    "alternatives that refer to themselves": (
        {"type": "object", "$defs": {"t": TREE}, "properties": {"x": {"$ref": "#/$defs/t"}}},
        {"x": NESTED},
    ),
    "what is not evaluated, nested": (UNEVALUATED, {"x": 1}),
    "many patterns": (WIDE, {f"k{number}": 1 for number in range(8_000)}),
    "many choices": (
        {"type": "object", "properties": {"x": {"items": {"anyOf": [*({"minLength": number} for number in range(2, 5_000)), {}]}}}},
        {"x": ["z"] * 40_000},
    ),
    "another's $id": (
        {
            "type": "object",
            "$defs": {
                **{name: {"minLength": 0} for name in BOMB["$defs"]},
                "b": {"$id": "https://x.example/", "$ref": "#/$defs/a0", "$defs": BOMB["$defs"]},
            },
            "properties": {"x": {"$ref": "#/$defs/b"}},
        },
        {"x": "text"},
    ),
}


def table(port: int, *, name: str = "far", more: str = "") -> str:
    return REMOTE.format(name=name, port=port, more=more)


def said_of(campus: Served, name: str) -> str:
    return " ".join(patient.get(f"{campus.admin}/readyz").json()["checks"].get(name, ()))


def is_refused(said: str, shape: str) -> bool:
    return said != "" and (shape == ENDLESS or "cannot be reached" not in said) and SENTENCES.get(shape, "") in said


@pytest.mark.parametrize("shape", COSTLY)
def test_no_schema_of_another_server_makes_its_check_take_long(shape: str) -> None:
    schema, arguments = COSTLY[shape]
    begun = process_time()
    with suppress(ValueError):  # what is left to the server
        published = PublishedSchema(schema)
        published.accepts(arguments)
        published.mismatches(arguments)
    assert process_time() - begun < 1, "seconds of CPU, which a busy machine makes hardly longer"


def test_a_schema_is_checked_where_it_can_be_and_fetches_nothing() -> None:
    schema = PublishedSchema(
        {
            "type": "object",
            "$defs": {"Day": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"}},
            "properties": {"day": {"$ref": "#/$defs/Day"}, "a/b": {"type": "integer"}, "c": {"items": {"$ref": "#/properties/a~1b"}}},
        }
    )
    assert schema.accepts({"day": "2026-11", "a/b": 1, "c": [2], "more": 1})
    arguments = {"day": "a secret", "a/b": "another", "c": ["third"]}
    assert not schema.accepts(arguments)
    wrong = schema.mismatches(arguments)
    assert {name: words.split(": ")[0] for name, words in wrong.items()} == dict.fromkeys(("a/b", "c", "day"), "must match its schema")
    assert "secret" not in str(wrong)
    for reference in ("https://schemas.example/x.json", "file:///etc/passwd"):
        with pytest.raises(ValueError, match="cannot be followed"):
            PublishedSchema({"type": "object", "properties": {"x": {"$ref": reference}}})


async def test_a_pattern_that_is_not_checked_here_is_named_at_start_and_everybody_else_is_answered_meanwhile(tmp_path: Path) -> None:
    lookahead = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(?=a)[a-z]+$"}}}
    costly = COSTLY["a pattern that backtracks"]
    with (
        hostile(Hostile([tool("look", lookahead), tool("costly", costly[0])])) as far,
        serving(tmp_path, table(far.port) + OTHERS) as campus,
    ):
        assert patient.get(f"{campus.url}/v1/far/look?x=b").status_code == 200, "its server judges"
        async with Client(f"{campus.url}/far/mcp") as client:
            over_mcp = await client.call_tool_mcp("costly", costly[1])
        over_http = patient.get(f"{campus.url}/v1/far/costly", params=costly[1])
        assert (over_mcp.structured_content or {})["code"] == over_http.json()["code"] == "invalid_request"
        (line,) = [line for line in campus.log.splitlines() if "arguments are checked by the server alone" in line]
        assert "tool=look" in line
        assert "(?=a)" in line


ENDLESS = "a page after each page"
LISTS: dict[str, Any] = {
    "two names of one route": [tool("a b"), tool("a\tb")],
    "two names of one route, without a control character": [tool("a b"), tool("a-b")],
    "an empty name": [tool("")],
    "a name of a megabyte": [tool("a" * 900_000)],
    "a name with a line end": [tool("a\nb")],
    "one name twice": [tool("a"), tool("a")],
    "megabytes of descriptions": [tool(f"a{number}", description="x" * 50_000) for number in range(50)],
    "no schema": [{"name": "a", "inputSchema": "text"}],
    "a schema of no object": [tool("a", {"type": "object", "properties": {"x": "text"}})],
    "properties that are none": [tool("a", {"type": "object", "properties": 7})],
    "members that are none": [tool("a", {"type": "object", "properties": {"x": {"type": "object", "properties": 7}}})],
    "wrong annotations": [tool("a", annotations={"readOnlyHint": "perhaps"})],
    "a wrong description": [tool("a", description=7)],
    "tools that are none": ["a", 7],
    "a route of campus": [tool("a", _meta={"twins": {"route": "GET /healthz"}})],
    "a route of another building": [tool("a", _meta={"twins": {"route": "GET /v1/gateway/list_buildings"}})],
    ENDLESS: lambda cursor: {"tools": [], "nextCursor": str(int(cursor or 0) + 1)},
    "a page that follows itself": lambda cursor: {"tools": [tool(f"a{cursor}")], "nextCursor": "again"},
}


SENTENCES = {
    "members that are none": "the schemas of its tools cannot be read",
    "a route of another building": "give one of them a different route",
}
"""What is said of some."""


def test_a_list_that_cannot_be_served_closes_its_own_building_and_no_other_at_start_and_later(tmp_path: Path) -> None:
    hostiles = {f"b{number}": Hostile(tools) for number, tools in enumerate(LISTS.values())}
    changed = {f"c{number}": Hostile([tool("fine")]) for number in range(len(LISTS))}
    servers = hostiles | changed
    with ExitStack() as stack:
        later = stack.enter_context(ExitStack())
        for name, server in servers.items():
            (later if name in changed else stack).enter_context(hostile(server))
        tables = "".join(table(server.port, name=name) for name, server in servers.items())
        campus = stack.enter_context(serving(tmp_path, tables + OTHERS))
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").status_code == 200, campus.log
        for name, shape in zip(hostiles, LISTS, strict=True):
            assert is_refused(said_of(campus, name), shape), (shape, said_of(campus, name))
            assert patient.get(f"{campus.url}/v1/{name}/anything").status_code == 503, shape
            assert len(said_of(campus, name)) < 700, shape
        later.close()
        for name, tools in zip(changed, LISTS.values(), strict=True):
            assert patient.get(f"{campus.url}/v1/{name}/fine").status_code == 503
            changed[name].tools = tools
            stack.enter_context(hostile(changed[name]))
        shapes = dict(zip(changed, LISTS, strict=True))
        until(lambda: all(changed[name].lists > 1 and is_refused(said_of(campus, name), shapes[name]) for name in changed), campus)
        hostiles["b0"].tools = [tool("fine")]
        until(lambda: patient.get(f"{campus.url}/v1/b0/fine").status_code == 200, campus)
        assert patient.get(f"{campus.url}/v1/gateway/list_buildings").json()["count"] >= 2
        assert campus.process.poll() is None


MEGABYTE = b"x" * 1024 * 1024


def progress() -> Iterator[bytes]:
    for number in range(10**9):
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": number}}
        yield b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
        sleep(0.01)


def pings() -> Iterator[bytes]:
    for _ in range(10**9):
        yield b": ping\n\n"
        sleep(0.05)


RESULTS: dict[str, Any] = {
    "a long text": (lambda name, arguments: text("x" * 100_000_000), 502),
    "a long event": (lambda name, arguments: iter([b"event: message\ndata: ", *[MEGABYTE] * 50]), 502),
    "many long events": (lambda name, arguments: (b": " + b"x" * 10_000 + b"\n\n" for _ in range(100_000)), 502),
    "progress without end": (lambda name, arguments: progress(), 504),
    "pings without end": (lambda name, arguments: pings(), 504),
}


async def test_a_result_without_end_is_a_502_or_a_504_over_both_frames_and_holds_nobody_else(tmp_path: Path) -> None:
    def call(name: str, arguments: dict[str, Any]) -> Any:
        return list(RESULTS.values())[int(name[1:])][0](name, arguments)

    tools = [tool(f"t{number}") for number in range(len(RESULTS))]
    with (
        hostile(Hostile(tools, call)) as far,
        serving(tmp_path, table(far.port, more=f", timeout = {patience(3000):.0f}") + OTHERS) as campus,
    ):
        before = memory(campus)
        for number, (shape, (_, status)) in enumerate(RESULTS.items()):
            answer = patient.get(f"{campus.url}/v1/far/t{number}")
            async with Client(f"{campus.url}/far/mcp") as client:
                over_mcp = (await client.call_tool_mcp(f"t{number}", {})).structured_content or {}
            code = "upstream_failed" if status == 502 else "timeout"
            assert (answer.status_code, answer.json()["code"]) == (over_mcp["status"], over_mcp["code"]) == (status, code), shape
            assert said_of(campus, "far") == "", shape
        assert memory(campus) - before < 40_000, "kB"
        assert "Traceback" not in campus.log


async def test_a_command_that_answers_too_much_loses_this_answer_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text(COMMAND.format(tests=str(TESTS)))
    server = f'{{ command = "{sys.executable}", args = ["{tmp_path}/far.py"], timeout = 20000 }}'
    with serving(tmp_path, f'[buildings.far]\nserver = {server}\nanswer_limit = 50000\ntools = {{ "*" = {{ free = true }} }}\n') as campus:
        until(lambda: said_of(campus, "far") == "" and patient.get(f"{campus.url}/v1/far/pid").status_code == 200, campus)
        before = patient.get(f"{campus.url}/v1/far/pid").json()
        for _ in range(2):
            answer = patient.get(f"{campus.url}/v1/far/flood")
            assert (answer.status_code, answer.json()["code"]) == (502, "upstream_failed")
        assert patient.get(f"{campus.url}/v1/far/pid").json() == before, "it is the same process"


COMMAND = """
import os, sys
sys.path.insert(0, {tests!r})
from features.foreign_servers.hostile_server import Hostile, over_stdio, text, tool
answers = {{"pid": lambda: str(os.getpid()), "flood": lambda: "x" * 30_000_000}}
over_stdio(Hostile([tool("pid"), tool("flood")], lambda name, arguments: text(answers[name]())))
"""
CHATTY = """
import os, sys
print("starting with Authorization: Bearer abcdef123456 and " + os.environ["GITHUB_TOKEN"], file=sys.stderr)
print("options " + " ".join(sys.argv[1:]) + " GREETING=" + os.environ["GREETING"], file=sys.stderr)
print('{{"api_key": "0123456789"}} token=s3cr3tt0ken sk-proj-abcdefghijklmnop eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig', file=sys.stderr)
print("tokens are counted; the key is missing; 12 files read", file=sys.stderr, flush=True)
sys.path.insert(0, {tests!r})
from features.foreign_servers.hostile_server import Hostile, over_stdio, tool
over_stdio(Hostile([tool("fine")]))
"""


def test_what_a_command_says_is_logged_without_what_it_was_given_and_what_looks_like_a_secret(tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text(CHATTY.format(tests=str(TESTS)))
    args = f'["{tmp_path}/far.py", "--password", "hush", "--api-key=open sesame", "--verbose"]'
    env = '{ GITHUB_TOKEN = "hunter2", GREETING = "goodmorning" }'
    table = f'[buildings.far]\nserver = {{ command = "{sys.executable}", args = {args}, env = {env} }}\n'
    with serving(tmp_path, table + OTHERS) as campus:
        until(lambda: "12 files read" in campus.log, campus)
        log = campus.log
    assert "tokens are counted; the key is missing; 12 files read" in log
    assert "--verbose" in log
    secrets = ("abcdef123456", "hunter2", "hush", "open sesame", "goodmorning", "0123456789", "s3cr3tt0ken", "abcdefghijklmnop", "eyJzdWIi")
    assert [secret for secret in secrets if secret in log] == []


def memory(campus: Served) -> int:
    status = Path(f"/proc/{campus.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
