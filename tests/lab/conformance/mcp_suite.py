"""The protocol's own conformance suite against every MCP server, for every revision that it knows."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.conformance.node import Node

SUITES = ("stable", "next")
PATHS = ("/mcp", "/cve/mcp", "/recorder/mcp", "/checkout/mcp")
COMPARED = ("/recorder/mcp", "/checkout/mcp")
"""Here the suite runs once more, on the same servers without direct answers: every check must end alike."""
SCENARIO_MILLISECONDS = 15_000
RUN_SECONDS = 300
EVERY_ANSWER = "wire-schema-valid"  # checked with every scenario
SCENARIO = re.compile(r"^  - (\S+) \[([^\]]*)\]$", re.MULTILINE)

FIXTURES: Mapping[str, str] = {
    "completion-complete": "the prompt test_prompt_with_arguments",
    "elicitation-sep1034-defaults": "the tool test_elicitation_sep1034_defaults",
    "elicitation-sep1330-enums": "the tool test_elicitation_sep1330_enums",
    "http-custom-header-server-validation": "a tool with x-mcp-header",
    "input-required-result-basic-elicitation": "the tool test_input_required_result_elicitation",
    "input-required-result-basic-list-roots": "the tool test_input_required_result_list_roots",
    "input-required-result-basic-sampling": "the tool test_input_required_result_sampling",
    "input-required-result-capability-check": "the tool test_input_required_result_capabilities",
    "input-required-result-multi-round": "the tool test_input_required_result_multi_round",
    "input-required-result-multiple-input-requests": "the tool test_input_required_result_multiple_inputs",
    "input-required-result-non-tool-request": "the prompt test_input_required_result_prompt",
    "input-required-result-request-state": "the tool test_input_required_result_request_state",
    "input-required-result-result-type": "the tool test_input_required_result_elicitation",
    "input-required-result-tampered-state": "the tool test_input_required_result_tampered_state",
    "json-schema-2020-12": "the tool json_schema_2020_12_tool",
    "prompts-get-embedded-resource": "the prompt test_prompt_with_embedded_resource",
    "prompts-get-simple": "the prompt test_simple_prompt",
    "prompts-get-with-args": "the prompt test_prompt_with_arguments",
    "prompts-get-with-image": "the prompt test_prompt_with_image",
    "resources-read-binary": "the resource test://static-binary",
    "resources-read-text": "the resource test://static-text",
    "resources-subscribe": "the resource test://watched-resource",
    "resources-templates-read": "the resource test://template/{id}/data",
    "resources-unsubscribe": "the resource test://watched-resource",
    "sep-2575-missing-capability-http-400": "the tool test_missing_capability",
    "sep-2575-server-rejects-undeclared-capability": "the tool test_missing_capability",
    "server-sse-polling": "the tool test_reconnection",
    "tools-call-audio": "the tool test_audio_content",
    "tools-call-elicitation": "the tool test_elicitation",
    "tools-call-embedded-resource": "the tool test_embedded_resource",
    "tools-call-image": "the tool test_image_content",
    "tools-call-mixed-content": "the tool test_multiple_content_types",
    "tools-call-sampling": "the tool test_sampling",
    "tools-call-with-logging": "the tool test_tool_with_logging",
    "tools-call-with-progress": "the tool test_tool_with_progress",
}
"""Scenarios and single checks that call something which only the suite's own server has."""


@dataclass(frozen=True)
class Check:
    """One check of one run."""

    scenario: str
    id: str
    status: str
    why: str

    @property
    def fixture(self) -> str | None:
        """The fixture of the suite's own server that the check needs; None if it applies to every server."""
        return None if self.id == EVERY_ANSWER else FIXTURES.get(self.id) or FIXTURES.get(self.scenario)

    @property
    def verdict(self) -> str:
        """pass, FAIL, n/a (a fixture is missing), or the suite's own: warning, skipped."""
        if self.status == "FAILURE":
            return "n/a" if self.fixture else "FAIL"
        return "pass" if self.status == "SUCCESS" else self.status.lower()


