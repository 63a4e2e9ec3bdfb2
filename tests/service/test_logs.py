"""The log of a served campus: what it contains and what it leaves out."""

import json
import logging
import re
import socket
from math import nan
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from patience import patience
from serving import Served, serving

from campus.observability.logs import OF_COMMANDS, Budget, OneLine, OneObject
from tests import patient

BROKEN = """
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
mcp = FastMCP("Broken")

@mcp.tool(annotations={"readOnlyHint": True})
def fail() -> str:
    "Fail."
    raise RuntimeError("the reason")

async def fetch() -> str:
    return "the tide"

@mcp.tool(annotations={"readOnlyHint": True})
async def forget() -> str:
    "Forget to wait."
    fetch()
    return "nothing"

@mcp.tool(annotations={"readOnlyHint": True})
def refuse() -> str:
    "Refuse."
    raise ToolError("there is no such tide")
"""
CONFIG = """
[buildings.gateway]
path = "/"
[buildings.broken]
server = "broken_building:mcp"
tools = { "*" = { free = true } }
"""
HALF = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{"jsonrpc"'
)


def test_a_text_of_another_machine_stays_in_its_line_of_the_log() -> None:
    hostile = "refused\n2026-11-20T12:00:00Z ERROR campus: owned\x1b[2J\u2028\u202e"
    record = logging.makeLogRecord({"name": "campus", "levelname": "INFO", "msg": "not sent: %s", "args": (hostile,), "reason": hostile})
    line = OneLine().format(record)
    assert (line.isprintable(), line.count("ERROR campus: owned")) == (True, 2)


def test_a_log_in_json_is_an_object_a_line_whatever_it_contains() -> None:
    hostile = 'refused\n{"level": "error"} \u2028\u202e\ud800 https://user:word@feeds.example/p\u00e4th?token=hunter2'
    data = {
        "name": "campus",
        "levelname": "INFO",
        "msg": "not sent: %s",
        "args": (hostile,),
        "reason": hostile,
        "count": 3,
        "held": True,
        "share": nan,
    }
    line = OneObject().format(logging.makeLogRecord(data | {"rows": ["https://feeds.example/s3cr3t"], "share": nan}))
    assert (line.isascii(), line.isprintable(), "hunter2" in line, "word@" in line, "s3cr3t" in line) == (True, True, False, False, False)
    read = json.loads(line, parse_constant=pytest.fail)
    assert read["share"] == "nan"
    assert read["event"] == "not sent: " + hostile.partition("https")[0] + "https://feeds.example/…"
    assert (read["level"], read["logger"], read["count"], read["held"]) == ("info", "campus", 3, True)


def test_a_campus_that_logs_in_json_logs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    words = ["--access-log", "--log-format", "json"]
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}, words=words) as campus:
        assert patient.get(f"{campus.url}/v1/broken/fail").status_code == 500
        assert patient.get(f"{campus.url}/v1/broken/forget").status_code == 200
        wait_for(campus, '"status": 500')
        wait_for(campus, "never awaited")
    lines = [json.loads(line) for line in campus.log.splitlines()]
    opened = next(one for one in lines if one["event"] == "campus opened")
    assert opened["database"] == str(tmp_path / "data" / "campus.db")
    failed = next(one for one in lines if one["event"] == "a tool failed")
    assert (failed["level"], failed["path"], failed["exception"].count("RuntimeError: the reason")) == ("error", "/v1/broken/fail", 1)
    forgot = next(one for one in lines if one["logger"] == "py.warnings")
    assert re.search(r"broken_building\.py:\d+: RuntimeWarning: coroutine 'fetch' was never awaited", forgot["event"])
    request = next(one for one in lines if one["event"] == "request" and one["status"] == 500)
    assert request["request_id"] == failed["request_id"]


