"""`campus dev`: a saved file is served by a new process that takes over the address, and no call is refused meanwhile."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Event, Thread

import httpx
import pytest
from patience import patience
from serving import CAMPUS, command, free_port

from tests import forkserver, patient
from tests.forkserver import Forked

HELLO = """
from campus import Building, access, free
from fastmcp import FastMCP

mcp = FastMCP("Hello")


@mcp.tool(annotations={"readOnlyHint": True}, meta=free())
def greet() -> str:
    "Greet."
    return "one"


@mcp.tool(annotations={"readOnlyHint": True}, meta=access(price="0.25"))
def praise(name: str) -> str:
    "Praise somebody."
    return f"well done, {name}"


@mcp.tool(annotations={"readOnlyHint": True}, meta=free())
def count() -> int:
    "Fail."
    return int("one")


def state(site: object) -> int:
    return 7


building = Building(mcp, state=state)
"""
MCP_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet", "arguments": {}}}
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


@dataclass
class Developed:
    """A running `campus dev`."""

    url: str
    file: Path
    log: Path
    process: Forked | Popen[bytes]

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def save(self, old: str, new: str) -> None:
        self.file.write_text(self.file.read_text().replace(old, new))

    def line_of(self, text: str) -> int:
        return next(number for number, line in enumerate(self.file.read_text().splitlines(), 1) if text in line)

    def wait(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + patience(60)
        while not is_so():
            assert self.process.poll() is None, self.printed
            assert time.monotonic() < deadline, f"{what}: {self.printed}"
            time.sleep(0.05)

    def answer(self) -> str:
        """What the tool answers now."""
        answer = patient.get(f"{self.url}/v1/hello/greet")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["result"])


@contextmanager
def developed(folder: Path, text: str, *words: str, environ: Mapping[str, str] | None = None, fresh: bool = False) -> Iterator[Developed]:
    """A `campus dev` of a file; `fresh` starts the installed command, as only it finds modules where PYTHONPATH says."""
    (file := folder / "hello.py").write_text(text)
    port = free_port()
    own_words, given = ("dev", str(file), "--port", str(port), *words), environ or {}
    with (folder / "dev.log").open("wb") as log:
        if fresh:
            own = {**os.environ, **given}
            process: Forked | Popen[bytes] = Popen([CAMPUS, *own_words], stdout=log, stderr=log, stdin=DEVNULL, env=own)
        else:
            process = forkserver.shared().start(forkserver.CAMPUS, *own_words, environ=given, stdout=log, stderr=log)
    dev = Developed(f"http://127.0.0.1:{port}", file, folder / "dev.log", process)
    try:
        dev.wait(lambda: "campus_live_" in dev.printed, "the address is open")
        yield dev
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patience(30))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Developed]:
    """One for the tests that change what it serves in their order."""
    folder = tmp_path_factory.mktemp("dev")
    with developed(folder, HELLO, "--inspector", environ={"PATH": str(folder)}) as dev:
        yield dev


class Calls(Thread):
    """Calls a tool all the time, on a connection of its own that is kept open, over HTTP and over MCP."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.ended = Event()
        self.answers: list[str] = []
        self.failures: list[str] = []

    def run(self) -> None:
        with patient.Client(base_url=self.url) as client:
            while not self.ended.wait(0.25):  # fewer than the limit of free calls, however long a version takes to open
                try:
                    answers = [client.get("/v1/hello/greet"), client.post("/hello/mcp", json=MCP_CALL, headers=MCP_HEADERS)]
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    continue
                self.failures += [answer.text for answer in answers if answer.status_code != 200 or 'isError":true' in answer.text]
                self.answers += [str(answer.json()["result"]) for answer in answers[:1]]


