"""Follows a page of docs/ as a reader does: saves its files, runs its commands, and compares what they print. With its fixtures."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from patience import patience
from serving import free_port

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
KEY = re.compile(r"campus_live_\w+")
STAYS = ("campus dev", "campus serve", "python -m campus.features.chain")
"""Commands that run until Ctrl-C. A page tells its reader to end one before it starts another of campus."""


@dataclass
class Reader:
    """Somebody with a terminal in an empty folder, whose `pip install mcp-campus` installs what the repository holds.

    A `…` in what a page shows stands for anything. Where a page shows port 8000, this reader has another. The key of a
    command is the last one that was printed. A command is repeated until it prints what is shown: a saved file is loaded soon.
    """

    folder: Path
    environ: dict[str, str]
    installed: Mapping[str, str]
    """What is run in place of a command that would load packages, by how it begins."""
    port: int = field(default_factory=free_port)
    key: str = ""
    commands: list[str] = field(default_factory=list)
    stays: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def follow(self, text: str) -> None:
        for language, title, block in FENCE.findall(text):
            if title.endswith(", at the end"):
                with (self.folder / title.removesuffix(", at the end")).open("a") as file:
                    file.write(self.here(block))
            elif title:
                (self.folder / title).write_text(self.here(block))
            elif language == "console":
                for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                    command, _, output = shown.partition("\n")
                    self.run(self.here(command), self.here(output))

    def here(self, text: str) -> str:
        return re.sub(r"(?<=Bearer )campus_live_…", self.key, text).replace(":8000", f":{self.port}")

    def run(self, command: str, output: str) -> None:
        self.commands.append(command)
        if moved := re.fullmatch(r"(?:mkdir (\S+) && )?cd (\S+)", command):
            self.folder /= moved[2]
            self.folder.mkdir(exist_ok=moved[1] is None)
            return
        command = next((instead for start, instead in self.installed.items() if command.startswith(start)), command)
        if exported := re.fullmatch(r"export (\w+)=(.*)", command):
            self.environ[exported[1]] = self.printed(f"printf %s {exported[2]}")
            return
        if command.startswith(STAYS):
            self.start(command, output)
            return
        deadline = time.monotonic() + patience(30)
        while not matches(output, printed := self.printed(command)):
            assert time.monotonic() < deadline, (command, output, printed, self.log())
            time.sleep(0.2)

    def printed(self, command: str) -> str:
        """What a command prints."""
        ran = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=patience(100), check=False
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr, self.log())
        self.key = (KEY.findall(ran.stdout) or [self.key])[-1]
        return ran.stdout + ran.stderr

    def start(self, command: str, output: str) -> None:
        """Start a command that stays, after ending one of campus."""
        if command.startswith("campus"):
            self.end("exec campus")
            command = f"exec {command} --port {self.port}"
        log = self.folder / f"{len(self.stays)}.log"
        with log.open("wb") as file:
            started = ["bash", "-c", command]
            process = subprocess.Popen(started, cwd=self.folder, env=self.environ, stdout=file, stderr=file, start_new_session=True)
        self.stays.append((command, process))
        deadline = time.monotonic() + patience(60)
        while not matches(output, text := log.read_text()):
            assert process.poll() is None, (command, text)
            assert time.monotonic() < deadline, (command, output, text)
            time.sleep(0.1)
        self.key = (KEY.findall(text) or [self.key])[-1]

    def end(self, which: str = "") -> None:
        for command, process in self.stays:
            if command.startswith(which) and process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(patience(30))

    def log(self) -> str:
        """What the commands that stay have printed."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("?.log")))


def matches(shown: str, printed: str) -> bool:
    lines = []
    for line in filter(str.strip, shown.splitlines()):
        parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
        lines.append(".*".join(parts))
    return re.search(r"(?s:.*)".join(lines), re.sub(r"[ \t]+", " ", printed)) is not None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the campus of this checkout; tests/lab/pages.py has one with the wheel. Dependencies are those here."""
    venv.create(home := tmp_path_factory.mktemp("installed") / "venv", with_pip=False)
    add_packages(home, sysconfig.get_path("purelib"), str(ROOT))
    (script := home / "bin/campus").write_text(f"#!{home}/bin/python\nfrom campus.__main__ import main\nmain()\n")
    script.chmod(0o755)
    return home


def add_packages(home: Path, *folders: str) -> None:
    """Let a virtual environment import from these folders; their own .pth files, such as campus's, are not read."""
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "more.pth").write_text("\n".join(folders))


@pytest.fixture
def reader(home: Path, tmp_path: Path) -> Iterator[Reader]:
    """Somebody who has installed campus; what the commands that load packages would bring, this machine has. All ends with the test."""
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped and "CAMPUS" not in name}
    environ = {**kept, "PATH": path, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    offline = f"{sys.executable} -m pip -q --python {home}/bin/python install --no-index --no-build-isolation --no-deps --no-compile"
    installed = {
        "python3 -m venv": "true",
        ". .venv": "true",
        'python -m pip install --quiet "mcp-campus': "campus --version",
        "python -m pip install --quiet pytest": "true",
        "python -m pip install --quiet --no-deps -e campus-rivers": f"{offline} -e campus-rivers",
        "python -m pip install --quiet --no-deps -e .": f"{offline} -e .",
    }
    reader = Reader(tmp_path, environ, installed)
    yield reader
    reader.end()
