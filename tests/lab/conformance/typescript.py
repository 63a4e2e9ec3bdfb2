"""Checks both TypeScript clients, which validate every result: a refusal must be returned, not thrown."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from contract.served_campus import ServedCampus
from lab.conformance.node import Node

SCRIPT = Path(__file__).with_name("call_with_typescript.mjs")
CLIENTS = 3
RUN_SECONDS = 120
FREE = {"brief_teaser", "next_teaser", "next_record", "brief_change_counts", "cve_facts"}
TOOLS = FREE | {
    "top_cves_today",
    "kev_fresh",
    "cve_verdict",
    "cve_history",
    "archived_brief",
    "brief_changes",
    "create_feed_url",
    "list_feed_urls",
    "create_watch",
    "list_watches",
    "watch_news",
    "next_in_kev",
    "cve_verdicts",
}
UNCALLED = {"keep_feed_url", "revoke_feed_url", "update_watch", "delete_watch"}
"""They need an id."""
REFUSALS = {"none": "access_required", "cve": None, "recorder": "insufficient_scope", "expired": "key_expired"}
"""The problem code of a paid tool for each key; None if it answers."""


def call_by_typescript(node: Node, campus: ServedCampus) -> list[str]:
    faults = []
    shutil.copy(SCRIPT, node.folder)
    arguments = {
        **{name: {"cve_id": "CVE-2021-44228"} for name in ("cve_verdict", "cve_facts")},
        "cve_history": {"cve_id": "CVE-2021-44228"},
        "cve_verdicts": {"cve_ids": ["CVE-2021-44228"]},
        "archived_brief": {"date": str(campus.day)},
        "create_watch": {"name": "generated", "least_score": 50},
    }
    for key, code in REFUSALS.items():
        token = "" if key == "none" else getattr(campus.tokens, key)
        script = node.folder / SCRIPT.name
        ran = node.run(script, f"{campus.url}/cve/mcp", token, json.dumps(arguments), seconds=RUN_SECONDS)
        if ran.returncode != 0:
            faults.append(f"the TypeScript clients with the key {key} failed: {ran.stderr}")
            continue
        calls = [call for call in json.loads(ran.stdout) if call["tool"] not in UNCALLED]
        found = list(faults_of(calls, code))
        print(f"\nTypeScript, key {key}: {len(calls)} calls, {len(found)} not as they should be; a paid tool answers {code or 'a result'}")
        faults += [f"with the key {key}, {fault}" for fault in found]
    return faults


def faults_of(calls: list[dict[str, str | bool | None]], code: str | None) -> Iterator[str]:
    if len(calls) != CLIENTS * len(TOOLS):
        yield f"{len(calls)} calls were made instead of {CLIENTS * len(TOOLS)}"
    for call in calls:
        wanted = None if call["tool"] in FREE else code
        name = f"{call['client']} calling {call['tool']}"
        if "thrown" in call:
            yield f"{name} threw {call['thrown']}"
        elif (call["is_error"], call["code"]) != (wanted is not None, wanted):
            yield f"{name} got {call['code'] or 'a result'} instead of {wanted or 'a result'}"
