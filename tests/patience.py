"""How long a test waits before it gives up: a guard against hanging that grows with the machine's load, and is never measured."""

import os


def patience(seconds: float) -> float:
    """So many seconds on an idle machine; on one with ten times as many tasks as cores, ten times as many."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
