"""Checks that @agentcash/discovery, whose rules crawlers follow, reads every price and warns of nothing."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.served_campus import ServedCampus
from lab.conformance.node import Node

PACKAGES = ("@agentcash/discovery@1.7.5",)
SCRIPT = Path(__file__).with_name("read_as_crawler.mjs")
RUN_SECONDS = 120
PRICES = {
    "/v1/brief/today": "0.02 USD",
    "/v1/kev/fresh": "0.01 USD",
    "/v1/cve/{cve_id}": "0.005 USD",
    "/v1/archive/{date}": "0.05 USD",
    "/v1/next": "0.02 USD",
    "/v1/brief/changes": "0.02 USD",
    "/v1/cve/verdicts": "0.10 USD",
    "/v1/cve/{cve_id}/history": "0.01 USD",
}
OPTIONAL = {"OPENAPI_CONTACT_MISSING", "L4_GUIDANCE_MISSING", "MPP_NO_PAYMENT_CHALLENGES"}
"""Warnings about optional members, and one of MPP, another protocol, which treats every WWW-Authenticate as its own."""


def read_as_crawler(node: Node, campus: ServedCampus) -> list[str]:
    shutil.copy(SCRIPT, node.folder)
    ran = node.run(node.folder / SCRIPT.name, campus.url, seconds=RUN_SECONDS)
    if ran.returncode != 0:
        return [f"@agentcash/discovery failed: {ran.stderr}"]
    found = json.loads(ran.stdout)
    print("\n@agentcash/discovery")
    for route in found["routes"]:
        print(f"  {route['path']:24} {route['mode'] or 'no call':12} {route['price'] or ''} {' '.join(route['protocols'])}")
    return list(faults_of(found))


def faults_of(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    sold = {route["path"]: route["price"] for route in found["routes"] if route["mode"] == "paid" and route["protocols"] == ["x402"]}
    if sold != PRICES:
        yield f"@agentcash/discovery reads the prices {sold} instead of {PRICES}"
    for one in found["warnings"]:
        if one["code"] not in OPTIONAL:
            yield f"@agentcash/discovery: {one['severity']} {one['code']} at {one.get('path', '/')}: {one['message']}"
