"""Schemathesis in full: every OpenAPI document of a served campus, with a key and without."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from contract.served_campus import ServedCampus

from tests import patient

DOCUMENTS = (
    "/openapi.json",
    "/gateway/openapi.json",
    "/cve/openapi.json",
    "/recorder/openapi.json",
    "/checkout/openapi.json",
    "/v1/openapi.json",
)
EXAMPLES = 200
ASKED = 300
"""Of each operation. About half are broken on purpose: with 200 it would be chance whether a hundred are well-formed."""
MINUTES = 10
OWN_REFUSALS = {
    "no_data_for_date",
    "invalid_window",
    "no_cve_ids",
    "invalid_cve_ids",
    "no_history",
    "feed_limit_reached",
    "no_such_feed",
    "monitor_not_found",
    "monitor_limit_reached",
    "no_mail_here",
    "not_dead",
    "stale_seq",
    "too_many_beats",
    "capsule_not_storable",
    "capsule_too_large",
    "test_alert_waits",
    "target_in_use",
    "target_refused",
    "no_such_watch",
    "watch_limit_reached",
}
"""Problems that a tool itself returns, after the paywall and the argument checks."""
OF_A_MONITOR, BEAT = "{monitor_id}", "/v1/recorder/beat/"
"""Whether a call comes while its monitor is there is chance, but for beats; every other tool must answer a call of those that reach it."""
REACHING, REACHING_WITH_BODY = EXAMPLES // 2, EXAMPLES // 8
"""The fewest calls that must reach the tool; of many calls two fifths, with a body a tenth, since bodies break in more ways."""
OWNED = (
    ("/v1/recorder/fleet", "monitors", "monitor_id", "/v1/recorder/monitors/{}"),
    ("/v1/watches", "watches", "watch_id", "/v1/watches/{}"),
    ("/v1/feed-urls", "feeds", "feed_id", "/v1/feed-urls/{}"),
)
"""What a key owns: where it is listed, as which member, what names each, and where it is deleted."""
Answered = tuple[int, str | None]
Access = tuple[bool, bool]
"""True if the operation is paid, and true if a key opens it."""


@dataclass(frozen=True)
class Operation:
    """The answers of one operation, by status and problem code; `takes_keys` if a key opens it."""

    label: str
    is_paid: bool
    takes_keys: bool
    answers: Counter[Answered]

    @property
    def calls(self) -> int:
        return self.answers.total()

    @property
    def reached(self) -> int:
        return sum(count for (status, code), count in self.answers.items() if status in (200, 304) or code in OWN_REFUSALS)

    def faults(self, *, keyless: bool) -> Iterator[str]:
        """The faults, in sentences."""
        if failed := sum(count for (status, _), count in self.answers.items() if status >= 500):
            yield f"{self.label}: {failed} answers of 5xx"
        if self.calls < EXAMPLES and not self.label.startswith("DELETE"):  # there Schemathesis soon repeats itself, and stops
            yield f"{self.label}: {self.calls} calls of {EXAMPLES} that were asked for"
        if self.is_paid and (keyless or not self.takes_keys):
            if self.reached:
                yield f"{self.label}: {self.reached} calls without access reached the tool"
        elif self.reached < (least := self._least_reaching):
            yield f"{self.label}: {self.reached} of {self.calls} calls reached the tool, fewer than {least}"
        elif (BEAT in self.label or OF_A_MONITOR not in self.label) and not any(status == 200 for status, _ in self.answers):
            yield f"{self.label}: the tool refused every call that reached it"

    @property
    def _least_reaching(self) -> int:
        if self.label.startswith("POST"):
            return max(REACHING_WITH_BODY, self.calls // 10)
        return max(min(REACHING, self.calls // 2), self.calls * 2 // 5)


def fuzz(campus: ServedCampus) -> list[str]:
    faults = []
    for document in DOCUMENTS:
        paid = operations_of(patient.get(campus.url + document).json())
        for token in (campus.tokens.campus_pass, None):
            print(f"\nSchemathesis on {document}, {'with a key' if token else 'without a key'}")
            faults += [f"{document}: {fault}" for fault in fuzz_document(campus, document, token, paid)]
    return faults


def fuzz_document(campus: ServedCampus, document: str, token: str | None, paid: Mapping[str, Access]) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        tally = Path(folder) / "tally"
        days = {"CAMPUS_DAY_BEFORE": str(campus.day_before), "CAMPUS_DAY": str(campus.day)}
        made = json.dumps([made_before(campus)])
        environ = {**days, "CAMPUS_KEYLESS": "0" if token else "1", "CAMPUS_MADE": made, "CAMPUS_TALLY": str(tally)}
        ran = subprocess.run(
            command(campus.url + document, token),
            env={**os.environ, **environ, "PYTHONPATH": str(Path(__file__).parents[2]), "SCHEMATHESIS_HOOKS": "lab.conformance.hooks"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
            check=False,
        )
        operations = tallied(tally, paid) if tally.exists() else []
    for one in operations:
        print(f"  {one.label}: {one.calls} calls, {one.reached} reached the tool; {described(one.answers)}")
        yield from one.faults(keyless=token is None)
    if {one.label for one in operations} != set(paid):
        yield f"not every operation was called: {sorted(set(paid) - {one.label for one in operations})}"
    if ran.returncode != 0:
        print(ran.stdout, ran.stderr)
        yield "Schemathesis found failures, printed above"


def made_before(campus: ServedCampus) -> Any:
    """A new monitor, as it was registered. All that the runs before left to the key is deleted: a key may have 20 of each.

    It belongs to the key in a run without one too, where its secret controls it: without a key a host may have few monitors.
    """
    with patient.Client(base_url=campus.url, headers={"Authorization": f"Bearer {campus.tokens.campus_pass}"}) as http:
        for path, members, name, deleted in OWNED:
            for one in http.get(path).raise_for_status().json()[members]:
                http.delete(deleted.format(one[name])).raise_for_status()
        body = {"name": "fuzz", "alert_webhook": f"http://127.0.0.1:9/before/{uuid4()}"}
        return http.post("/v1/recorder/monitors", json=body).raise_for_status().json()


def command(url: str, token: str | None) -> Sequence[str]:
    options = ["--no-color", "--continue-on-failure", "--warnings", "off", "--generation-database", "none", "--max-examples", str(ASKED)]
    if token:
        options += ["--header", f"Authorization: Bearer {token}", "--generation-with-security-parameters", "false"]
    return [str(Path(sys.executable).with_name("schemathesis")), "run", url, *options]


def operations_of(document: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> dict[str, Access]:
    return {
        f"{method.upper()} {path}": ("402" in operation["responses"], {"key": []} in operation["security"])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def tallied(tally: Path, paid: Mapping[str, Access]) -> list[Operation]:
    counted: dict[str, Counter[Answered]] = {}
    for line in tally.read_text().splitlines():
        call = json.loads(line)
        if call["operation"].startswith(call["method"].upper() + " "):
            counted.setdefault(call["operation"], Counter())[call["status"], call["code"]] += 1
    return [Operation(label, *paid[label], answers) for label, answers in sorted(counted.items())]


def described(answers: Counter[Answered]) -> str:
    return ", ".join(f"{count} × {status}{f' {code}' if code else ''}" for (status, code), count in answers.most_common())
