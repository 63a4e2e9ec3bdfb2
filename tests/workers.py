"""xdist's workers as forks of one process, which has imported and collected all tests: doing that takes longer than most tests.

Each worker still collects for itself, but finds every module imported, its asserts rewritten, and the probes of coverage in it. What
modules do while they are imported is therefore done once: they may start no thread, and open nothing that workers must not share.
"""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import Any

import pytest
from execnet import gateway_io
from execnet.gateway_base import ExecModel, Popen2IO

from tests.forkserver import PIPE, ForkServer

COLLECT = "from tests.workers import collect\ncollect({paths!r})"
WORKER = f"import sys\nsys.stdin = open(0, closefd=False)\n{gateway_io.popen_bootstrapline}"
COLLECTED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED)
"""How collecting ends if nothing is wrong; as failed where coverage is counted, since nothing was run."""


class ForkedWorker(Popen2IO):
    """The pipes to a worker, and its process, as execnet has them of a process that it starts itself."""

    def __init__(self, _: Sequence[str], execmodel: ExecModel, *, server: ForkServer) -> None:
        self._process = server.start(WORKER, stdin=PIPE, stdout=PIPE, only=True)
        super().__init__(self._process.stdin, self._process.stdout, execmodel)

    def wait(self) -> int | None:
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()


def fork_workers(config: pytest.Config) -> None:
    server = ForkServer(path=sys.path, first=COLLECT.format(paths=config.args))
    gateway_io.Popen2IOMaster = partial(ForkedWorker, server=server)


def collect(paths: Sequence[str]) -> None:
    """Import what these paths need, as a worker does.

    If that fails, the process begins anew without it: a module whose import failed counts as imported, without its tests. The
    workers then import for themselves, and report why it fails.
    """
    os.environ["PYTEST_XDIST_WORKER"] = "collecting"
    output: Any = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        ended = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *paths])
    if ended not in COLLECTED:
        os.execv(sys.executable, [*sys.orig_argv[:-1], ""])
