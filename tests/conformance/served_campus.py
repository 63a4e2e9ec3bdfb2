"""A served campus for the conformance checks: a list made from the shipped sample, and a key in every state."""

import json
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

SAMPLE = (Path(__file__).parents[2] / "buildings" / "cve" / "sample").as_uri()
NOWHERE = "file:///nowhere"
OPERATOR_PASSWORD = "conformance-operator"
LONG_AGO = timedelta(days=60)
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
kev_mirror_url = "{feeds}/kev.json"
epss_url = "{feeds}/epss.csv"
nvd_url = "{feeds}/nvd.json"
watches_per_minute = 1_000_000
[buildings.recorder]
registrations_per_minute = 1_000_000  # all of them come from one address
[web]
allowed_hosts = ["127.0.0.1"]
"""
CHECKOUT = """
[buildings.checkout]
grants = ["keys"]
[payments]
"""
UNPAYABLE = {
    "network": "eip155:8453",
    "pay_to": "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB",
    "facilitator_url": "http://127.0.0.1:9",
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
    """A campus that is served, its keys, and the one day in its archive."""

    served: Served
    tokens: Tokens
    day: date

    @property
    def url(self) -> str:
        """Its address."""
        return self.served.url


CONNECT = """
[connect]
client_documents = false  # theirs are on the internet
"""


@contextmanager
def serve_campus(
    folder: Path, *, payments: Mapping[str, str] | None = None, direct_mcp: str = "on", connect: bool = False
) -> Iterator[ServedCampus]:
    """Serve a campus from `folder` until the block ends; its feeds are unset by then, so that its list stays.

    With a table of `payments` there is a checkout too; with `connect`, clients that speak OAuth only can connect. `direct_mcp` is on
    or off.
    """
    text = f'direct_mcp = "{direct_mcp}"\n{CONFIG}{CONNECT if connect else ""}'
    if payments:
        text += CHECKOUT + "".join(f"{name} = {json.dumps(value)}\n" for name, value in payments.items())
    config = write_config(folder, text.format(feeds=SAMPLE), port=1)
    tokens, day = anyio.run(prepare, config)
    with serving(folder, text.format(feeds=NOWHERE), environ={"CAMPUS_OPERATOR_PASSWORD": OPERATOR_PASSWORD}) as served:
        yield ServedCampus(served, tokens, day)


async def prepare(config: Path) -> tuple[Tokens, date]:
    """Make the list and the keys."""
    now = datetime.now(UTC)
    async with opened(config, at=now - LONG_AGO) as campus:
        _, expired = await campus.keys.issue("cve")
    async with opened(config, at=now) as campus:
        await campus.run_job("cve.refresh", accept=True)
        tokens = {product: (await campus.keys.issue(product))[1] for product in ("cve", "campus-pass", "recorder")}
        key, revoked = await campus.keys.issue("cve")
        await campus.keys.revoke(key.id)
    return Tokens(tokens["cve"], tokens["campus-pass"], tokens["recorder"], revoked, expired), now.date()


@asynccontextmanager
async def opened(config: Path, *, at: datetime) -> AsyncIterator[Campus]:
    """The campus in this process, with its clock at `at`."""
    async with assemble(read_config(config), exclusive=False, clock=(clock := Clock(at)), elapsed=clock.elapsed) as campus:
        yield campus
