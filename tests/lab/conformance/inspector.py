"""What the Inspector prints of a campus with direct MCP answers and of one without."""

import json
import re
from collections.abc import Sequence

from contract.served_campus import ServedCampus
from lab.conformance.node import Node

INSPECTED: Sequence[tuple[str, Sequence[str]]] = (
    *((path, ("--method", "tools/list")) for path in ("/mcp", "/cve/mcp", "/recorder/mcp", "/checkout/mcp")),
    ("/mcp", ("--method", "tools/call", "--tool-name", "list_buildings")),
    ("/cve/mcp", ("--method", "tools/call", "--tool-name", "brief_teaser")),
    ("/cve/mcp", ("--method", "tools/call", "--tool-name", "cve_verdict", "--tool-arg", "cve_id=CVE-2021-44228")),
    ("/cve/mcp", ("--method", "tools/call", "--tool-name", "top_cves_today", "--header", "Authorization: Bearer {key}")),
    ("/recorder/mcp", ("--method", "tools/call", "--tool-name", "fleet_status")),
)
"""What the Inspector asks, and of which server."""
INSPECTOR_SCRIPT = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
INSPECTOR_SECONDS = 60
FAILED = "it failed"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def compare_by_inspector(node: Node, direct: ServedCampus, own: ServedCampus) -> list[str]:
    faults = []
    for path, options in INSPECTED:
        printed = [inspected(node, campus, path, options) for campus in (direct, own)]
        what, is_same = f"the Inspector, {' '.join(options[1::2])} on {path}", printed[0] == printed[1]
        print(f"{what}: {len(printed[0])} characters, {'the same' if is_same else 'others'} without direct answers")
        if not is_same or printed[0].startswith(FAILED):
            faults.append(f"{what}: {printed[0]} directly, {printed[1]} by the server")
    return faults


def inspected(node: Node, campus: ServedCampus, path: str, options: Sequence[str]) -> str:
    words = [option.format(key=campus.tokens.campus_pass) for option in options]
    words = ["--cli", campus.url + path, "--transport", "http", *words, "--header", "X-Request-Id: inspector"]
    ran = node.run(node.folder / INSPECTOR_SCRIPT, *words, seconds=INSPECTOR_SECONDS)
    if not ran.stdout.startswith("{"):
        return f"{FAILED}: {ran.stdout}{ran.stderr}"
    return TIME.sub("(time)", json.dumps(json.loads(ran.stdout), sort_keys=True).replace(campus.url, ""))
