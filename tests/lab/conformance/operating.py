"""Runs docs/operate.md as it is written, by a systemd of its own: install, start, restart under load, back up, restore.

systemd runs in namespaces, as the first process of its own, and writes to layers over /etc, /opt, /root and /var/lib, which are
dropped at the end. Ports are the machine's, so campus listens on free ones.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import httpx
from serving import free_port

from tests import patient

ROOT = Path(__file__).parents[3]
FEEDS = "/etc/campus/feeds"
SYSTEMD = Path("/lib/systemd/systemd")
TARGETS = (
    "basic",
    "local-fs",
    "multi-user",
    "network-online",
    "paths",
    "shutdown",
    "slices",
    "sockets",
    "swap",
    "sysinit",
    "timers",
    "umount",
)
"""What the units refer to; no other unit of this machine is started."""
BOOT = """
mount --make-rprivate /
mount -t tmpfs tmpfs /run
for name in etc opt root var/lib; do
    mkdir -p -m 755 "$0/$name/upper" "$0/$name/work"
    mount -t overlay overlay -o "lowerdir=/$name,upperdir=$0/$name/upper,workdir=$0/$name/work" "/$name"
done
mount -t tmpfs tmpfs /etc/systemd/system
export container=other SYSTEMD_UNIT_PATH="/etc/systemd/system:$0/units"
exec /lib/systemd/systemd --system --unit=basic.target --show-status=no
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CAMPUS = "/opt/campus/bin/campus"
CONFIG = "--config /etc/campus/campus.toml"
START_SECONDS = 120
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class System:
    """A running systemd; `folder` has the release that is installed."""

    def __init__(self, first_process: int, folder: Path) -> None:
        self._enter = ("nsenter", "--target", str(first_process), "--mount", "--pid", "--uts", "--ipc")
        self._release = folder / "release"
        self.faults: list[str] = []

    def run(self, command: str, *, allowed: Sequence[int] = (0,)) -> str:
        environ = {**os.environ, "PATH": PATH}
        words = (*self._enter, "bash", "-c", f"cd {self._release} && {command}")
        ran = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        if ran.returncode not in allowed:
            self.faults.append(f"{command}: exit code {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def follow(self, lines: Sequence[str]) -> None:
        for line in lines:
            print(f"  # {line}")
            self.run(line, allowed=(0, 1) if "campus check" in line else (0,))

    def issued(self) -> str:
        (key,) = json.loads(self.run(f"{CAMPUS} key issue cve --json {CONFIG}"))
        token: str = key["key"]
        return token


def operate(folder: Path) -> list[str]:
    if reason := _missing():
        print(f"  docs/operate.md is not run: {reason}")
        return []
    install, start, restore = (block for block in _blocks() if block[0].startswith(("python3", "systemctl")))
    _copy_release(folder / "release")
    with _systemd(folder) as system:
        try:
            _walk(system, install, start, restore)
        except TimeoutError as error:
            state = system.run("systemctl --no-pager status campus.socket campus", allowed=range(256))
            system.faults.append(f"{error}: {state}")
        return system.faults


def _walk(system: System, install: Sequence[str], start: Sequence[str], restore: Sequence[str]) -> None:
    system.follow(install)
    url = f"http://127.0.0.1:{_configure(system)}"
    system.follow(start)
    wait_until(lambda: _status(f"{url}/readyz") == 200)
    before = system.issued()
    _restart_under_load(system, url, before)
    system.run("systemctl start campus-backup")
    system.run("cp /var/lib/campus-backup/*.zip /root/campus.zip")
    after = system.issued()
    _expect(system, url, {before: 200, after: 200})
    system.follow(restore)
    wait_until(lambda: _status(f"{url}/readyz") == 200)
    _expect(system, url, {before: 200, after: 402})
    system.run("systemctl kill --signal=KILL campus")
    wait_until(lambda: system.run("systemctl show --property=NRestarts --value campus").strip() == "1")
    _expect(system, url, {before: 200})
    system.run("systemctl stop campus.socket campus")


def wait_until(holds: Callable[[], bool]) -> None:
    until = monotonic() + START_SECONDS
    while not holds():
        if monotonic() > until:
            raise TimeoutError(f"campus did not come up within {START_SECONDS} s")
        sleep(0.1)


def _missing() -> str | None:
    if sys.platform != "linux" or os.getuid() != 0:
        return "only root on Linux may make the namespaces"
    if missing := [program for program in ("unshare", "nsenter", "systemctl", "git") if shutil.which(program) is None]:
        return f"there is no {missing[0]} on this machine"
    if not SYSTEMD.exists():
        return f"there is no {SYSTEMD}"
    if subprocess.run(["/usr/bin/python3", "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode:
        return "there is no /usr/bin/python3 with venv (python3-venv), and the service may not read others, such as those in /root"
    return None


def _blocks() -> list[list[str]]:
    page = (ROOT / "docs" / "operate.md").read_text()
    return [re.findall(r"^# (.+)$", block, re.MULTILINE) for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)]


def _copy_release(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)


@contextmanager
def _systemd(folder: Path) -> Iterator[System]:
    units = folder / "units"
    units.mkdir()
    for name in TARGETS:
        shutil.copy(SYSTEMD.parent / "system" / f"{name}.target", units)
    namespaces = ("--fork", "--pid", "--mount", "--mount-proc", "--uts", "--ipc", "--cgroup", "--kill-child")
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    boot = ["unshare", *namespaces, "bash", "-ec", BOOT, str(folder)]
    with subprocess.Popen(boot, start_new_session=True, preexec_fn=_die_with_parent, **silent) as outer:
        try:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
            wait_until(lambda: children.read_text() != "")
            system = System(int(children.read_text()), folder)
            wait_until(lambda: system.run("systemctl is-active basic.target", allowed=range(256)).strip() == "active")
            yield system
        finally:
            outer.kill()


def _die_with_parent() -> None:
    """End unshare, and so its systemd with all that it serves, also when this process is killed and cannot clean up."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _configure(system: System) -> int:
    port, admin = free_port(), free_port()
    feeds = "".join(
        f'\\n{key}_url = "file://{FEEDS}/{name}"' for key, name in (("kev", "kev.json"), ("epss", "epss.csv"), ("nvd", "nvd.json"))
    )
    changes = (
        f"s/^port = 8000/port = {port}/",
        f's/^admin = .*/admin = "127.0.0.1:{admin}"/',
        's#^url = "sqlite:data"#url = "sqlite:/var/lib/campus"#',
        f's#^archive_start = .*#archive_start = "2000-01-01"{feeds}#',
    )
    system.run(f"mkdir {FEEDS} && cp buildings/cve/sample/*.* {FEEDS}")
    for change in changes:
        system.run(f"sed -i '{change}' /etc/campus/campus.toml")
    system.run(f"sed -i 's/:8000/:{port}/' /etc/systemd/system/campus.socket")
    return port


def _restart_under_load(system: System, url: str, key: str) -> None:
    over = Event()

    def call() -> list[int]:
        found = []
        while not over.is_set():
            found.append(_status(f"{url}/v1/brief/today", key))
        return found

    with ThreadPoolExecutor() as threads:
        calls = threads.submit(call)
        for _ in range(2):
            sleep(1)
            system.run("systemctl restart campus")
        wait_until(lambda: _status(f"{url}/readyz") == 200)
        over.set()
    statuses = calls.result()
    print(f"  two restarts meanwhile: {statuses.count(200)} of {len(statuses)} calls answered")
    if set(statuses) != {200}:
        system.faults.append(f"while campus was restarted, calls got {sorted(set(statuses))}")


def _expect(system: System, url: str, statuses: dict[str, int]) -> None:
    found = {key: _status(f"{url}/v1/brief/today", key) for key in statuses}
    if found != statuses:
        system.faults.append(f"calls with the keys got {list(found.values())} instead of {list(statuses.values())}")


def _status(url: str, key: str | None = None) -> int:
    try:
        return patient.get(url, headers={"Authorization": f"Bearer {key}"} if key else {}).status_code
    except httpx.HTTPError:
        return 0
