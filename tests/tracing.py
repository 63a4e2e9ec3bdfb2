"""Which tests coverage traces: tracing doubles the time of a test, so variants that run the same lines again are not traced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages

import pytest

OF_VARIANTS = ("storage", "jobs", "keys", "twins")
"""Folders whose subject is what differs between databases, or between HTTP and MCP."""
REPEATED = (
    "clients/test_clients.py",
    "cve/test_faults.py",
    "cve/test_feeds.py",
    "cve/test_forecast.py",
    "cve/test_history.py",
    "cve/test_kev.py",
    "cve/test_nvd.py",
    "cve/test_ranking.py",
    "cve/test_replay.py",
    "cve/test_watches.py",
    "payments/test_cve_prices.py",
    "payments/test_lies.py",
    "payments/test_recovery.py",
    "payments/test_settlement.py",
    "recorder/test_clock_jumps.py",
    "recorder/test_strangers.py",
    "terms/test_fair_queue.py",
    "test_architecture.py",
    "service/test_mcp_oracle.py",
    "pages/test_browser.py",
)
"""Files that go over whole feeds again and again, over the source, over a process of its own, or over what others call too."""


def is_traced(item: pytest.Item) -> bool:
    """Whether coverage counts what the test runs.

    It does not count the further variants of a parametrized test, unless its folder's subject is what differs between them;
    what Hypothesis runs a hundred times; and the files of REPEATED.
    """
    place = item.path.relative_to(item.config.rootpath / "tests").as_posix()
    further = isinstance(item, pytest.Function) and hasattr(item, "callspec") and any(item.callspec.indices.values())
    if further and not place.startswith(OF_VARIANTS):
        return False
    return not (place.startswith(REPEATED) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def import_packages() -> None:
    """Import every module, for what modules do when they are imported counts; collecting the tests, which imports the rest, does not."""
    for name in ("twins", "campus", "buildings"):
        package = import_module(name)
        for module in walk_packages(package.__path__, f"{name}."):
            import_module(module.name)


@contextmanager
def untraced() -> Iterator[None]:
    """Trace nothing, set-up and tear-down included. pytest-cov's own pause leaves a second collector running in xdist's workers."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


LIBRARIES = (
    "alembic.autogenerate",
    "asyncpg",
    "cyclopts",
    "eth_tester",
    "fastmcp",
    "fastmcp.client",
    "fastmcp.server.providers.proxy",
    "sqlmodel.ext.asyncio.session",
    "uvicorn",
    "web3",
    "x402.http",
    "x402.mechanisms.evm.exact",
)
"""What the packages import, and what is imported untraced before them."""
if sys.gettrace() is not None:
    with untraced():
        for library in LIBRARIES:
            import_module(library)
