"""The folder of real feed files, if there is one, and a campus.toml that reads them."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.processes import ROOT
from tests.serving import free_port, write_config

FOLDER = ROOT.parent / "shared" / "feeds"
DAY = date(2026, 8, 21)
FILES = {
    "kev_url": "known_exploited_vulnerabilities-2026.08.21.json",
    "kev_mirror_url": "known_exploited_vulnerabilities-2026.08.21.json",
    "epss_url": "epss_scores-2026-08-15.reconstructed.csv.gz",
    "nvd_url": "nvdcve-2.0-modified.ORIGINAL-2026-03.json.gz",
}


@dataclass(frozen=True)
class Feeds:
    """A folder that may hold the files."""

    folder: Path

    @property
    def missing(self) -> str | None:
        """Why the files cannot be read; None if they can."""
        lacking = [name for name in FILES.values() if not (self.folder / name).is_file()]
        return f"there is no {self.folder / lacking[0]}" if lacking else None

    @property
    def settings(self) -> str:
        """The lines of [buildings.cve]; without the files the feeds are unset, so that nothing is downloaded."""
        return "\n".join(["osv_ecosystems = []", *(f'{key} = "{(self.folder / name).as_uri()}"' for key, name in FILES.items())])

    def config(self, folder: Path, text: str) -> Path:
        """Write campus.toml into a folder; `text` follows its first table."""
        folder.mkdir(exist_ok=True)
        return write_config(folder, text, port=free_port())
