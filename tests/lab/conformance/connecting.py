"""Runs the texts of how_to_connect with the very clients: each lists the servers' tools, with a key and without one.

With a key it does so with `[connect]` on and off, and so do the SDKs: whatever each asks of OAuth is answered with 404.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

import anyio
from clients.recording import QuietServer, Recorder, recording
from clients.test_clients import MCP1
from clients.test_clients import SCRIPT as BY_MCP1
from contract.served_campus import ServedCampus
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from lab.conformance.node import Node
from lab.conformance.typescript import SCRIPT as BY_TYPESCRIPT

from tests import patient

PACKAGES = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0", "@google/gemini-cli@0.61.0", "mcp-remote@0.15.1")
LIBRARIES = ("langchain-mcp-adapters", "pydantic-ai-slim[openai,mcp]", "openai-agents", "openai")
TOOL = "top_cves_today"
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
        path = f"{self.node.folder / 'node_modules' / '.bin'}:{os.environ['PATH']}"
        keyed = {"CAMPUS_KEY": self.key} if self.key else {}
        quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CI": "1"}
        trusted = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": "unused", "OPENAI_API_KEY": "unused"}
        return {"PATH": path, "HOME": str(self.home), "TERM": "dumb", "NO_COLOR": "1", **quiet, **trusted, **keyed}

    def run(self, command: str, *, given: str | None = None) -> str:
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


Check = Callable[[Trial, Recorder], Iterator[str]]


def connect_by_stock_clients(node: Node, campus: ServedCampus, connected: ServedCampus) -> list[str]:
    """Run every text that a program here can run, print a table, return the faults.

    Those with a key, and SDKs that send one, run a second time against `connected`, which has a table `[connect]`. It would send
    Claude Desktop to its login: all texts are `campus`'s.
    """
    folder = node.folder / "connecting"
    folder.mkdir()
    python = installed_libraries(folder)
    clients = {one["id"]: one for one in patient.get(f"{campus.url}/v1/gateway/how_to_connect").json()["clients"]}
    faults: list[str] = []
    for state, served, ways in (("off", campus, WAYS), ("on", connected, WAYS[1:])):
        print(f"\nhow_to_connect: texts run by their clients, with [connect] {state}")
        with recording(served.url) as recorder:
            for client, check in checks(python).items():
                for way in ways:
                    setup = clients[client][way]
                    text = setup["text"].replace(campus.url, recorder.url)
                    home = folder / f"{client}-{way}-{state}"
                    home.mkdir()
                    key = served.tokens.campus_pass if way == "with_key" else None
                    trial = Trial(client, setup["where"], text, key, home, node)
                    faults += [f"{client}, {way}, [connect] {state}: {fault}" for fault in tried(trial, check, recorder, way)]
            for client, check in SDKS.items():
                trial = Trial(client, "", f"{recorder.url}/cve/mcp", served.tokens.campus_pass, folder, node)
                faults += [f"{client}, [connect] {state}: {fault}" for fault in tried(trial, check, recorder, "with_key")]
    marked = {name for name, one in clients.items() if one["checked"] == "run"}
    if python and marked - set(checks(python)):
        faults.append(f"marked as run, but not run here: {', '.join(sorted(marked - set(checks(python))))}")
    return faults


def tried(trial: Trial, check: Check, recorder: Recorder, way: str) -> list[str]:
    found = list(faults_of(trial, check, recorder))
    outcome = "; ".join(found) or ("ok" if recorder.asked else "not run")
    print(f"  {trial.client:18} {way:12} {len(recorder.asked):3} requests, {len(recorder.oauth()):2} of them OAuth's  {outcome}")
    return found


def checks(python: Path | None) -> Mapping[str, Check]:
    found: dict[str, Check] = {
        "claude-code": listed_as_connected("claude mcp list"),
        "gemini-cli": listed_as_connected("gemini mcp list"),
        "codex": configured_in_codex,
        "claude-desktop": bridged,
    }
    return found | ({name: program(python) for name in PROGRAMS} if python else {})


def faults_of(trial: Trial, check: Check, recorder: Recorder) -> Iterator[str]:
    recorder.asked.clear()
    try:
        yield from check(trial, recorder)
    except (RuntimeError, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
        yield str(error)
    if served := [one for one in recorder.oauth() if one.status != 404]:
        yield f"an address of OAuth was answered: {served[0]}"


def keys_that_were_sent(trial: Trial, recorder: Recorder) -> Iterator[str]:
    expected = {"/cve/mcp": {f"Bearer {trial.key}" if trial.key else None}, "/mcp": {None}}
    for path, keys in expected.items():
        if recorder.keys(path) != keys:
            kinds = {"no key" if one is None else "the key" if one in keys else "another header" for one in recorder.keys(path)}
            yield f"{path} received {', '.join(sorted(kinds)) or 'nothing'}"


def listed_as_connected(command: str) -> Check:
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
    for path in trial.home.rglob("*"):
        if trial.key and path.is_file() and trial.key.encode() in path.read_bytes():
            yield f"the key is in {path.relative_to(trial.home)}"


def configured_in_codex(trial: Trial, recorder: Recorder) -> Iterator[str]:
    """What it stored is compared, and a session, whose model is not found, connects."""
    trial.run(trial.text)
    stored = json.loads(trial.run("codex mcp get cve --json 2>/dev/null"))["transport"]
    if (stored["url"], stored.get("bearer_token_env_var")) != (f"{recorder.url}/cve/mcp", "CAMPUS_KEY" if trial.key else None):
        yield f"Codex stored {stored}"
    settings = f'name="none",base_url="{recorder.url}/no-model",request_max_retries=0,stream_max_retries=0'
    trial.run(
        f"codex exec --skip-git-repo-check -m none -c model_provider=none -c 'model_providers.none={{{settings}}}' 'Say nothing.' || true"
    )
    yield from keys_that_were_sent(trial, recorder)
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


def program(python: Path) -> Check:
    def check(trial: Trial, recorder: Recorder) -> Iterator[str]:
        with answering_as_openai() as address:
            printed = trial.run(f"export OPENAI_BASE_URL={address}; exec {python} {DRIVER}", given=trial.text)
        listed = set(json.loads(printed.splitlines()[-1]))
        if missing := {"list_buildings", "cve_verdict", "heartbeat"} - listed:
            yield f"no {', '.join(sorted(missing))} in its tools"
        yield from keys_that_were_sent(trial, recorder)

    return check


def sdk(call: Callable[[Trial], Sequence[bool]]) -> Check:
    def check(trial: Trial, recorder: Recorder) -> Iterator[str]:
        refused = call(trial)
        if any(refused) or not refused:
            yield f"{sum(refused)} of {len(refused)} calls of {TOOL} were refused"
        if recorder.keys("/cve/mcp") != {f"Bearer {trial.key}"}:
            yield "not every request had the key, and nothing else, in its header"

    return check


def by_fastmcp(trial: Trial) -> Sequence[bool]:
    """In both generations of the protocol."""

    async def refused(mode: Literal["auto", "legacy"]) -> bool:
        transport = StreamableHttpTransport(trial.text, headers={"Authorization": f"Bearer {trial.key}"})
        async with Client(transport, mode=mode) as client:
            return (await client.call_tool(TOOL, raise_on_error=False)).is_error

    return [anyio.run(refused, mode) for mode in ("auto", "legacy")]


def by_mcp1(trial: Trial) -> Sequence[bool]:
    """mcp 1.x, in its own virtual environment."""
    given = json.dumps([{"url": trial.text, "key": trial.key, "calls": [[TOOL, {}]]}])
    ran = subprocess.run([MCP1, BY_MCP1], input=given, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr[-1500:])
    return [result["is_error"] for visit in json.loads(ran.stdout) for result in visit["results"]]


def by_typescript(trial: Trial) -> Sequence[bool]:
    """Both SDKs, the second in both generations of the protocol."""
    shutil.copy(BY_TYPESCRIPT, trial.node.folder)
    ran = trial.node.run(trial.node.folder / BY_TYPESCRIPT.name, trial.text, trial.key or "", "{}", seconds=RUN_SECONDS)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr[-1500:])
    return [call.get("is_error", True) for call in json.loads(ran.stdout) if call["tool"] == TOOL]


SDKS = {"fastmcp": sdk(by_fastmcp), "mcp 1.x": sdk(by_mcp1), "TypeScript SDKs": sdk(by_typescript)}


@contextmanager
def answering_as_openai() -> Iterator[str]:
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
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *LIBRARIES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if ran.returncode == 0:
        return python
    print(f"\nnot run: {', '.join(PROGRAMS)}; pip could not install their libraries: {ran.stderr[-500:]}")
    return None
