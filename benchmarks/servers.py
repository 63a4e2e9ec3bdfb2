"""Starts the servers of the call benchmarks: one campus and the baselines, each as a separate process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.feeds import Feeds
from benchmarks.load import ask
from benchmarks.processes import Server, baseline, campus, run_campus
from benchmarks.wire import get

CONFIG = """
[products.cve]
scope = "cve"
price = "19"
term = "30 days"

[buildings.gateway]
path = "/"

[buildings.cve]
sample = true
{feeds}

[buildings.uncached]
server = "benchmarks.uncached_building:server"
scope = "cve"
tools = {{ "*" = {{ price = "0.02" }} }}
"""
LISTS = {"brief": "/v1/brief/today", "teaser": "/v1/brief/teaser", "uncached": "/v1/uncached/today"}


@dataclass(frozen=True)
class Servers:
    """Every server of a run; `key` opens all paid tools of campus."""

    campus: Server
    key: str
    bare_starlette: Server
    handwritten: Server


@contextmanager
def open_servers(folder: Path, feeds: Feeds) -> Iterator[Servers]:
    """Start campus on the list made from the feeds (or the sample), and the baselines on campus's answers."""
    text = CONFIG.format(feeds=feeds.settings)
    documents = folder / "documents"
    documents.mkdir(parents=True)
    with ExitStack() as stack:
        refresh(folder, feeds, text)
        server, served = stack.enter_context(campus(folder, text))
        key = served.key("cve")
        for name, path in LISTS.items():
            (exchange,) = ask(server, [get(path, port=server.port, key=key)])
            (documents / f"{name}.json").write_bytes(exchange.body)
        yield Servers(
            campus=server,
            key=key,
            bare_starlette=stack.enter_context(baseline("bare_starlette", str(documents))),
            handwritten=stack.enter_context(baseline("handwritten_verdicts", str(served.config))),
        )


def refresh(folder: Path, feeds: Feeds, text: str) -> None:
    """Make the day's list before anything is measured; the sample needs no refresh."""
    if feeds.missing is None:
        run_campus("run", "cve.refresh", "--config", feeds.config(folder, text))
