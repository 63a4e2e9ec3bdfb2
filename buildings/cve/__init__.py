"""The CVE building: a daily list (edition) of CVEs ranked by real-world exploitation; its first 25 are the brief, 3 the teaser."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """`building` is imported when it is asked for: a process that only reads a report needs nothing of it."""
    if name == "building":
        return import_module("buildings.cve.contents").building
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
