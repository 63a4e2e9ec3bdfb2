"""A served campus for the conformance checks: two days' lists made from the shipped sample, and a key in every state."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import anyio
from serving import Served, serving, write_config

from campus.app import Campus, assemble
from campus.config import read_config
from campus.testing import Clock

SAMPLE = Path(__file__).parents[2] / "buildings" / "cve" / "sample"
FIRST = "CVE-2018-7600"
"""First of the list that is made from the sample."""
NOWHERE = "file:///nowhere"
OPERATOR_PASSWORD = "conformance-operator"
LONG_AGO, A_DAY = timedelta(days=60), timedelta(days=1)
CONFIG = """
openapi = "cve"
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"
[products.campus-pass]
scope = "all"
price = "29"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
archive_start = "2000-01-01"
kev_url = "{feeds}/kev.json"
osv_ecosystems = []
kev_mirror_url = "{feeds}/kev.json"
epss_url = "{feeds}/epss.csv"
nvd_url = "{feeds}/nvd.json"
watches_per_minute = 1_000_000
[buildings.recorder]
registrations_per_minute = 1_000_000  # all of them come from one address
monitors_per_host = 1_000_000  # and name this machine
[web]
allowed_hosts = ["127.0.0.1"]
[limits]
free = "off"
keyed = "off"
unpaid = "off"
"""
CHECKOUT = """
[buildings.checkout]
grants = ["keys"]
[payments]
"""
UNPAYABLE = {
    "network": "eip155:8453",
    "pay_to": "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB",
    "facilitators": ["http://127.0.0.1:9"],
    "rpc_url": "http://127.0.0.1:9",
}
"""Payments whose terms are shown and that cannot be made."""


@dataclass(frozen=True)
class Tokens:
    """A key in every state."""

    cve: str
    campus_pass: str
    recorder: str
    revoked: str
    expired: str
    unknown: str = "campus_live_" + "a" * 38


@dataclass(frozen=True)
class ServedCampus:
    """A campus that is served, its keys, and the newest day in its archive, which has the day before it too and no other."""

    served: Served
    tokens: Tokens
    day: date

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def day_before(self) -> date:
        return self.day - A_DAY


CONNECT = """
[connect]
client_documents = false  # theirs are on the internet
"""


@contextmanager
def serve_campus(
    folder: Path, *, payments: Mapping[str, str] | None = None, direct_mcp: str = "on", connect: bool = False
) -> Iterator[ServedCampus]:
    """Serve a campus from `folder` until the block ends; its feeds are unset by then, so that its lists stay.

    With a table of `payments` there is a checkout too; with `connect`, clients that speak OAuth only can connect. `direct_mcp` is on
    or off.
    """
    text = f'direct_mcp = "{direct_mcp}"\n{CONFIG}{CONNECT if connect else ""}'
    if payments:
        text += CHECKOUT + "".join(f"{name} = {json.dumps(value)}\n" for name, value in payments.items())
    tokens, day = anyio.run(prepare, folder, text)
    with serving(folder, text.format(feeds=NOWHERE), environ={"CAMPUS_OPERATOR_PASSWORD": OPERATOR_PASSWORD}) as served:
        yield ServedCampus(served, tokens, day)


async def prepare(folder: Path, text: str) -> tuple[Tokens, date]:
    """Make the lists, between which KEV adds a CVE, and the keys."""
    now, feeds = datetime.now(UTC), feeds_of_the_day_before(folder)
    config = write_config(folder, text.format(feeds=feeds.as_uri()), port=1)
    async with opened(config, at=now - LONG_AGO) as campus:
        _, expired = await campus.keys.issue("cve")
    async with opened(config, at=now - A_DAY) as campus:
        await campus.run_job("cve.refresh", accept=True)
    config = write_config(folder, text.format(feeds=SAMPLE.as_uri()), port=1)
    async with opened(config, at=now) as campus:
        await campus.run_job("cve.refresh", accept=True)
        tokens = {product: (await campus.keys.issue(product))[1] for product in ("cve", "campus-pass", "recorder")}
        key, revoked = await campus.keys.issue("cve")
        await campus.keys.revoke(key.id)
    return Tokens(tokens["cve"], tokens["campus-pass"], tokens["recorder"], revoked, expired), now.date()


def feeds_of_the_day_before(folder: Path) -> Path:
    feeds = shutil.copytree(SAMPLE, folder / "feeds")
    kev = json.loads((feeds / "kev.json").read_text())
    listed = [one for one in kev["vulnerabilities"] if one["cveID"] != FIRST]
    (feeds / "kev.json").write_text(json.dumps({**kev, "count": len(listed), "vulnerabilities": listed}))
    return feeds


@asynccontextmanager
async def opened(config: Path, *, at: datetime) -> AsyncIterator[Campus]:
    async with assemble(read_config(config), exclusive=False, clock=(clock := Clock(at)), elapsed=clock.elapsed) as campus:
        yield campus