@pytest.mark.parametrize("direct_mcp", ["on", "off"])
def test_a_crash_over_mcp_is_logged_once_with_the_request_id_that_the_caller_was_told(tmp_path: Path, direct_mcp: str) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    config = f'direct_mcp = "{direct_mcp}"\n{CONFIG}'
    with serving(tmp_path, config, environ={"PYTHONPATH": str(tmp_path)}, words=["--log-format", "json"]) as campus:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail", "arguments": {}}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
            "X-Request-Id": "told-to-the-caller",
        }
        answer = patient.post(f"{campus.url}/broken/mcp", json=body, headers=headers)
        assert "told-to-the-caller" in answer.text
        wait_for(campus, "a tool failed")
    failed = [one for one in map(json.loads, campus.log.splitlines()) if "the reason" in one.get("exception", "")]
    assert [(one["event"], one["request_id"], one["server"], one["tool"]) for one in failed] == [
        ("a tool failed", "told-to-the-caller", "broken", "fail")
    ]


def test_a_stop_while_a_feed_hangs_logs_no_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as feed:
        feed.settimeout(patience(30))
        url = f"http://127.0.0.1:{feed.getsockname()[1]}/feed"
        urls = "\n".join(f'{name}_url = "{url}"' for name in ("kev", "kev_mirror", "epss", "nvd"))
        with serving(tmp_path, f"[buildings.cve]\nsample = true\n{urls}\n") as campus:
            asking, _ = feed.accept()
        asking.close()
    assert "stopped" in campus.log
    assert "Traceback" not in campus.log
    assert " ERROR " not in campus.log


def test_a_value_that_is_no_word_is_quoted_so_that_it_cannot_look_like_another() -> None:
    data = {"job": "cve.refresh", "reason": 'answered "no" job=other', "url": "http://jane:pw@host/x?a=b", "count": 3, "note": ""}
    line = OneLine().format(logging.makeLogRecord({"name": "campus", "levelname": "INFO", "msg": "said", **data}))
    said = r'said job=cve.refresh reason="answered \"no\" job=other" url="http://host/…" count=3 note=""'
    assert line.endswith(f"INFO campus: {said}")


def test_a_warning_that_is_repeated_is_logged_once_a_minute_with_how_many_there_were() -> None:
    budget = Budget()

    def logged(second: float, level: str = "WARNING", **data: object) -> logging.LogRecord | None:
        about = {"name": "campus", "levelno": logging.getLevelName(level), "msg": "sweep failed", "created": 1e9 + second, **data}
        return record if budget.filter(record := logging.makeLogRecord(about)) else None

    kept = [record for second in range(121) if (record := logged(second, reason="full"))]
    assert [getattr(record, "repeated", 0) for record in kept] == [0, 59, 59]
    assert [logged(122, reason="down", request_id=each) is not None for each in "abc"] == [True, False, False], "of several requests"
    for data in ({"reason": "locked"}, {"reason": "full", "level": "INFO"}, {"reason": "full", "exc_info": (OSError, OSError(), None)}):
        assert logged(121, **data) is not None, data
    assert logged(-600, reason="full") is not None, "the clock was set back"


def test_a_command_that_writes_without_end_is_logged_a_hundred_lines_a_minute_and_another_one_is_still_seen() -> None:
    budget = Budget()

    def logged(second: float, building: str) -> logging.LogRecord | None:
        about = {"name": OF_COMMANDS, "levelno": logging.INFO, "msg": "stderr", "created": 1e9 + second}
        record = logging.makeLogRecord({**about, "building": building, "line": f"line {second}"})
        return record if budget.filter(record) else None

    kept = [record for each in range(700) if (record := logged(each / 10, "tides"))]
    assert [getattr(record, "repeated", 0) for record in kept if record.created < 1e9 + 60] == [0] * 100
    assert getattr(kept[100], "repeated", 0) == 500
    assert logged(30, "rivers") is not None


