"""What tests rely on in a forked process: it is one of its own, and finds what a program finds that Python has just started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from patience import patience

from tests import forkserver
from tests.forkserver import PIPE

ROOT = Path(__file__).parents[1]
PROGRAM = """
import asyncio, os, sys
print(__name__, sys.argv, os.environ["FRUIT"], sys.path[0], sys.getrecursionlimit(), sys.stdin.readline())
print("no", file=sys.stderr)
sys.exit(3)
"""


def test_a_program_has_words_an_environment_three_files_and_an_exit_code(tmp_path: Path) -> None:
    environ = {"FRUIT": "pear", "PYTHONPATH": str(tmp_path)}
    with forkserver.shared().start(PROGRAM, "a", "b c", environ=environ, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("word\n")
        process.stdin.close()
        assert process.stdout.read().split("\n")[0] == f"__main__ ['campus', 'a', 'b c'] pear {tmp_path} 1000 word"
        assert process.stderr.read() == "no\n"
        assert process.wait(patience(20)) == 3
    assert process.pid != os.getpid()
    assert "FRUIT" not in os.environ


def test_a_process_is_ended_by_a_signal_and_leaves_the_next_one_alone() -> None:
    for sent in (signal.SIGKILL, signal.SIGTERM):
        with forkserver.shared().start("import sys, time\nsys.modules.pop('json')\ntime.sleep(600)") as process:
            assert process.poll() is None
            process.send_signal(sent)
            assert process.wait(patience(20)) == -sent
            process.kill()  # which is nothing to a process that has ended
    assert forkserver.shared().run("import sys\nprint('json' in sys.modules)", timeout=patience(20)).stdout == "True\n"


def test_a_program_that_fails_says_why() -> None:
    ended = forkserver.shared().run("1 / 0", timeout=patience(20))
    assert (ended.returncode, ended.stdout, ended.stderr.splitlines()[-1]) == (1, "", "ZeroDivisionError: division by zero")


def test_an_interrupt_is_one_as_pythons_own() -> None:
    with forkserver.shared().start("import time\nprint('up', flush=True)\ntime.sleep(600)", stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith("KeyboardInterrupt\n")
        assert process.wait(patience(20)) == -signal.SIGINT


FORKS_WORKERS = """
import pytest
from tests.workers import fork_workers
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config):
    fork_workers(config)
"""
COUNTS_IMPORTS = """
with open("imports", "a") as file:
    file.write("once\\n")
def test_passes():
    pass
"""


def test_xdists_workers_share_what_was_imported_and_each_reports_what_cannot_be(tmp_path: Path) -> None:
    def ran() -> str:
        command, environ = [sys.executable, "-m", "pytest", "-n", "2"], os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False).stdout

    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib --disable-plugin-autoload -p xdist")
    (tmp_path / "conftest.py").write_text(FORKS_WORKERS)
    (tmp_path / "test_good.py").write_text(COUNTS_IMPORTS)
    assert "1 passed" in ran()
    assert (tmp_path / "imports").read_text() == "once\n"
    (tmp_path / "test_broken.py").write_text("import nothing_such")
    assert "No module named 'nothing_such'" in ran()
