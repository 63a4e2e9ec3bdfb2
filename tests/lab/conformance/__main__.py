"""The checks that need minutes or Node.js: servers bare and served, direct MCP answers, the protocol's suite, stock clients, fuzzing.

PYTHONPATH=tests python -m lab.conformance [bare] [direct] [mcp] [inspector] [typescript] [payments] [crawler] [generated] [openapi]
[accessibility] [connect] [oauth] [hosts] [apps] [systemd]
"""

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from contract.direct_mcp import compare_direct_answers
from contract.served_campus import UNPAYABLE, serve_campus
from lab.conformance.accessibility import PACKAGES as RULES
from lab.conformance.accessibility import check_accessibility
from lab.conformance.apps import PACKAGES as APPS
from lab.conformance.apps import open_apps
from lab.conformance.bare import compare_as_bare
from lab.conformance.connecting import PACKAGES as STOCK_CLIENTS
from lab.conformance.connecting import connect_by_stock_clients
from lab.conformance.crawling import PACKAGES as CRAWLER
from lab.conformance.crawling import read_as_crawler
from lab.conformance.generated import PACKAGES as GENERATOR
from lab.conformance.generated import call_by_generated_clients
from lab.conformance.hosts import run_hosts
from lab.conformance.inspector import compare_by_inspector
from lab.conformance.mcp_suite import run_suites
from lab.conformance.node import INSPECTOR, PROTOCOL, Node
from lab.conformance.oauth_clients import PACKAGES as OAUTH_CLIENTS
from lab.conformance.oauth_clients import connect_by_oauth_clients
from lab.conformance.openapi_fuzz import fuzz
from lab.conformance.operating import operate
from lab.conformance.paying import PACKAGES as PAYERS
from lab.conformance.paying import pay_by_stock_clients
from lab.conformance.typescript import call_by_typescript

PACKAGES = {
    "mcp": PROTOCOL,
    "inspector": INSPECTOR,
    "typescript": PROTOCOL,
    "payments": PAYERS,
    "crawler": CRAWLER,
    "generated": GENERATOR,
    "accessibility": RULES,
    "connect": (*STOCK_CLIENTS, *PROTOCOL),
    "oauth": OAUTH_CLIENTS,
    "hosts": STOCK_CLIENTS,
    "apps": APPS,
}
PARTS = (
    *("bare", "direct", "mcp", "inspector", "typescript", "payments", "crawler", "generated", "openapi", "accessibility"),
    *("connect", "oauth", "hosts", "apps", "systemd"),
)


def main(parts: list[str]) -> int:
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"unknown part {', '.join(sorted(unknown))}; the parts are: {', '.join(PARTS)}")
    with TemporaryDirectory(prefix="campus-conformance-") as folder:
        faults = run(Path(folder), parts or list(PARTS))
    print("", *faults, f"{len(faults)} faults" if faults else "Everything conforms.", sep="\n")
    return 1 if faults else 0


def run_against_both_ways(node: Node, folder: Path, parts: list[str]) -> list[str]:
    for name in ("on", "off"):
        (folder / name).mkdir()
    faults: list[str] = []
    with (
        serve_campus(folder / "on", payments=UNPAYABLE) as direct,
        serve_campus(folder / "off", payments=UNPAYABLE, direct_mcp="off") as own,
    ):
        if "mcp" in parts:
            faults += run_suites(node, direct.url, own.url)
        if "inspector" in parts:
            faults += compare_by_inspector(node, direct, own)
    return faults


def connect_with_and_without_a_login(node: Node, folder: Path) -> list[str]:
    for name in ("key", "login"):
        (folder / name).mkdir()
    with (
        serve_campus(folder / "key", payments=UNPAYABLE) as campus,
        serve_campus(folder / "login", payments=UNPAYABLE, connect=True) as connected,
    ):
        return connect_by_stock_clients(node, campus, connected)


def run(folder: Path, parts: list[str]) -> list[str]:
    faults: list[str] = []
    node = Node(folder)
    if packages := dict.fromkeys(package for part in parts for package in PACKAGES.get(part, ())):
        node.install(packages)
    if "bare" in parts:
        faults += compare_as_bare()
    if "direct" in parts:
        faults += compare_direct_answers()
    if {"mcp", "inspector"} & set(parts):
        faults += run_against_both_ways(node, folder, parts)
    if "payments" in parts:
        faults += pay_by_stock_clients(node, folder / "payments")
    if "oauth" in parts:
        (folder / "oauth").mkdir()
        with serve_campus(folder / "oauth", payments=UNPAYABLE, connect=True) as campus:
            faults += connect_by_oauth_clients(node, campus)
            faults += call_by_typescript(node, campus)  # keys in headers are taken as before
    if "connect" in parts:
        faults += connect_with_and_without_a_login(node, folder)
    if "systemd" in parts:
        (folder / "systemd").mkdir()
        faults += operate(folder / "systemd")
    (folder / "campus").mkdir()
    with serve_campus(folder / "campus", payments=UNPAYABLE) as campus:
        if "typescript" in parts:
            faults += call_by_typescript(node, campus)
        if "crawler" in parts:
            faults += read_as_crawler(node, campus)
        if "generated" in parts:
            faults += call_by_generated_clients(node, campus)
        if "openapi" in parts:
            faults += fuzz(campus)
        if "accessibility" in parts:
            faults += check_accessibility(node, campus)
        if "hosts" in parts:
            faults += run_hosts(node, campus, folder / "home")
        if "apps" in parts:
            faults += open_apps(node, campus)
    return faults


signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started is stopped, as on an interrupt
sys.exit(main(sys.argv[1:]))
