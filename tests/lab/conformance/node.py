"""Node.js packages, installed into a temporary directory, and running their scripts."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

NODE = "node@22"
"""The suite needs 22, and not every machine has it."""
PROTOCOL = (
    "stable@npm:@modelcontextprotocol/conformance@0.1.16",
    "next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",  # the first that knows 2026-07-28
    "sdk1@npm:@modelcontextprotocol/sdk@1.32.2",
    "sdk2@npm:@modelcontextprotocol/client@2.4.0",
)
INSPECTOR = ("@modelcontextprotocol/inspector@2.12.0",)
INSTALL_SECONDS = 900


class Node:
    """Installs packages into `folder` and runs their scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, packages: Iterable[str]) -> None:
        wanted = [NODE, *packages]
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("there is no npm on this machine; the protocol's conformance suite needs it")
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(self.folder), *wanted]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if ran.returncode != 0:
            raise SystemExit(f"npm could not install {', '.join(wanted)}: {ran.stdout}{ran.stderr}")

    def run(self, script: Path, *arguments: str, seconds: float, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self.folder / "node_modules" / ".bin" / "node", script, *arguments]
        return subprocess.run(command, cwd=folder or self.folder, capture_output=True, text=True, timeout=seconds, check=False)
