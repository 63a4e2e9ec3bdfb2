"""A pytest plugin that writes docs/faults.md: a row for each fault, from the tests that are marked with its name.

`make faults` loads it. A new row is a line of ROWS and `@pytest.mark.faults("its name")` at one test or more, in any file; figures are
what a test hands to `record_property("figures", …)`. A run of some rows (`ARGS="-k disk"`) leaves the others as they were.
"""

import os
import platform
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
BEGIN, END = "<!-- written by make faults -->\n", "<!-- end -->\n"
ROWS = {
    "calls killed": (
        "`kill -9` at eight points of a paid call, on both databases; of four payments three are sent again",
        "each payment is charged once and answered, or not charged; none is stuck; the fourth is charged too if its answer was stored",
    ),
    "alerts killed": (
        "`kill -9` at each point of an alert while 300 monitors go down, on both databases",
        "each death is reported, under one id",
    ),
    "beats killed": ("`kill -9` during 50 beats a second, on both databases", "no acknowledged beat or capsule is lost"),
    "agents killed": (
        "50 agents that write ahead die or freeze at random points, each replaced by the next, on both databases",
        "each step's effect is made once and in order; who wakes up after its takeover is refused",
    ),
    "power cut": (
        "the power goes at a hundred moments of a load; of what was not synced, each page is left or not by chance; SQLite",
        "every acknowledged beat, capsule, registration and deletion is on the disk, and the databases are sound",
    ),
    "outage": (
        "the recorder is away for one minute and for ten, while 2,000 agents retry",
        "alerts about agents that died, and about no other",
    ),
    "outage of many": (
        "ten minutes of outage among 400,000 monitors on PostgreSQL, with a `kill -9` meanwhile",
        "each target is told once; a death is reported before all are told",
    ),
    "races": (
        "two recorders on one database get the same requests at once, on both databases",
        "no limit is exceeded; of five takeovers one is made",
    ),
    "leader killed": (
        "the process that holds a job's or a delivery's lease is killed; two processes send alerts; on both databases",
        "another takes over when the lease ends; nothing is sent by both",
    ),
    "server killed": ("`kill -9` while news of watches are sent", "all are told"),
    "facilitator": (
        "the facilitator of payments is down, hangs, lies, charges without saying so",
        "only paid calls wait; each answer says whether it was charged; nothing is charged twice",
    ),
    "feeds": (
        "a feed is missing, cut short, garbage, of the future, too slow, too large",
        "the last list stays and says so; `/readyz` names the fault",
    ),
    "disk full": (
        "a file cannot grow; a disk has no room for a backup or a restore",
        "what cannot be stored is refused with 503, reading goes on, no half file is left",
    ),
    "disk read-only": (
        "the databases are on a disk that is mounted read-only",
        "reading and `campus backup` work; writing is refused in a sentence",
    ),
    "machine lost": (
        "the folder of the databases is gone; a restore is cut off",
        "the backup brings keys and monitors back; half a restore is not served",
    ),
    "database away": (
        "PostgreSQL closes its connections, vanishes, hangs, becomes a standby",
        "calls fail in time with 503 and go on when it is back; no call hangs; the server that takes writes is found",
    ),
    "PgBouncer": (
        "two processes share two connections of a PgBouncer in transaction mode; one that campus is not told of",
        "limits hold and nothing is left on the connections; campus refuses to start with the remedy",
    ),
    "rolling upgrade": (
        "a release serves beside the one before it, which is then started anew, on PostgreSQL",
        "both read and write; the tables lose what the old one needs by `campus migrate --contract` only",
    ),
    "failed over": (
        "of three PostgreSQL servers under Patroni the primary is killed, with its Patroni or without, or hangs, while two processes serve"
        " beats, registrations, keys, free, keyed and paid calls; campus is given all hosts, HAProxy, or PgBouncer before HAProxy",
        "a standby is promoted; writes succeed within 10 s of it; nothing acknowledged is lost, nothing charged twice or without an answer",
    ),
    "database stopped": (
        "every process of PostgreSQL is stopped by SIGSTOP for 8 s, then goes on",
        "a beat gets 503 after a time-out, none hangs, and beats are taken afterwards",
    ),
    "clock": (
        "the clock jumps by minutes and by a year, forward and back, of one of two processes too; summer time begins and ends",
        "no false death, none hidden; jobs go on; `/readyz` names the jump",
    ),
    "connections": ("4,000 idle connections from 200 addresses", "other callers are answered"),
    "slow bodies": ("heads and bodies that never end or drip", "they are ended with 408; other calls are served meanwhile"),
    "hostile JSON": ("deep, huge, duplicate and broken JSON over HTTP and MCP", "a refusal with a problem, at once; nothing runs"),
    "strangers' targets": (
        "webhooks that lead to private addresses: by name, later, by redirect, by another form of writing",
        "refused before anything is sent",
    ),
    "strangers' receivers": (
        "2,000 targets hang, thousands of beats a second fail and recover, names are never resolved",
        "honest alerts arrive",
    ),
}
"""What is done, and what must hold, by a row's name, in the page's order."""


@dataclass
class Result:
    """What became of a row's tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)


class Table:
    """The plugin of one run."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Count the test in its row."""
        report = yield
        if (mark := item.get_closest_marker("faults")) is not None:
            (name,) = mark.args
            result = self.results.setdefault(name, Result())
            result.seconds += call.duration
            if report.failed or report.skipped or report.when == "call":
                setattr(result, report.outcome, getattr(result, report.outcome) + 1)
            if report.when == "call":
                result.figures += [str(value) for key, value in report.user_properties if key == "figures"]
        return report

    def pytest_sessionfinish(self) -> None:
        if results := {name: one for name, one in self.results.items() if one.passed or one.failed or one.skipped}:
            write(results)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Table())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = list(ROWS)
    marks = {item: item.get_closest_marker("faults") for item in items}
    if unknown := {mark.args[0] for mark in marks.values() if mark} - ROWS.keys():
        raise pytest.UsageError(f"no row of tests/lab/faults/table.py has the name {', '.join(unknown)}")
    items.sort(key=lambda item: order.index(mark.args[0]) if (mark := marks[item]) else len(order))


def write(results: dict[str, Result]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    table, after = rest.split(END)
    kept = {cells[1].strip(): cells[4:6] for line in table.splitlines() if len(cells := line.split("|")) > 5}
    lines = ["| fault | what is done | what must hold | result | figures |", "|---|---|---|---|---|"]
    for name, texts in ROWS.items():
        cells = (_said(results[name]), "; ".join(results[name].figures)) if name in results else kept.get(name, ("not run", ""))
        lines.append(f"| {' | '.join(cell.strip().replace('|', '/') for cell in (name, *texts, *cells))} |")
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, f"\n{END}{after}"]))


def _said(result: Result) -> str:
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    verdict = "**failed**" if result.failed else "passed" if result.passed else "not run"
    return (
        f"{verdict}: {result.passed} of {result.passed + result.failed} tests{skipped}, {result.seconds:,.0f} s,"
        f" {datetime.now(UTC):%Y-%m-%d}, {_machine()}"
    )


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()}, load {os.getloadavg()[0]:.0f}"
