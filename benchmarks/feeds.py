"""The real feed files, where they are at hand, and a campus.toml that reads them."""

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
        """Why there is nothing to read, else None."""
        lacking = [name for name in FILES.values() if not (self.folder / name).is_file()]
        return f"there is no {self.folder / lacking[0]}" if lacking else None

    @property
    def settings(self) -> str:
        """The lines of [buildings.cve]; with nothing to read, nothing is asked of the network either."""
        return "\n".join(f'{key} = "{(self.folder / name).as_uri()}"' for key, name in FILES.items())

    def config(self, folder: Path, text: str) -> Path:
        """A campus.toml in a folder of its own; `text` is what stands after the first table."""
        folder.mkdir(exist_ok=True)
        return write_config(folder, text, port=free_port())
