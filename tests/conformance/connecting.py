"""Runs the texts of how_to_connect with the very clients: each lists the servers' tools, with a key and without one."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anyio
import httpx
from conformance.node import Node
from conformance.recording import QuietServer, Recorder, recording
from conformance.served_campus import ServedCampus
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

PACKAGES = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0", "@google/gemini-cli@0.61.0", "mcp-remote@0.15.1")
LIBRARIES = ("langchain-mcp-adapters", "pydantic-ai-slim[openai,mcp]", "openai-agents", "openai")
PROGRAMS = ("openai-responses", "langchain", "pydantic-ai", "openai-agents")
DRIVER = Path(__file__).with_name("run_program.py")
WAYS = ("without_key", "with_key")
RUN_SECONDS = 180
INSTALL_SECONDS = 900
CONNECTED = ("Connected", "connected")


@dataclass(frozen=True)
class Trial:
    """One text of one client, with the address of the recorder in it. `key` is None where the text has none."""

    client: str
    where: str
    text: str
    key: str | None
    home: Path
    node: Node

    @property
    def environ(self) -> dict[str, str]:
        """A home directory of its own, the programs of Node.js, and the key."""
        path = f"{self.node.folder / 'node_modules' / '.bin'}:{os.environ['PATH']}"
        keyed = {"CAMPUS_KEY": self.key} if self.key else {}
        quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CI": "1"}
        trusted = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": "unused", "OPENAI_API_KEY": "unused"}
        return {"PATH": path, "HOME": str(self.home), "TERM": "dumb", "NO_COLOR": "1", **quiet, **trusted, **keyed}

    def run(self, command: str, *, given: str | None = None) -> str:
        """Run a shell command in the home directory; its output. Raises RuntimeError when it fails."""
        ran = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.home,
            env=self.environ,
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"{command[:80]!r} failed: {ran.stdout[-1500:]}{ran.stderr[-1500:]}")
        return ran.stdout + ran.stderr


def connect_by_stock_clients(node: Node, campus: ServedCampus) -> list[str]:
    """Run every text that a program here can run, print a table, return the faults."""
    folder = node.folder / "connecting"
    folder.mkdir()
    python = installed_libraries(folder)
    clients = {one["id"]: one for one in httpx.get(f"{campus.url}/v1/gateway/how_to_connect").json()["clients"]}
    faults: list[str] = []
    print("\nhow_to_connect: texts run by their clients")
    with recording(campus.url) as recorder:
        for client, check in checks(python).items():
            for way in WAYS:
                setup = clients[client][way]
                text = setup["text"].replace(campus.url, recorder.url)
                home = folder / f"{client}-{way}"
                home.mkdir()
                trial = Trial(client, setup["where"], text, campus.tokens.campus_pass if way == "with_key" else None, home, node)
                found = list(faults_of(trial, check, recorder))
                outcome = "; ".join(found) or ("ok" if recorder.asked else "not run")
                print(f"  {client:18} {way:12} {len(recorder.asked):3} requests  {outcome}")
                faults += [f"{client}, {way}: {fault}" for fault in found]
        marked = {name for name, one in clients.items() if one["checked"] == "run"}
        if python and marked - set(checks(python)):
            faults.append(f"marked as run, but not run here: {', '.join(sorted(marked - set(checks(python))))}")
    return faults


def checks(python: Path | None) -> Mapping[str, Callable[[Trial, Recorder], Iterator[str]]]:
    """What runs here: the commands and the bridge, and the programs where their libraries could be installed."""
    found: dict[str, Callable[[Trial, Recorder], Iterator[str]]] = {
        "claude-code": listed_as_connected("claude mcp list"),
        "gemini-cli": listed_as_connected("gemini mcp list"),
        "codex": configured_in_codex,
        "claude-desktop": bridged,
    }
    return found | ({name: program(python) for name in PROGRAMS} if python else {})


def faults_of(trial: Trial, check: Callable[[Trial, Recorder], Iterator[str]], recorder: Recorder) -> Iterator[str]:
    recorder.asked.clear()
    try:
        yield from check(trial, recorder)
    except (RuntimeError, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
        yield str(error)
    if served := recorder.oauth():
        yield f"an address of OAuth was answered: {served[0]}"


def keys_that_were_sent(trial: Trial, recorder: Recorder) -> Iterator[str]:
    """The paid server got the key, and the free one none."""
    expected = {"/cve/mcp": {f"Bearer {trial.key}" if trial.key else None}, "/mcp": {None}}
    for path, keys in expected.items():
        if recorder.keys(path) != keys:
            kinds = {"no key" if one is None else "the key" if one in keys else "another header" for one in recorder.keys(path)}
            yield f"{path} received {', '.join(sorted(kinds)) or 'nothing'}"


def listed_as_connected(command: str) -> Callable[[Trial, Recorder], Iterator[str]]:
    """The client connects to each server and says so."""

    def check(trial: Trial, recorder: Recorder) -> Iterator[str]:
        if trial.where.startswith("~/"):
            settings = trial.home / trial.where.removeprefix("~/")
            settings.parent.mkdir(parents=True)
            settings.write_text(trial.text)
        else:
            trial.run(trial.text)
        shown = trial.run(command)
        for name in ("gateway", "cve", "recorder"):
            line = next((line for line in shown.splitlines() if f"{name}:" in line), "")
            if not any(word in line for word in CONNECTED) or "Disconnected" in line:
                yield f"{name} is not connected: {line or shown[-300:]}"
        yield from keys_that_were_sent(trial, recorder)
        yield from keys_in_files(trial)

    return check


def keys_in_files(trial: Trial) -> Iterator[str]:
    """The key is in no file that the client wrote."""
    for path in trial.home.rglob("*"):
        if trial.key and path.is_file() and trial.key.encode() in path.read_bytes():
            yield f"the key is in {path.relative_to(trial.home)}"


def configured_in_codex(trial: Trial, recorder: Recorder) -> Iterator[str]:
    """Codex connects only together with a model: what it stored is compared."""
    trial.run(trial.text)
    stored = json.loads(trial.run("codex mcp get cve --json 2>/dev/null"))["transport"]
    if (stored["url"], stored.get("bearer_token_env_var")) != (f"{recorder.url}/cve/mcp", "CAMPUS_KEY" if trial.key else None):
        yield f"Codex stored {stored}"
    yield from keys_in_files(trial)


def bridged(trial: Trial, recorder: Recorder) -> Iterator[str]:
    """The bridge runs as Claude Desktop starts it; without a key the text is a dialog's, which no program here has."""
    if trial.key is None:
        return
    servers = json.loads(trial.text.replace("Bearer KEY", f"Bearer {trial.key}"))["mcpServers"]

    async def listed(name: str) -> list[str]:
        given, log = {**trial.environ, **servers[name].get("env", {})}, trial.home / f"{name}.log"
        transport = StdioTransport(servers[name]["command"], servers[name]["args"], env=given, cwd=str(trial.node.folder), log_file=log)
        async with Client(transport, timeout=RUN_SECONDS, mode="legacy") as client:
            return [tool.name for tool in await client.list_tools()]

    for name, tool in {"gateway": "list_buildings", "cve": "cve_verdict"}.items():
        if tool not in anyio.run(listed, name):
            yield f"{name} lists no {tool}"
    yield from keys_that_were_sent(trial, recorder)


