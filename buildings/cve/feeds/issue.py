"""One issue of a feed: its version, its time, its size, and what of it could not be read."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue of a feed: its version as the publisher names it, its time, and how many CVEs it holds.

    `unreadable` names the few entries, members or lines that could not be read and were left out. Lists are stored with it.
    """

    version: str
    issued: datetime
    entries: int
    unreadable: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.version} of {self.issued:%Y-%m-%d}"
