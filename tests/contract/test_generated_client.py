"""A client generated from the documents by openapi-python-client: it has every operation, and calls every tool."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import httpx
import pytest
from contract.every_tool import CALLS, answered_otherwise
from contract.served_campus import ServedCampus
from patience import patience

from tests import forkserver, patient

DOCUMENTS = {"whole": "/v1/openapi.json", "first": "/openapi.json", "monitors": "/recorder/openapi.json"}
GENERATOR = "from openapi_python_client.cli import app\napp()"
GENERATE_SECONDS = 100
TAKEN = ("client", "url")
"""Names that the generated functions have themselves: the generator calls such an argument after its place."""


@dataclass
class Generated:
    """A generated client of one document; `called` are the operations that it called."""

    package: str
    document: Mapping[str, Any]
    client: Any
    called: set[str] = field(default_factory=set)

    @property
    def operations(self) -> dict[str, Mapping[str, Any]]:
        return {each["operationId"]: each for item in self.document["paths"].values() for each in item.values()}

    def call(self, identity: str, arguments: Mapping[str, Any]) -> Any:
        """Call an operation; what cannot be an argument of it goes into its body."""
        module = self._module(identity)
        arguments = {f"{name}_query" if name in TAKEN else name: value for name, value in arguments.items()}
        content = self.operations[identity].get("requestBody", {}).get("content", {})
        in_body = content.get("application/json", {}).get("schema", {}).get("properties", {})  # beside a text they may be in the query
        known = {name: value for name, value in arguments.items() if name in module.sync_detailed.__annotations__ and name not in in_body}
        if body := module.sync_detailed.__annotations__.get("body"):
            kind = next(one for one in (body, *get_args(body)) if hasattr(one, "from_dict"))
            known["body"] = kind.from_dict({name: value for name, value in arguments.items() if name not in known})
        else:
            assert known == dict(arguments)
        self.called.add(identity)
        types = module.sync_detailed.__annotations__
        return module.sync_detailed(**{name: typed(value, types[name]) for name, value in known.items()}, client=self.client)

    def _module(self, identity: str) -> ModuleType:
        group = next(iter(self.operations[identity].get("tags", ["default"])))
        return importlib.import_module(f"{self.package}.api.{group}.{identity}")


def typed(value: Any, annotation: Any) -> Any:
    if isinstance(value, str) and date in get_args(annotation):
        return date.fromisoformat(value)
    kinds = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, Enum)]
    return kinds[0](value) if kinds and isinstance(value, str) else value


def generate(folder: Path, documents: Mapping[str, Mapping[str, Any]]) -> None:
    (folder / "options.json").write_text(json.dumps({"post_hooks": []}))

    def generated(package: str) -> subprocess.CompletedProcess[str]:
        (source := folder / f"{package}.json").write_text(json.dumps(documents[package]))
        words = ["--path", str(source), "--output-path", str(folder / package), "--config", str(folder / "options.json")]
        options = ["--meta", "none", "--fail-on-warning"]
        return forkserver.shared().run(
            GENERATOR, "generate", *words, *options, imports=["openapi_python_client.cli"], timeout=patience(GENERATE_SECONDS)
        )

    with ThreadPoolExecutor() as threads:
        for ended in threads.map(generated, documents):
            assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def packages(campus: ServedCampus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, Mapping[str, Any]]]]:
    """The package made of each document, and the document, by its path."""
    folder = tmp_path_factory.mktemp("clients")
    documents = {path: (f"generated_{name}", patient.get(campus.url + path).json()) for name, path in DOCUMENTS.items()}
    generate(folder, dict(documents.values()))
    sys.path.insert(0, str(folder))
    yield documents
    sys.path.remove(str(folder))


@pytest.mark.parametrize("path", DOCUMENTS.values())
def test_a_generated_client_calls_every_tool_and_reads_every_answer(campus: ServedCampus, packages: Mapping[str, Any], path: str) -> None:
    package, document = packages[path]
    made = importlib.import_module(package).AuthenticatedClient(campus.url, campus.tokens.campus_pass, timeout=httpx.Timeout(patience(60)))
    known: dict[str, Any] = {"day": str(campus.day)}
    with made as client:
        generated = Generated(package, document, client)
        for call in CALLS:
            for identity in named(call.tool, generated.operations):
                answer = generated.call(identity, call.arguments(known))
                raw = json.loads(answer.content)
                assert answered_otherwise(call, answer.status_code, raw) is None, raw
                assert unread(answer.parsed.to_dict(), raw) == [], identity
                known |= call.learned(raw)
    assert generated.called == set(generated.operations)


def named(tool: str, identities: Mapping[str, Any]) -> Sequence[str]:
    return [each for each in identities if each == tool or each.partition("_")[2] == tool]


def unread(parsed: Any, raw: Any, place: str = "") -> list[str]:
    if isinstance(raw, dict) and isinstance(parsed, dict):
        if parsed.keys() != raw.keys():
            return [f"{place}: {sorted(parsed.keys() ^ raw.keys())}"]
        return [each for name in raw for each in unread(parsed[name], raw[name], f"{place}/{name}")]
    if isinstance(raw, list) and isinstance(parsed, list) and len(raw) == len(parsed):
        return [each for index, one in enumerate(raw) for each in unread(parsed[index], one, f"{place}/{index}")]
    is_time = isinstance(raw, str) and isinstance(parsed, str) and raw[10:11] == "T"
    return [] if parsed == raw or (is_time and parsed[:19] == raw[:19]) else [f"{place}: {parsed!r} is not {raw!r}"]
