"""The conformance checks that want minutes or node: the protocol's own suite, both TypeScript clients, Schemathesis in full.

PYTHONPATH=tests python -m conformance [mcp] [typescript] [openapi]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.mcp_suite import run_suites
from conformance.node import Node
from conformance.openapi_fuzz import fuzz
from conformance.town import open_town
from conformance.typescript import call_by_typescript

PARTS = ("mcp", "typescript", "openapi")


def main(parts: list[str]) -> int:
    """Run the parts that are named, all by default; 1 when something is wrong."""
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    with TemporaryDirectory(prefix="campus-conformance-") as folder:
        faults = run(Path(folder), parts or list(PARTS))
    print("", *faults, f"{len(faults)} faults" if faults else "Everything conforms.", sep="\n")
    return 1 if faults else 0


def run(folder: Path, parts: list[str]) -> list[str]:
    """What is wrong, in sentences."""
    faults: list[str] = []
    node = Node(folder)
    if {"mcp", "typescript"} & set(parts):
        node.install()
    (folder / "campus").mkdir()
    with open_town(folder / "campus") as town:
        if "mcp" in parts:
            faults += run_suites(node, town.url)
        if "typescript" in parts:
            faults += call_by_typescript(node, town)
        if "openapi" in parts:
            faults += fuzz(town)
    return faults


sys.exit(main(sys.argv[1:]))
