"""Checks the types that openapi-typescript generates from the documents: calls of every tool compile and are answered."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.served_campus import ServedCampus
from lab.conformance.node import Node

from tests import patient

PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@22")
HERE = Path(__file__).parent
CVE, WATCHES, RECORDER, OTHERS = (f"generated_{name}.mts" for name in ("cve", "watches", "recorder", "others"))
SCRIPTS = {"/v1/openapi.json": (CVE, WATCHES, RECORDER, OTHERS), "/openapi.json": (CVE,), "/recorder/openapi.json": (RECORDER,)}
OPTIONS = ("--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--types", "node")
RUN_SECONDS = 120


def call_by_generated_clients(node: Node, campus: ServedCampus) -> list[str]:
    return [fault for document in SCRIPTS for fault in faults_of(node, campus, document)]


def faults_of(node: Node, campus: ServedCampus, document: str) -> Iterator[str]:
    folder = node.folder / f"generated{document.replace('/', '_').removesuffix('.json')}"
    folder.mkdir()
    (folder / "document.json").write_text(patient.get(campus.url + document).text)
    ran = tool(node, folder, "openapi-typescript", "document.json", "-o", "document.d.ts")
    if ran.returncode != 0:
        yield f"openapi-typescript failed on {document}: {ran.stdout}{ran.stderr}"
        return
    for script in SCRIPTS[document]:
        shutil.copy(HERE / script, folder)
    compiled = tool(node, folder, "tsc", *OPTIONS, *SCRIPTS[document])
    if compiled.returncode != 0:
        yield f"the calls do not fit the types of {document}: {compiled.stdout}"
    called: set[str] = set()
    for script in SCRIPTS[document]:
        yield from calls(node, campus, folder / script, document, called)
    if missing := tools_of(json.loads((folder / "document.json").read_text())) - called:
        yield f"no call by the types of {document}: {', '.join(sorted(missing))}"


def tools_of(document: dict[str, Any]) -> set[str]:
    return {
        operation["operationId"].removeprefix(f"{operation.get('tags', [''])[0]}_").removesuffix(f"_{method}")
        for path in document["paths"].values()
        for method, operation in path.items()
        if "operationId" in operation
    }


def calls(node: Node, campus: ServedCampus, script: Path, document: str, called: set[str]) -> Iterator[str]:
    ran = node.run(script, campus.url, campus.tokens.campus_pass, str(campus.day), seconds=RUN_SECONDS)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    print(f"  {document:24} {script.name:24} {len(answers)} calls, {sum(one['ok'] for one in answers)} answered")
    if ran.returncode != 0:
        yield f"{script.name} by the types of {document} failed: {ran.stderr}"
    called |= {one["name"] for one in answers}
    yield from (f"{one['name']} by the types of {document} answered {one['status']}" for one in answers if not one["ok"])


def tool(node: Node, folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return node.run(node.folder / "node_modules" / ".bin" / name, *words, seconds=RUN_SECONDS, folder=folder)