def run_suites(node: Node, url: str, without_direct_answers: str) -> list[str]:
    faults: list[str] = []
    missing: dict[str, str | None] = {}
    for suite in SUITES:
        listed = scenarios_of(node, suite)
        for revision in sorted(set().union(*listed.values())):
            wanted = [name for name, revisions in listed.items() if revision in revisions]
            for path in PATHS:
                print(f"\nMCP {revision} on {path}, suite {suite}")
                checks = list(run_suite(node, suite, revision, url + path))
                report(checks)
                missing |= {f"{one.scenario}: {one.id}": one.fixture for one in checks if one.verdict == "n/a"}
                found = list(faults_of(checks, wanted))
                if path in COMPARED:
                    found += differences(checks, list(run_suite(node, suite, revision, without_direct_answers + path)))
                faults += [f"{suite} {revision} {path}: {fault}" for fault in found]
    print("\nNot applicable, since the suite's own fixture is missing here:")
    for name, fixture in sorted(missing.items()):
        print(f"  {name} needs {fixture}")
    return faults


def differences(checks: Sequence[Check], without: Sequence[Check]) -> Iterator[str]:
    ended, ended_without = (Counter((one.scenario, one.id, one.status) for one in each) for each in (checks, without))
    for scenario, check, status in sorted(ended - ended_without):
        yield f"{scenario}: {check} ends with {status} by direct answers only"
    for scenario, check, status in sorted(ended_without - ended):
        yield f"{scenario}: {check} ends with {status} without direct answers only"
    print(f"  {sum(ended_without.values())} checks without direct answers, {len(ended - ended_without)} ended otherwise")


def scenarios_of(node: Node, suite: str) -> dict[str, set[str]]:
    said = node.run(program(node, suite), "list", "--server", seconds=RUN_SECONDS).stdout
    found = {name: set(re.findall(r"\d{4}-\d\d-\d\d", revisions)) for name, revisions in SCENARIO.findall(said)}
    assert found, f"{suite} lists no scenarios: {said}"
    return found


def run_suite(node: Node, suite: str, revision: str, url: str) -> Iterator[Check]:
    results = node.folder / "results" / f"{suite} {revision} {url.replace('/', '_')}"
    options = ["--suite", "all", "--spec-version", revision, "--output-dir", str(results)]
    options += ["--timeout", str(SCENARIO_MILLISECONDS)] if suite == "next" else []
    node.run(program(node, suite), "server", "--url", url, *options, seconds=RUN_SECONDS)
    for path in sorted(results.glob("server-*/checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\dTZ-]+$", "", path.parent.name.removeprefix("server-"))
        checks = [one for one in json.loads(path.read_text()) if one["status"] != "INFO"]
        yield from (Check(scenario, one["id"], one["status"], one.get("errorMessage") or "") for one in checks)
        if not checks:
            yield Check(scenario, scenario, "empty", "the suite checks nothing here")


def program(node: Node, suite: str) -> Path:
    return node.folder / "node_modules" / suite / "dist" / "index.js"


def report(checks: Sequence[Check]) -> None:
    for one in checks:
        print(f"  {one.verdict:8}{one.scenario}: {one.id}{f' ({one.why})' if one.verdict != 'pass' and one.why else ''}")
    print("  " + ", ".join(f"{count} {verdict}" for verdict, count in Counter(one.verdict for one in checks).most_common()))


def faults_of(checks: Sequence[Check], wanted: Sequence[str]) -> Iterator[str]:
    yield from (f"{one.scenario}: {one.id} failed: {one.why}" for one in checks if one.verdict == "FAIL")
    ran = {one.scenario for one in checks}
    yield from (f"{name} did not run" for name in wanted if name not in ran)
