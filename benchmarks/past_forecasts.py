"""`python -m benchmarks.past_forecasts`: makes the forecasts of past days from real feed files, and prints how they are graded."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import cyclopts

from benchmarks.feeds import FOLDER
from buildings.cve.building import building
from campus.testing import Clock, open_campus

KEV_FILE = "known_exploited_vulnerabilities-2026.08.21.json"
EPSS_FILES = {
    date(2026, 1, 30): "epss_scores-2026-01-30.ORIGINAL.csv.gz",
    date(2026, 8, 8): "epss_scores-2026-08-08.reconstructed.csv.gz",
    date(2026, 8, 15): "epss_scores-2026-08-15.reconstructed.csv.gz",
}
LAST = date(2026, 8, 21)


@dataclass(frozen=True)
class Replay:
    """The forecast of each day, and the record and some CVEs' histories after the last one."""

    lists: Mapping[date, Mapping[str, Any]]
    record: Mapping[str, Any]
    histories: Mapping[str, Mapping[str, Any]]


def catalog_of(published: Mapping[str, Any], day: date) -> dict[str, Any]:
    """The catalog with the listings up to a day."""
    listed = [one for one in published["vulnerabilities"] if date.fromisoformat(one["dateAdded"]) <= day]
    about = {"catalogVersion": day.strftime("%Y.%m.%d"), "dateReleased": f"{day}T17:00:00.000Z", "count": len(listed)}
    return {**published, **about, "vulnerabilities": listed}


async def replay(feeds: Path, cve_ids: Sequence[str] = ()) -> Replay:
    """Make the list of each day in a real campus whose clock shows that day, and grade them all on the last."""
    published = json.loads((feeds / KEV_FILE).read_bytes())
    clock = Clock(datetime(2026, 1, 30, 20, 30, tzinfo=UTC))
    lists = {}
    with TemporaryDirectory(prefix="campus-forecasts-") as folder:
        kev, epss, nvd = (Path(folder) / name for name in ("kev.json", "epss.csv.gz", "nvd.json"))
        addresses = {"kev_url": kev.as_uri(), "kev_mirror_url": kev.as_uri(), "epss_url": epss.as_uri(), "nvd_url": nvd.as_uri()}
        async with open_campus(clock=clock, settings=addresses, cve=building) as campus:
            for day in (*EPSS_FILES, LAST):
                clock.step(datetime.combine(day, clock().timetz()) - clock())
                kev.write_text(json.dumps(catalog_of(published, day)))
                if day in EPSS_FILES:
                    epss.write_bytes((feeds / EPSS_FILES[day]).read_bytes())
                await campus.run("refresh", accept=day == min(EPSS_FILES))  # the first list of thinned feeds needs it
                lists[day] = (await campus.call("next_in_kev", key="cve", date=str(day), limit=100)).data
            histories = {cve_id: (await campus.call("cve_history", key="cve", cve_id=cve_id)).data for cve_id in cve_ids}
            return Replay(lists, (await campus.call("next_record")).data, histories)


def lines_of(record: Mapping[str, Any]) -> Iterator[str]:
    """The record in words: each hit of the published lists, then the results of each ranking."""
    for hit in record["hits"]:
        yield f"{hit['list_day']} rank {hit['rank']:>3}  {hit['cve_id']}  listed on {hit['listed_on']}, in {hit['lists']} lists"
    for one in record["rankings"]:
        yield f"{one['ranking']}: {one['graded']} lists graded, {one['waiting']} waiting, {one['events']} events"
        yield f"    AUC {one['auc']} {one['auc_interval']}"
        for depth in one["depths"]:
            yield f"    first {depth['first']:>4}: {depth['hits']} of {depth['names']} names, recall {depth['recall']}"


def main(*, feeds: Path = FOLDER) -> None:
    """Print the grades of the past days; `feeds` is the folder of the real feed files."""
    for line in lines_of(anyio.run(replay, feeds.resolve()).record):
        print(line)


if __name__ == "__main__":
    cyclopts.run(main)
