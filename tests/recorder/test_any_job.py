"""Any job: the commands that campus shows, and clients of other services, run as their users run them against a served campus."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from patience import patience
from recorder.recorders import Recorder
from recorder.served import run, served

from buildings.recorder.beats.rules import past_beats
from buildings.recorder.models import Registered
from buildings.recorder.monitors.credentials import ways_to_beat
from campus.testing import ORIGIN

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")]
SYSTEMD = Path(__file__).parents[2] / "integrations" / "systemd"
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
FORM = "application/x-www-form-urlencoded"
FAILING = "echo begun; echo 'no space left' >&2; exit 3"


async def statuses(recorder: Recorder, monitor: Mapping[str, Any]) -> list[str | int]:
    """What was recorded, the first first."""
    return [beat.status for beat in past_beats((await recorder.row(monitor)).history)][::-1]


async def ways(recorder: Recorder, at: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A new monitor, and the texts that its page shows, with the served address."""
    monitor = await recorder.register(key=await recorder.campus.key("recorder"))
    shown = ways_to_beat(Registered.model_validate(monitor), mcp=f"{at}/recorder/mcp")
    return monitor, {way.name: way.text.replace(ORIGIN, at) for way in shown}


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_cron_command_reports_how_the_command_before_it_ended_and_ends_so(shell: str, recorder: Recorder) -> None:
    async with served(recorder) as (at, _):
        monitor = await recorder.register()
        cron = monitor["cron"].replace(ORIGIN, at)
        assert "%" not in cron, "a crontab takes it for the end of the line"
        words = (shell, "sh", "-c") if shell == "busybox" else (shell, "-c")
        for job, code in (("false", 1), ("true", 0), ("(exit 7)", 7), ("nothing-of-this-name 2>&-", 127)):
            assert (await run(*words, f"{job}; {cron}")).returncode == code, job
        assert await statuses(recorder, monitor) == [1, 0, 7, 127]
        assert await recorder.alerts(monitor) == [("failed", 1), ("recovered", 1), ("failed", 2)]


