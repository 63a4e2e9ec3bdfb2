"""`make pictures`: every page in every state, on a phone and a desktop, light and dark, in one sheet that somebody looks at."""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

import anyio
import cyclopts
from lab.pictures.painting import LOOKS, opened_browser, paint
from lab.pictures.sheet import complaints, written
from lab.pictures.stages import STAGES
from lab.pictures.views import PICTURED, not_pictured


@dataclass(frozen=True)
class Wanted:
    stages: Collection[str]
    views: str
    looks: Collection[str]
    axe: str | None


async def pictured(folder: Path, wanted: Wanted) -> int:
    pictures, views = [], []
    async with opened_browser() as browser:
        for name, stage in STAGES.items():
            if wanted.stages and name not in wanted.stages:
                continue
            began = monotonic()
            async with stage() as found:
                made = monotonic()
                views += found
                some = [view for view in found if wanted.views in f"{view.group}, {view.name}"]
                pictures += await paint(browser, some, folder, looks=wanted.looks, axe=wanted.axe)
                print(f"{name}: {len(some)} views, made in {made - began:.0f} s, pictured in {monotonic() - made:.0f} s", flush=True)
    print("\n".join(complaints(pictures)))
    missing = [] if wanted.stages else not_pictured(PICTURED, views, PICTURED)
    print("".join(f"no view of {route}\n" for route in missing), end="")
    print(f"{len(pictures)} pictures: {written(pictures, folder)}")
    return 1 if missing else 0


def main(
    *, into: Path | None = None, stage: tuple[str, ...] = (), only: str = "", look: tuple[str, ...] = (), axe: Path | None = None
) -> None:
    """Write the sheet into a new folder, or `into` another; only some stages, views with `only` in their name, or looks.

    With `axe`, the path of axe-core's axe.min.js, its findings are in the sheet too.
    """
    folder = into or Path(mkdtemp(prefix="campus-pictures-"))
    folder.mkdir(parents=True, exist_ok=True)
    looks = look or tuple(f"{size}-{scheme}" for size, scheme in LOOKS)
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(anyio.run(pictured, folder, Wanted(stage, only, looks, axe.read_text() if axe else None)))


if __name__ == "__main__":
    cyclopts.run(main)
