"""Jobs in processes of their own: what comes back, and that no child outlives its run or its parent."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import anyio
import pytest
from patience import patience
from serving import serving

from campus.errors import JobFailed
from campus.jobs import Report, run_in_process
from tests import patient

pytestmark = pytest.mark.anyio
FEEDS = "\n".join(f'{name}_url = "file:///nowhere/{name}"' for name in ("kev", "kev_mirror", "epss", "nvd"))
CVE = f"""
[storage]
url = "sqlite:data"
[buildings.cve]
sample = true
{FEEDS}
"""


def child(*words: object) -> Sequence[str]:
    """The command of child.py."""
    return [sys.executable, str(Path(__file__).with_name("child.py")), *map(str, words)]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = monotonic() + patience(60)
    while not holds():
        assert monotonic() < deadline
        sleep(0.02)


def written(file: Path) -> bool:
    return file.exists() and file.read_text() != ""


def is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def is_refresh_apart(pid: str) -> bool:
    """Whether a process is that of the refresh, in a process group of its own, and gives way to others; those that have ended are not."""
    with suppress(ProcessLookupError, FileNotFoundError):
        named = b"\0cve.refresh\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return named and os.getpgid(int(pid)) == int(pid) and os.getpriority(os.PRIO_PROCESS, int(pid)) == 19
    return False


async def test_a_report_comes_back_without_what_the_job_printed() -> None:
    report = await run_in_process(child("reports"))
    assert report == Report("the feed is closed", [["shop", "sales", {"kind": "pen"}, 2]])  # type: ignore[list-item]  # JSON has no tuples


async def test_a_process_that_is_killed_fails_its_job() -> None:
    with pytest.raises(JobFailed, match="its process was ended by SIGKILL"):
        await run_in_process(child("dies"))


async def test_a_process_that_ends_well_without_a_report_fails_its_job() -> None:
    with pytest.raises(JobFailed, match="its process ended without a report"):
        await run_in_process([sys.executable, "-c", "pass"])


async def test_a_run_that_is_cancelled_ends_its_process(tmp_path: Path) -> None:
    file = tmp_path / "child"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_in_process, child("waits", file))
        await anyio.to_thread.run_sync(wait_until, lambda: written(file))
        pid = file.read_text()
        tasks.cancel_scope.cancel()
    assert file.read_text() == "cancelled", "the job was not told to end"
    assert not is_alive(pid)


def kill_parent_of(kind: str, file: Path) -> None:
    with subprocess.Popen(child("parent", kind, file), stderr=subprocess.PIPE) as parent:
        wait_until(lambda: written(file))
        parent.kill()
        parent.communicate(timeout=patience(15))  # both have its standard error


def test_a_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    kill_parent_of("waits", file := tmp_path / "child")
    assert file.read_text() == "cancelled"


def test_a_job_that_goes_on_when_it_is_cancelled_ends_after_its_parent_all_the_same(tmp_path: Path) -> None:
    kill_parent_of("stays", tmp_path / "child")


def test_a_server_runs_the_refresh_in_another_process_and_shows_how_it_ended(tmp_path: Path) -> None:
    with serving(tmp_path, CVE) as campus:
        wait_until(lambda: "cve.refresh failed" in patient.get(f"{campus.admin}/readyz").text)
        assert re.search(r"cve\.refresh failed once: KEV: .*its mirror: file:///nowhere", patient.get(f"{campus.admin}/readyz").text)
        assert 'campus_cve_refresh_total{outcome="failed"} 1.0' in patient.get(f"{campus.admin}/metrics").text
        assert "job-process" not in campus.log


@pytest.mark.skipif(not Path("/proc").exists(), reason="the children of a process are found in Linux's /proc")
def test_the_refresh_of_a_server_has_a_lower_priority_in_the_same_session(tmp_path: Path) -> None:
    """In another session its priority would not count beside the server's; in the server's process group, Ctrl+C would end it too."""
    os.mkfifo(tmp_path / "kev")  # opening it waits for somebody who writes
    with serving(tmp_path, CVE.replace("file:///nowhere/kev", f"file://{tmp_path}/kev", 1), job_niceness=19) as campus:
        server = campus.process.pid
        children = Path(f"/proc/{server}/task/{server}/children")
        wait_until(lambda: any(map(is_refresh_apart, children.read_text().split())))
        child = next(filter(is_refresh_apart, children.read_text().split()))
        assert os.getsid(int(child)) == os.getsid(server)
        wait_until(lambda: Path(f"/proc/{child}/oom_score_adj").read_text() == "900\n")
        assert Path(f"/proc/{server}/oom_score_adj").read_text() != "900\n", "the kernel ends the refresh first"
        os.kill(int(child), signal.SIGKILL)
        killed = "cve.refresh failed once: its process was ended by SIGKILL; it may have needed too much memory"
        wait_until(lambda: killed in patient.get(f"{campus.admin}/readyz").text)
        assert patient.get(f"{campus.url}/v1/brief/teaser").json()["sample"] is True, "the list that it had is served"