async def test_each_command_that_a_new_monitor_shows_reports_start_end_and_output(recorder: Recorder, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\n{FAILING}\n")
    job.chmod(0o755)
    async with served(recorder) as (at, heard):
        monitor, text = await ways(recorder, at)
        script = text["curl"].replace("/path/to/job", str(job))
        await run("sh", "-c", script, cwd=tmp_path)
        assert (await statuses(recorder, monitor), heard[-1].body) == (["start", 3], b"begun\nno space left\n")
        line = text["cron"].replace("/path/to/job", str(job)).split(maxsplit=5)[5]
        assert "%" not in line
        await run("sh", "-c", line)
        assert (await statuses(recorder, monitor))[2:] == [3]
        assert heard[-1].body == b"begun\nno space left\n"
        lines = [found[1] for found in re.finditer(r"^Exec\w+=-(.*)$", text["systemd"], re.MULTILINE)]
        for result in ("exit-code", "success"):
            for line in lines:
                await run("sh", "-c", line.replace("/usr/bin/curl", "curl"), SERVICE_RESULT=result)
        assert (await statuses(recorder, monitor))[3:] == ["start", "fail", "start", "ok"]
        step = text["GitHub"].partition("run: ")[2]
        for result in ("failure", "cancelled", "success"):
            beat_url = monitor["beat_url"].replace(ORIGIN, at)
            await run("bash", "-c", step.replace("${{ job.status }}", result), CAMPUS_BEAT_URL=beat_url)
        assert (await statuses(recorder, monitor))[7:] == ["fail", "fail", "ok"]
        python = text["Python"]
        assert (await run(sys.executable, "-c", python)).returncode == 0
        assert (await run(sys.executable, "-c", python.replace("...  # the work", "raise OSError('no space')"))).returncode == 1
        assert (await statuses(recorder, monitor))[10:] == ["start", "ok", "start", "fail"]
        assert b"no space" in heard[-1].body
        assert (await recorder.row(monitor)).capsules == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
async def test_the_shown_typescript_reports_start_end_and_error(recorder: Recorder) -> None:
    async with served(recorder) as (at, heard):
        monitor, text = await ways(recorder, at)
        script = text["TypeScript"].replace(": object", "").replace(": Promise<void>", "")  # Node.js before 22 reads no types
        for work, code in (("", 0), ("throw new Error('no space');", 1)):
            ran = await run("node", "--input-type=module", "-e", script.replace("// the work", work))
            assert ran.returncode == code, ran.stderr
        assert await statuses(recorder, monitor) == ["start", "ok", "start", "fail"]
        assert b"no space" in heard[-1].body


@pytest.mark.skipif(shutil.which("pwsh") is None, reason="there is no PowerShell")
async def test_the_shown_powershell_reports_the_exit_code_and_output(recorder: Recorder, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\n{FAILING}\n")
    job.chmod(0o755)
    async with served(recorder) as (at, heard):
        monitor, text = await ways(recorder, at)
        await run("pwsh", "-NoProfile", "-Command", text["PowerShell"].replace(r"C:\path\to\job.exe", str(job)), HOME=str(tmp_path))
        assert await statuses(recorder, monitor) == [3]
        assert b"no space left" in heard[-1].body


async def test_the_units_for_systemd_report_result_and_journal(recorder: Recorder, tmp_path: Path) -> None:
    journal = tmp_path / "journalctl"
    journal.write_text('#!/bin/sh\necho "journal of $4"\n')
    journal.chmod(0o755)
    command = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", (SYSTEMD / "campus-failed@.service").read_text(), re.MULTILINE)
    assert command is not None
    script = command[1].replace("%i", "backup").replace("/usr/bin/", "").replace("/etc/", f"{tmp_path}/")
    async with served(recorder) as (at, heard):
        monitor = await recorder.register()
        path = f"{tmp_path}:{os.environ['PATH']}"
        (tmp_path / "campus-beat.curl").write_text(f'url = "{monitor["beat_url"].replace(ORIGIN, at)}"\n')
        ran = await run("sh", "-c", script, PATH=path)
        assert (ran.returncode, await statuses(recorder, monitor)) == (0, ["fail"]), ran.stderr
        assert heard[-1].body == b"status=fail&output=journal+of+backup%0A"
        drop_in = (SYSTEMD / "campus-beat.conf").read_text().replace("/usr/bin/", "").replace("/etc/", f"{tmp_path}/")
        for line in re.findall(r"^Exec\w+=-(.*)$", drop_in, re.MULTILINE):
            await run("sh", "-c", line, SERVICE_RESULT="timeout")
        assert (await statuses(recorder, monitor))[1:] == ["start", "fail"]


PYTHON = "import urllib.request as r; r.urlopen(r.Request({url!r}, {data}, method={method}), timeout=10)"
NODE = ("node", "--input-type=module", "-e")
CLIENTS: Mapping[str, tuple[tuple[str, ...], str | int]] = {
    "curl with retries": (("curl", "-m", "10", "--retry", "5", "{url}"), "ok"),
    "curl with output": (("sh", "-c", 'echo "no space" | curl -fsS -m 10 --data-binary @- "$0/fail"', "{url}"), "fail"),
    "curl with an exit code": (("sh", "-c", '(exit 5); curl -fsS "$0/$?"', "{url}"), 5),
    "curl -T": (("sh", "-c", 'echo done | curl -fsS -T - "$0/log"', "{url}"), "log"),
    "curl with a form": (("curl", "-fsS", "-F", "status=fail", "-F", "msg=oops", "{url}"), "fail"),
    "curl of Uptime Kuma": (("curl", "-fsS", "{url}?status=down&msg=oops&ping=3"), "fail"),
    "wget": (("wget", "-q", "-O", "/dev/null", "-T", "10", "-t", "5", "{url}/start"), "start"),
    "wget --spider": (("wget", "--spider", "-q", "{url}"), "ok"),
    "wget with output": (("wget", "-q", "-O", "/dev/null", "--post-data=took 3 s", "{url}/0"), 0),
    "urllib": ((sys.executable, "-c", PYTHON.format(url="{url}", data=None, method=None)), "ok"),
    "urllib with a form": ((sys.executable, "-c", PYTHON.format(url="{url}", data=b"status=fail", method=None)), "fail"),
    "urllib by PUT": ((sys.executable, "-c", PYTHON.format(url="{url}/start", data=b"x", method="'PUT'")), "start"),
    "fetch": ((*NODE, "await fetch('{url}')"), "ok"),
    "fetch with a text": ((*NODE, "await fetch('{url}/fail', {{method: 'POST', body: 'no'}})"), "fail"),
    "fetch with a stream": (
        ("node", "-e", "require('http').request('{url}/log', {{method: 'POST'}}).on('response', r => r.resume()).end('half way')"),
        "log",
    ),
}


async def test_clients_that_are_installed_are_understood(recorder: Recorder) -> None:
    async with served(recorder) as (at, heard):
        monitor = await recorder.register()
        for name, (words, status) in CLIENTS.items():
            if shutil.which(words[0]) is None:
                continue
            ran = await run(*(word.format(url=monitor["beat_url"].replace(ORIGIN, at)) for word in words))
            found = "log" if status == "log" and heard[-1].path.endswith("/log") else (await statuses(recorder, monitor))[-1]
            assert (ran.returncode, found) == (0, status), (name, ran.stderr, heard[-1])
        logs = sum(request.path.endswith("/log") for request in heard)
        assert len(heard) - logs == (await recorder.row(monitor)).beats


RAW: Mapping[str, tuple[str, ...]] = {
    "PHP's file_get_contents": ("GET {path} HTTP/1.0", "Host: {host}", "Connection: close", "", ""),
    "PHP with output": ("POST {path}/fail HTTP/1.0", "Host: {host}", f"Content-Type: {FORM}", "Content-Length: 2", "", "no"),
    "Ruby's Net::HTTP": (
        *("GET {path}/start HTTP/1.1", "Accept-Encoding: gzip;q=1.0,deflate;q=0.6,identity;q=0.3", "Accept: */*", "User-Agent: Ruby"),
        *("Host: {host}", "", ""),
    ),
    "Go's http.Head": ("HEAD {path} HTTP/1.1", "Host: {host}", "User-Agent: Go-http-client/1.1", "", ""),
    "Go's http.Post of a reader": (
        *("POST {path}/2 HTTP/1.1", "Host: {host}", "User-Agent: Go-http-client/1.1", "Transfer-Encoding: chunked"),
        *("Content-Type: text/plain", "", "4", "late", "0", "", ""),
    ),
    "PowerShell's Invoke-RestMethod": (
        *("POST {path} HTTP/1.1", "Host: {host}", "User-Agent: Mozilla/5.0 (Windows NT; de-DE) WindowsPowerShell/5.1.22621.2506"),
        *(f"Content-Type: {FORM}", "Content-Length: 8", "Connection: Keep-Alive", "Expect: 100-continue", "", "status=1"),
    ),
}


async def test_requests_as_other_languages_write_them_are_understood(recorder: Recorder) -> None:
    async with served(recorder) as (at, _):
        monitor = await recorder.register()
        place = urlsplit(at)
        path = urlsplit(monitor["beat_url"]).path
        for name, request in RAW.items():
            written = "\r\n".join(request).format(path=path, host=place.netloc).encode()
            async with await anyio.connect_tcp("127.0.0.1", place.port or 0) as stream:
                await stream.send(written)
                answer = b""
                with anyio.fail_after(patience(30)):
                    while b" 200 " not in answer:
                        answer += await stream.receive()
            assert answer.startswith(b"HTTP/1.1 "), name
        assert await statuses(recorder, monitor) == ["ok", "fail", "start", "ok", 2, 1]


BORG = """#!/bin/sh
case "$*" in
  *--version*) echo "borg 1.4.0" ;;
  *create*) echo "Repository is full" >&2; exit 2 ;;
  *) echo '{"archives": [], "repository": {"id": "1"}, "encryption": {"mode": "none"}}' ;;
esac
"""
BORGMATIC = """
source_directories: [{folder}]
repositories: [{{path: "{folder}/repository.borg"}}]
local_path: "{folder}/borg"
healthchecks: {{ping_url: "{url}", send_logs: true, states: [start, finish, fail, log]}}
"""


@pytest.mark.skipif(shutil.which("borgmatic") is None, reason="borgmatic is not installed (pip install borgmatic)")
async def test_every_ping_of_borgmatic_counts_and_its_failure_has_the_log(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "borg").write_text(BORG)
    (tmp_path / "borg").chmod(0o755)
    async with served(recorder) as (at, heard):
        monitor = await recorder.register()
        settings = tmp_path / "borgmatic.yaml"
        settings.write_text(BORGMATIC.format(folder=tmp_path, url=monitor["ping_url"].replace(ORIGIN, at)))
        ran = await run("borgmatic", "-c", str(settings), "--monitoring-verbosity", "1", "create", HOME=str(tmp_path))
        assert ran.returncode != 0, ran.stderr
        assert await statuses(recorder, monitor) == ["start", "fail"]  # a log is kept with its run
        assert [request.path.rpartition("/")[2] for request in heard].count("log") == 1
        assert await recorder.alerts(monitor) == [("failed", 1)]
        assert b"returned non-zero exit status 2" in heard[-1].body
        assert len(heard) == 3
