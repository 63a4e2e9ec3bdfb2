"""Everything that a run asks: one campus, and the baselines beside it, each a process of its own."""

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

[buildings.cve]
sample = true
{feeds}

[buildings.anew]
server = "benchmarks.anew:server"
scope = "cve"
tools = {{ "*" = {{ price = "0.02" }} }}

[buildings.one]
server = "benchmarks.bare:server"
count = 1
scope = "cve"
tools = {{ "*" = {{ price = "0.005" }} }}

[buildings.thirty]
server = "benchmarks.bare:server"
count = 30
scope = "cve"
tools = {{ "*" = {{ price = "0.005" }} }}
"""
LISTS = {"brief": "/v1/brief/today", "teaser": "/v1/brief/teaser", "anew": "/v1/anew/today"}


@dataclass(frozen=True)
class Servers:
    """Every server of a run; `key` opens all that campus sells."""

    campus: Server
    key: str
    plain: Server
    by_hand: Server
    one: Server
    thirty: Server


@contextmanager
def open_servers(folder: Path, feeds: Feeds) -> Iterator[Servers]:
    """Campus over the list made from the feeds (or the sample), and the baselines over what campus answers."""
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
            plain=stack.enter_context(baseline("plain", str(documents))),
            by_hand=stack.enter_context(baseline("by_hand", str(served.config))),
            one=stack.enter_context(baseline("bare", "1")),
            thirty=stack.enter_context(baseline("bare", "30")),
        )


def refresh(folder: Path, feeds: Feeds, text: str) -> None:
    """Make the day's list before anything is measured; the sample is there without."""
    if feeds.missing is None:
        run_campus("run", "cve.refresh", "--config", feeds.config(folder, text))