def program(python: Path) -> Callable[[Trial, Recorder], Iterator[str]]:
    """The program runs with its library and lists the tools."""

    def check(trial: Trial, recorder: Recorder) -> Iterator[str]:
        with answering_as_openai() as address:
            printed = trial.run(f"export OPENAI_BASE_URL={address}; exec {python} {DRIVER}", given=trial.text)
        listed = set(json.loads(printed.splitlines()[-1]))
        if missing := {"list_buildings", "cve_verdict", "heartbeat"} - listed:
            yield f"no {', '.join(sorted(missing))} in its tools"
        yield from keys_that_were_sent(trial, recorder)

    return check


@contextmanager
def answering_as_openai() -> Iterator[str]:
    """A receiver of the Responses API's requests: it connects to the servers of the request, as OpenAI does, and answers their tools."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            listed = [name for tool in asked["tools"] for name in anyio.run(tools_at, tool)]
            text = {"type": "output_text", "text": json.dumps(listed), "annotations": []}
            message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
            answer = {"id": "resp_1", "object": "response", "created_at": 0, "model": asked["model"], "output": [message]}
            body = json.dumps(answer | {"parallel_tool_calls": True, "tool_choice": "auto", "tools": asked["tools"]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

    server = QuietServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


async def tools_at(tool: Mapping[str, Any]) -> list[str]:
    """The tools of a server of the request, which has the form that OpenAI documents."""
    assert tool["type"] == "mcp"
    assert tool["require_approval"] == {"never": {"read_only": True}}
    async with Client(StreamableHttpTransport(tool["server_url"], headers=tool.get("headers", {}))) as client:
        return [one.name for one in await client.list_tools()]


def installed_libraries(folder: Path) -> Path | None:
    """The Python of a virtual environment with the libraries; None, and a line that says so, if they cannot be installed."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *LIBRARIES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if ran.returncode == 0:
        return python
    print(f"\nnot run: {', '.join(PROGRAMS)}; pip could not install their libraries: {ran.stderr[-500:]}")
    return None
