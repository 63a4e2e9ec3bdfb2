"""Branch coverage of the packages, counted in xdist's workers and added up by the process that started them: BRANCH_COVERAGE=1.

SlipCover changes the packages' code as they are imported, and takes most of its probes out again once they were met. Tracing, which
is the usual way before Python 3.14, is called at every call in every library too: with it the tests took two thirds longer.
"""

import io
import json
import os
from importlib.util import find_spec
from typing import Any

import pytest

PACKAGES = ["twins", "campus", "buildings"]
LEAST = 90.0
"""How many percent of the lines and branches must be run, taken together."""
MET = 100_000
"""Probes are taken out when one was met as often. All modules are gone through for it, which takes as long as a million probes."""
NOT_COUNTED = [r"\.\.\.$", r"if __name__ == .__main__.:"]
IS_WANTED, IS_INSTALLED = bool(os.environ.get("BRANCH_COVERAGE")), find_spec("slipcover") is not None
if IS_WANTED and IS_INSTALLED:
    import slipcover


class BranchCoverage:
    """A pytest plugin for the workers and for the process that started them."""

    def __init__(self) -> None:
        self._probes = slipcover.Slipcover(branch=True, source=PACKAGES, exclude_also=NOT_COUNTED, d_miss_threshold=MET)
        self._total: dict[str, Any] | None = None

    def begin(self) -> None:
        slipcover.ImportManager(self._probes, slipcover.FileMatcher(sources=PACKAGES)).__enter__()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker sends what it counted; the other side fails the run if that is not enough."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["coverage"] = json.dumps(self._probes.get_coverage())
        elif session.exitstatus == pytest.ExitCode.OK and self._percent() < LEAST:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker counted; one that was killed has sent nothing."""
        if not (sent := getattr(node, "workeroutput", {}).get("coverage")):
            return
        counted = json.loads(sent)
        if self._total is None:
            self._total = counted
        else:
            slipcover.merge_coverage(self._total, counted)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._total is not None:
            table = io.StringIO()
            slipcover.print_coverage(self._total, outfile=table, skip_covered=True)
            terminalreporter.write(table.getvalue())
        percent = self._percent()
        terminalreporter.line(f"{percent:.2f} % of lines and branches were run; {LEAST:g} % are needed", red=percent < LEAST)

    def _percent(self) -> float:
        return float(self._total["summary"]["percent_covered"]) if self._total else 0.0


class NotCounted:
    """The plugin where SlipCover cannot be installed."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.line("Branch coverage was not counted: SlipCover has no wheel for this machine or version of Python.", yellow=True)


def start(config: pytest.Config) -> None:
    if IS_WANTED:
        config.pluginmanager.register(plugin or NotCounted())


plugin = BranchCoverage() if IS_WANTED and IS_INSTALLED else None
if plugin is not None and "PYTEST_XDIST_WORKER" in os.environ:
    plugin.begin()  # conftest.py imports this file before any of the packages
