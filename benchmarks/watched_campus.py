"""`campus serve` that also writes each measured lag of its event loop to a file: `watched_campus CONFIG FILE`.

A line has the time of the wake-up in seconds since 1970, and how late it was in seconds.
"""

import sys
import time
from pathlib import Path

from campus.cli import main
from campus.observability.metrics import EventLoopLag, Histogram

LINES = Path(sys.argv[2]).open("w", buffering=1)  # noqa: SIM115  # open until the process ends
count = EventLoopLag.add


def add(self: Histogram, value: float) -> None:
    """Count a wake-up, and write it down."""
    count(self, value)
    LINES.write(f"{time.time()} {value}\n")


if __name__ == "__main__":
    EventLoopLag.add = add  # type: ignore[method-assign]
    main(["serve", "--config", sys.argv[1]])
