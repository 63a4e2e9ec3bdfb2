"""Tests run alike whoever starts them: under nohup, in the background, with any environment, umask and time zone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from patience import patience

FOLDER = Path(__file__).parent
SAYS = """
import json, os, signal, time
ignored = [name for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM") if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN]
print(json.dumps([ignored, sorted(os.environ), os.environ["HOME"], os.getcwd(), time.tzname, os.umask(0)]))
"""
STARTS = f"""
import subprocess, sys
from pathlib import Path
from surroundings import make_own
make_own(Path(sys.argv[1]))
subprocess.run([sys.executable, "-c", {SAYS!r}], check=True)
"""
FOREIGN = {"CAMPUS_DATABASE_PASSWORD": "x", "FASTMCP_LOG_LEVEL": "x", "OTEL_SDK_DISABLED": "x", "PGHOST": "x", "HTTPS_PROXY": "x"}


def inherits() -> None:
    """What a shell with other habits gives its programs."""
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, signal.SIG_IGN)
    os.umask(0o077)


def test_a_program_that_a_test_starts_inherits_nothing_of_whoever_started_the_tests(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDER), "TZ": "Asia/Kathmandu", "HOME": "/nowhere", **FOREIGN}
    command = [sys.executable, "-c", STARTS, str(tmp_path)]
    ran = subprocess.run(
        command, env=environ, preexec_fn=inherits, cwd="/", capture_output=True, text=True, check=True, timeout=patience(30)
    )
    ignored, names, home, folder, zone, umask = json.loads(ran.stdout)
    assert ignored == []
    assert not FOREIGN.keys() & set(names)
    assert (home, folder, zone, umask) == (str(tmp_path), str(tmp_path), ["UTC", "UTC"], 0o022)