def test_each_call_is_shown_and_a_traceback_begins_with_the_error_and_the_lines_of_the_author(dev: Developed) -> None:
    assert dev.answer() == "one"  # the address is open before the file is loaded: the first call waits
    assert "there is no npx for the MCP Inspector" in dev.printed
    key = re.search(r"campus_live_\w+", dev.printed)
    assert key is not None
    bearer = {"Authorization": f"Bearer {key[0]}"}
    assert patient.get(f"{dev.url}/v1/hello/praise?name=Ada").status_code == 402
    assert patient.get(f"{dev.url}/v1/hello/praise?name=Ada", headers=bearer).status_code == 200
    call = {**MCP_CALL, "params": {"name": "praise", "arguments": {"name": "Ada"}}}
    patient.post(f"{dev.url}/hello/mcp", json=call, headers=MCP_HEADERS)
    dev.wait(lambda: len(re.findall(r"hello\.praise", dev.printed)) >= 3, "the calls are shown")
    shown = [line.split(None, 1)[1] for line in dev.printed.splitlines() if "hello.praise" in line]
    refused, answered, over_mcp = (re.sub(r"[0-9.]+ ms", "N ms", line) for line in shown)
    assert re.fullmatch(r"hello\.praise +http +127\.0\.0\.1 +\$0\.25 +N ms +402 Payment Required", refused)
    assert re.fullmatch(r"hello\.praise +http +key_\w+ +\$0\.25 +N ms +200 OK", answered)
    assert re.fullmatch(r"hello\.praise +mcp +127\.0\.0\.1 +\$0\.25 +N ms +402 Payment Required", over_mcp)
    assert "Ada" not in dev.printed
    assert patient.get(f"{dev.url}/v1/hello/count").status_code == 500
    dev.wait(lambda: "Traceback (most recent call last)" in dev.printed, "the failure is logged")
    logged = dev.printed.partition("a tool failed")[2].splitlines()[1:4]
    said = "ValueError: invalid literal for int() with base 10: 'one'"
    assert logged == [said, f'  File "{dev.file}", line {dev.line_of("int(")}, in count', '    return int("one")'], dev.printed


def test_a_save_is_served_by_a_new_process_without_a_refused_call_and_a_broken_one_leaves_the_last(dev: Developed) -> None:
    calls = Calls(dev.url)
    calls.start()
    before = len(dev.printed)
    dev.save('"one"', '"two"')
    dev.wait(lambda: dev.answer() == "two", "the saved file is served")
    dev.save('return "two"', 'return "two')
    dev.wait(lambda: "SyntaxError" in dev.printed, "the mistake is told")
    said = f"campus: {dev.file} cannot be loaded: SyntaxError: unterminated"
    line = next((line for line in dev.printed.splitlines() if line.startswith(said)), dev.printed)
    assert f"(at {dev.file}:{dev.line_of('return')})" in line
    assert "the last good version is still served" in dev.printed
    assert dev.answer() == "two"
    dev.save('return "two', 'return "two"')
    dev.save("return 7", "return 7 / 0")
    dev.wait(lambda: "ZeroDivisionError" in dev.printed, "a mistake that shows only when the building opens is told")
    assert f"cannot make its state: ZeroDivisionError: division by zero (at {dev.file}:{dev.line_of('7 / 0')})" in dev.printed
    assert dev.answer() == "two"
    endless = "import time; print('begun', flush=True); time.sleep(3600)\n"
    dev.save("from fastmcp", f"{endless}from fastmcp")
    dev.wait(lambda: "begun" in dev.printed, "a file that never ends to load is loaded")
    dev.save("return 7 / 0", "return 7")
    dev.save(endless, "")
    dev.save('"two"', '"three"')
    dev.wait(lambda: dev.answer() == "three", "the mended file is served")
    dev.wait(lambda: "three" in calls.answers, "the other caller gets it too")
    calls.ended.set()
    calls.join(patience(60))
    assert not calls.is_alive()
    assert calls.failures == []
    assert list(dict.fromkeys(calls.answers)) == ["one", "two", "three"]
    assert "Traceback" not in dev.printed[before:]


def test_its_key_is_revoked_when_it_ends(dev: Developed) -> None:
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(patience(30)) == 0, dev.printed
    listed = command("key", "list", "--json", "--config", str(dev.file)).stdout
    assert [row["state"] for row in json.loads(listed)] == ["revoked"]


def test_a_file_is_loaded_again_once_its_package_is_installed_and_nothing_goes_on_when_campus_dev_is_killed(tmp_path: Path) -> None:
    (packages := tmp_path / "packages").mkdir()
    (own := tmp_path / "own").mkdir()
    with developed(own, f"import tidesworth.tables\n{HELLO}", environ={"PYTHONPATH": str(packages)}, fresh=True) as dev:
        dev.wait(lambda: "ModuleNotFoundError: No module named 'tidesworth'" in dev.printed, "the missing package is named")
        assert "calls wait until it can be served" in dev.printed
        (packages / "tidesworth").mkdir()
        (packages / "tidesworth/__init__.py").touch()
        dev.wait(lambda: "No module named 'tidesworth.tables'" in dev.printed, "a package that is half there is no end")
        (packages / "tidesworth/tables.py").touch()
        assert dev.answer() == "one"
        if sys.platform != "linux":
            return  # processes are looked for in /proc
        assert _processes_of(dev.file)
        dev.process.kill()
        dev.process.wait()
        deadline = time.monotonic() + patience(60)
        while _processes_of(dev.file) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _processes_of(dev.file) == []


def _processes_of(file: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode().split("\0")
        except OSError:
            continue
        if str(file) in words:
            found.append(entry.parent.name)
    return found
