"""A small hand-written sample in the three feeds' own formats, served until the first list is made."""

from dataclasses import replace
from pathlib import Path

from buildings.cve.feeds.epss import parse_epss
from buildings.cve.feeds.kev import parse_kev
from buildings.cve.feeds.nvd import NvdPage, parse_nvd
from buildings.cve.nvd.records import held_whole
from buildings.cve.ranking.edition import Edition, make_edition

FOLDER = Path(__file__).parent


def sample_edition() -> Edition:
    kev = parse_kev((FOLDER / "kev.json").read_bytes())
    nvd = _nvd()
    edition = make_edition(
        day=kev.released_at.date(),
        made_at=kev.released_at,
        kev=kev,
        epss=parse_epss((FOLDER / "epss.csv").read_bytes()),
        nvd=held_whole(nvd.records, issue=nvd.issue),
    )
    return replace(edition, is_sample=True)


def sample_description(cve_id: str) -> str | None:
    return next((one.description for one in _nvd().records if one.cve_id == cve_id), None)


def _nvd() -> NvdPage:
    return parse_nvd((FOLDER / "nvd.json").read_bytes())
