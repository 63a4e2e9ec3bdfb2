"""The client campus-report, as a pipeline runs it, against a campus that is served; and the SARIF that it brings."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import patience

from buildings.cve.reports.reader import read_report
from campus.http.server import bind, serve

pytestmark = pytest.mark.anyio
CLIENT = [sys.executable, "-I", "-S", str(Path(__file__).parents[2] / "integrations" / "campus-report" / "campus_report.py")]
"""Without site-packages: nothing but the standard library."""
KEV, EPSS = "/kev.json", "/epss.csv.gz"
FOUND, LATER, LONE = "CVE-2026-7001", "CVE-2025-5555", "GHSA-aaaa-bbbb-cccc"


def trivy(*names: str, status: str = "fixed") -> str:
    rows = [
        {"VulnerabilityID": name, "PkgName": "log4j", "InstalledVersion": "2.14.1", "FixedVersion": "2.17.1", "Status": status}
        for name in names
    ]
    return json.dumps({"SchemaVersion": 2, "ArtifactName": "shop", "Results": [{"Target": "shop:1", "Vulnerabilities": rows}]})


@asynccontextmanager
async def served(campus: Any) -> AsyncIterator[str]:
    listener = bind("127.0.0.1", 0)
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(campus.app, listener, on_started=started.set, takes_signals=False, grace_seconds=2))
        await started.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        tasks.cancel_scope.cancel()


async def test_a_pipeline_is_told_by_exit_code_what_is_to_be_fixed_and_gets_its_files(
    publisher, open_test_campus, make, tmp_path: Path
) -> None:
    publisher.put(EPSS, make.epss_file(make.many_scores(100) | {FOUND: 0.9, LATER: 0.001}))
    ransomware = make.kev_entry(FOUND, date(2026, 8, 1), knownRansomwareCampaignUse="Known")
    publisher.put(KEV, make.kev_catalog([ransomware, *make.listings(40)]))
    async with open_test_campus(publisher.url) as campus, served(campus) as url:
        await campus.run("refresh", accept=True)
        environ = {"PATH": os.environ["PATH"], "CAMPUS_URL": url, "CAMPUS_KEY": await campus.key("cve")}

        async def judged(report: str, *options: str, **more: str) -> tuple[int, str, str]:
            with anyio.fail_after(patience(60)):
                ran = await anyio.run_process([*CLIENT, "-", *options], input=report.encode(), check=False, env=environ | more)
            return ran.returncode, ran.stdout.decode(), ran.stderr.decode()

        files = {kind: tmp_path / kind for kind in ("sarif", "markdown", "csv", "json")}
        code, told, _ = await judged(
            trivy(FOUND, LATER, LONE), *(word for kind, file in files.items() for word in (f"--{kind}", str(file)))
        )
        assert code == 1
        assert f"today     {FOUND} log4j 2.14.1 -> 2.17.1 shop:1" in told
        assert "1 today" in told
        assert files["csv"].read_text().count("\n") == 4
        read = read_report(files["sarif"].read_bytes())
        assert (read.form, sorted(finding.ids[0] for finding in read.findings)) == ("SARIF", sorted([FOUND, LATER, LONE]))
        levels = {one["ruleId"]: one["level"] for one in json.loads(files["sarif"].read_text())["runs"][0]["results"]}
        assert levels == {FOUND: "error", LATER: "note", LONE: "warning"}
        assert json.loads(files["json"].read_text())["accounting"]["findings"] == 3
        assert LONE in files["markdown"].read_text()

        assert (await judged(trivy(FOUND), "--fail-on", "never"))[0] == 0
        assert (await judged(trivy(LATER)))[0] == 0
        assert (await judged(trivy(FOUND, status="not_affected")))[0] == 0
        for report, options, more, why in (
            (trivy(LATER, LONE), ("--strict",), {}, "1 findings could not be told: not looked up"),
            ('{"error": "the scan failed"}', (), {}, "422"),
            (trivy(FOUND), (), {"CAMPUS_KEY": "nobody"}, "402"),
            (trivy(FOUND), (), {"CAMPUS_URL": "http://127.0.0.1:9"}, "cannot be reached"),
        ):
            code, _, said = await judged(report, *options, **more)
            assert (code, why in said) == (3, True), said
            assert environ["CAMPUS_KEY"] not in said
        assert (await judged(trivy(FOUND), CAMPUS_KEY=""))[0] == 2
