"""Node and its packages, installed into a directory that goes away."""

import shutil
import subprocess
from pathlib import Path

PACKAGES = (
    "node@22",  # the suite needs 22, and not every machine has it
    "stable@npm:@modelcontextprotocol/conformance@0.1.16",
    "next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",  # the first that knows 2026-07-28
    "sdk1@npm:@modelcontextprotocol/sdk@1.32.2",
    "sdk2@npm:@modelcontextprotocol/client@2.4.0",
)
INSTALL_SECONDS = 300


class Node:
    """What runs the scripts of the packages in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self) -> None:
        """Fetch the packages; SystemExit with a sentence when that cannot be."""
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("there is no npm on this machine; the protocol's conformance suite needs it")
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(self.folder), *PACKAGES]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if ran.returncode != 0:
            raise SystemExit(f"npm could not install {', '.join(PACKAGES)}: {ran.stdout}{ran.stderr}")

    def run(self, script: Path, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, whatever its exit code; only its words are awaited, not longer than `seconds`."""
        command: list[str | Path] = [self.folder / "node_modules" / ".bin" / "node", script, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False)
