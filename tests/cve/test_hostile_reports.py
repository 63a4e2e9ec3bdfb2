"""Reports that are written to cost more than they weigh: each is refused, or read at once. A hang is named by the time limit of tests."""

import gzip
import json
import os
import sys
from typing import Any

import anyio
import pytest
from patience import patience

from buildings.cve.reports import apart, reader
from buildings.cve.reports.accounting import MOST_NAMED, check_names
from buildings.cve.reports.findings import Finding, Report, ReportRefused
from buildings.cve.reports.reader import read_report, readable
from campus import Problem

MANY = " ".join(f"CVE-2021-{10_000 + n}" for n in range(200))


def sarif(rule: dict[str, Any], results: int) -> str:
    run = {"tool": {"driver": {"name": "x", "rules": [{"id": "a", **rule}]}}, "results": [{"ruleId": "a"}] * results}
    return json.dumps({"version": "2.1.0", "runs": [run]}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("report", "code"),
    [
        pytest.param("ALAS." * 50_000, "unreadable_report", id="where an identifier may begin at each of its own parts"),
        pytest.param("cve  " + "a  " * 10_000 + "\n" + "x\n" * 50_000, "unreadable_report", id="a printed table of many columns"),
        pytest.param(sarif({"fullDescription": {"text": MANY}}, 20_000), "report_too_large", id="a rule of 200 CVEs told 20,000 times"),
    ],
)
def test_a_report_that_costs_more_than_it_weighs_is_refused(report: str, code: str) -> None:
    with pytest.raises(ReportRefused) as refused:
        readable(read_report(report))
    assert refused.value.code == code


def test_a_text_that_thousands_of_findings_share_is_read_once() -> None:
    assert len(read_report(sarif({"fullDescription": {"text": "x " * 100_000}}, 3_400)).findings) == 3_400


def test_a_report_that_takes_too_long_is_refused_wherever_it_is_read(monkeypatch) -> None:
    monkeypatch.setattr(reader, "SECONDS", -60.0)
    with pytest.raises(ReportRefused, match="takes too long"):
        read_report(sarif({}, 1))


def test_the_same_note_is_told_once_and_ids_have_only_characters_that_are_shown() -> None:
    report = read_report('{"id": "CVE-2021-44228", "a": "\\ud800"}\n' * 1_000)
    assert len(report.notes) == len(set(report.notes)) == 3
    odd = {"VulnerabilityID": "X\0Y\u202e", "PkgName": "p"}
    (finding,) = read_report(json.dumps({"SchemaVersion": 2, "Results": [{"Target": "a", "Vulnerabilities": [odd]}]})).findings
    assert isinstance(finding, Finding)
    assert finding.ids == ("XY",)


def test_names_that_stand_for_too_many_cves_too_often_are_refused() -> None:
    names = {"GHSA-A": ("CVE-2021-44228",) * 1_000}
    findings = [Finding(ids=("GHSA-a",))] * (MOST_NAMED // 1_000)
    check_names(Report(form="x", findings=findings), names)
    with pytest.raises(Problem, match="too many CVEs"):
        check_names(Report(form="x", findings=[*findings, findings[0]]), names)


@pytest.mark.anyio
async def test_an_archive_is_unpacked_in_a_process_of_its_own_however_small_it_is(open_test_campus, monkeypatch) -> None:
    read: list[bytes] = []

    async def in_process(data: bytes) -> Report:
        read.append(data)
        return read_report(data)

    monkeypatch.setattr(apart, "_in_process", in_process)
    packed = gzip.compress(sarif({}, 2).encode())
    async with open_test_campus() as campus:
        await campus.site.state.read(packed)
        await campus.site.state.read(sarif({}, 2))
    assert read == [packed]


@pytest.mark.anyio
async def test_the_process_that_reads_a_report_ends_with_its_call_and_the_next_one_is_read(open_test_campus, monkeypatch, tmp_path) -> None:
    pid = tmp_path / "pid"
    waits = f"import os, pathlib, sys, time; sys.stdin.read(); pathlib.Path({str(pid)!r}).write_text(f'{{os.getpid()}} '); time.sleep(600)"
    command, packed = apart.COMMAND, gzip.compress(sarif({}, 2).encode())
    monkeypatch.setattr(apart, "COMMAND", (sys.executable, "-c", waits))
    async with open_test_campus() as campus:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(campus.site.state.read, packed)
            with anyio.fail_after(patience(20)):
                while not pid.exists() or not pid.read_text().endswith(" "):  # noqa: ASYNC110 (another process writes it)
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
        monkeypatch.setattr(apart, "COMMAND", command)
        assert len((await campus.site.state.read(packed)).findings) == 2
