"""What tests inherit from whoever starts them, made the same everywhere: signals, environment, home, time zone, umask, current folder."""

import os
import signal
import time
from pathlib import Path

FOREIGN = ("CAMPUS_", "FASTMCP_", "OTEL_", "PG", "AWS_", "FAKETIME")
"""How variables begin that campus, its libraries and the programs of tests read."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OWN = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""The signals that a program ignores if it is started in the background or under nohup, and so do all programs that it starts."""


def make_own(folder: Path) -> None:
    for name in [name for name in os.environ if name.startswith(FOREIGN) or name.lower() in PROXIES]:
        del os.environ[name]
    os.environ |= OWN | {"HOME": str(folder)}
    time.tzset()
    os.umask(0o022)
    os.chdir(folder)
    heed_signals()


def heed_signals() -> None:
    for each in INHERITED:
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, lambda *_: None)
