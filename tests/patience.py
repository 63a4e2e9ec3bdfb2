"""Scales a test's timeout with the machine's load, so that a busy machine fails no test."""

import os


def patience(seconds: float) -> float:
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
