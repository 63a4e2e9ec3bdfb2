"""The CVE building: a daily list (edition) of CVEs ranked by real-world exploitation; its first 25 are the brief, 3 the teaser."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buildings.cve.contents import building as building


def __getattr__(name: str) -> Any:
    """`building` is imported when it is asked for: a process that only reads a report needs nothing of it."""
    if name == "building":
        from buildings.cve.contents import building  # that is the point

        return building
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