def test_one_cause_writes_two_tracebacks_and_twenty_lines_a_minute_and_another_cause_is_still_seen() -> None:
    budget = Budget()

    def failed(second: float, number: int, *, crash: bool) -> logging.LogRecord | None:
        about: dict[str, object] = {
            "name": "campus",
            "levelno": logging.ERROR,
            "msg": "call failed",
            "created": 1e9 + second,
            "route": number,
        }
        try:
            raise (OSError if crash else ValueError)(f"number {number}")
        except (OSError, ValueError) as error:
            about["exc_info"] = (type(error), error, error.__traceback__)
        return record if budget.filter(record := logging.makeLogRecord(about)) else None

    kept = [record for number in range(100) if (record := failed(number / 10, number, crash=False))]
    assert [bool(record.exc_info) for record in kept] == [True] * 2 + [False] * 18
    assert "ValueError at" in kept[3].error
    other = failed(10, 1, crash=True)
    assert other is not None
    assert other.exc_info, "another cause"
    again = failed(61, 1, crash=False)
    assert again is not None
    assert (bool(again.exc_info), again.repeated) == (True, 80)

    def lost(number: int) -> bool:
        return budget.filter(logging.makeLogRecord({"name": "c", "levelno": logging.WARNING, "msg": "lost", "created": 1e9, "of": number}))

    assert sum(map(lost, range(5_000))) == 20, "also if each differs in its data"


def test_a_line_of_code_that_writes_what_callers_send_into_its_message_is_one_cause() -> None:
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.addFilter(Budget())
    handler.emit = kept.append  # type: ignore[method-assign]
    library = logging.Logger("library")
    library.addHandler(handler)
    for number in range(100):
        try:
            raise OSError(f"number {number}")
        except OSError:
            library.exception(f"Error reading resource 'note://{number}'")  # as libraries do
    for number in range(100):
        library.warning(f"Invalid header: {number}")
    assert [bool(record.exc_info) for record in kept] == [True] * 2 + [False] * 38


def test_a_fault_of_ours_is_logged_with_its_traceback_and_a_caller_who_hangs_up_is_not(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}, words=["--access-log"]) as campus:
        hang_up(campus)
        assert "Traceback" not in campus.log
        assert patient.get(f"{campus.url}/v1/broken/fail").status_code == 500
        assert campus.log.count("Traceback") == 1
        assert "RuntimeError: the reason" in campus.log


@pytest.mark.anyio
async def test_what_is_logged_without_an_error_disturbs_no_call(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}) as campus:
        async with Client(f"{campus.url}/broken/mcp") as client:
            with pytest.raises(ToolError, match="there is no such tide"):
                await client.call_tool("refuse")


@pytest.mark.anyio
async def test_the_access_log_has_the_callers_address_and_the_template_of_each_route_and_no_path(tmp_path: Path) -> None:
    (tmp_path / "broken_building.py").write_text(BROKEN)
    with serving(tmp_path, CONFIG, environ={"PYTHONPATH": str(tmp_path)}, words=["--access-log"]) as campus:
        headers = {"X-Forwarded-For": "2001:db8::7"}
        for path in ("/v1/broken/refuse", "/v1/broken", "/errors/s3cr3t", "/s3cr3t"):
            patient.get(f"{campus.url}{path}", headers=headers)
        async with Client(f"{campus.url}/broken/mcp") as client:
            await client.call_tool("refuse", raise_on_error=False)
        wait_for(campus, "route=broken:refuse")
        lines = [line for line in campus.log.splitlines() if "campus.access: request" in line and "/healthz" not in line]
    logged = {(found[1], found[2]) for line in lines if (found := re.search(r"client=(\S+) method=\S+ route=(\S+)", line))}
    assert {("2001:db8::7", route) for route in ("/v1/broken/refuse", "/v1/{building}", "/errors/{code}", "-")} <= logged
    assert {("127.0.0.1", "/broken/mcp"), ("127.0.0.1", "broken:refuse")} <= logged
    assert ("127.0.0.1", "-") not in logged, "what an MCP client asks besides calls has a route too"
    assert "method=GET route=/healthz" in campus.log
    assert not [line for line in lines if "s3cr3t" in line]


def hang_up(campus: Served) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(campus.url).port or 0)) as connection:
        connection.sendall(HALF)
    wait_for(campus, "method=POST")


def wait_for(campus: Served, word: str) -> None:
    deadline = monotonic() + patience(20)
    while word not in campus.log:
        assert monotonic() < deadline, campus.log
        sleep(0.02)
