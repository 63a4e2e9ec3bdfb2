"""Which tests coverage traces: tracing doubles the time of a test, so variants that run the same lines again are not traced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

OF_DATABASES = ("storage", "jobs", "keys")
"""Folders whose subject is what differs between databases."""
OF_FRAMES = ("twins", "terms", "service", "clients")
"""Folders whose subject is what differs between HTTP and MCP."""
RECOMPUTED = ("cve/test_ranking.py", "cve/test_replay.py", "cve/test_kev.py", "test_architecture.py")
"""Files that go over the whole feeds, or over the source."""


def is_traced(item: pytest.Item) -> bool:
    """Whether the test counts.

    These do not: a test's variant on PostgreSQL, and over MCP, where that is not its folder's subject; what Hypothesis
    runs a hundred times; what goes over the whole feeds or the source.
    """
    place = item.path.relative_to(item.config.rootpath / "tests").as_posix()
    values: list[Any] = list(item.callspec.params.values()) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else []
    again = [("postgresql", OF_DATABASES), ("mcp", OF_FRAMES)]
    if any(value in values and not place.startswith(folders) for value, folders in again):
        return False
    return not (place.startswith(RECOMPUTED) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


@contextmanager
def untraced() -> Iterator[None]:
    """Trace nothing, set-up and tear-down included. pytest-cov's own pause leaves a second collector running in xdist's workers."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
