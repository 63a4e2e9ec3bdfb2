"""Stock OAuth clients of npm go from a bare URL to a tool's answer: both TypeScript SDKs, mcp-remote, Claude Code, Codex."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
from contract.served_campus import ServedCampus
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from lab.conformance.node import PROTOCOL, Node

PACKAGES = (*PROTOCOL, "mcp-remote@0.15.1", "@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0")
SCRIPT = Path(__file__).with_name("connect_with_typescript.mjs")
BROWSER = Path(__file__).parents[2] / "clients" / "browser.py"
TOOL = "top_cves_today"
RUN_SECONDS = 120


def connect_by_oauth_clients(node: Node, campus: ServedCampus) -> list[str]:
    url = f"{campus.url}/connect/cve/mcp"
    print("\nOAuth clients, from a bare URL")
    faults = list(by_typescript(node, campus, url))
    for name, connect in {"mcp-remote": by_mcp_remote, "claude": by_claude_code, "codex": by_codex}.items():
        home = node.folder / f"oauth-{name}"
        home.mkdir()
        try:
            found = list(connect(environment(node, home, campus.tokens.cve), home, url))
        except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
            found = [f"{name} failed: {error!r}"]
        print(f"  {name:14} {'; '.join(found) or 'ok'}")
        faults += found
    return faults


def environment(node: Node, home: Path, key: str) -> Mapping[str, str]:
    programs = home / "bin"
    programs.mkdir()
    browser = programs / "xdg-open"
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} {BROWSER} "$1"\n')
    browser.chmod(0o755)
    path = os.pathsep.join([str(programs), str(node.folder / "node_modules" / ".bin"), os.environ["PATH"]])
    quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return {"PATH": path, "HOME": str(home), "BROWSER": str(browser), "CAMPUS_KEY": key, "TERM": "dumb", "NO_COLOR": "1", **quiet}


def by_typescript(node: Node, campus: ServedCampus, url: str) -> Iterator[str]:
    shutil.copy(SCRIPT, node.folder)
    ran = node.run(node.folder / SCRIPT.name, url, campus.tokens.cve, TOOL, seconds=RUN_SECONDS)
    if ran.returncode != 0:
        yield f"the TypeScript clients cannot connect: {ran.stderr}"
        return
    for one in json.loads(ran.stdout):
        is_good = (one.get("is_error"), one.get("refreshed")) == (False, True)
        print(f"  {one['client']:14} {'ok' if is_good else one}")
        if not is_good:
            yield f"{one['client']} got {one}"


def by_mcp_remote(environ: Mapping[str, str], home: Path, url: str) -> Iterator[str]:
    """The bridge passes a tool's answer on."""

    async def called() -> bool:
        transport = StdioTransport("mcp-remote", [url], env=dict(environ), cwd=str(home), log_file=home / "mcp-remote.log")
        with anyio.fail_after(RUN_SECONDS):
            async with Client(transport) as client:
                return (await client.call_tool(TOOL, raise_on_error=False)).is_error

    if anyio.run(called):
        yield f"mcp-remote got an error from {TOOL}"


def by_claude_code(environ: Mapping[str, str], home: Path, url: str) -> Iterator[str]:
    """It logs in and then says that the server is connected; calls need a model."""
    in_terminal(["claude", "mcp", "add", "--transport", "http", "cve", url], environ, home)
    said = in_terminal(["claude", "mcp", "login", "cve"], environ, home)
    if "Authenticated" not in said or "Connected" not in in_terminal(["claude", "mcp", "list"], environ, home):
        yield f"Claude Code is not connected: {said[-300:]}"


def by_codex(environ: Mapping[str, str], home: Path, url: str) -> Iterator[str]:
    """It logs in when the server is added; calls need a model."""
    (home / ".codex").mkdir()
    said = in_terminal(["codex", "mcp", "add", "cve", "--url", url], environ, home)
    if "Successfully logged in" not in said:
        yield f"Codex is not logged in: {said[-300:]}"


def in_terminal(command: list[str], environ: Mapping[str, str], folder: Path) -> str:
    ours, its = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=environ, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    os.set_blocking(ours, False)
    said, give_up_at = b"", time.monotonic() + RUN_SECONDS
    while True:
        is_over = process.poll() is not None
        try:
            while part := os.read(ours, 65_536):
                said += part
        except OSError:  # nothing more at the moment, or for ever
            pass
        if is_over:
            break
        if time.monotonic() > give_up_at:
            process.kill()
            process.wait()
            raise TimeoutError(f"{' '.join(command[:3])} does not end: {said[-300:]!r}")
        time.sleep(0.1)
    os.close(ours)
    return said.decode(errors="replace")
