"""The cost of payments: for paid calls, for calls by key, for free calls while paid ones wait, and for the start."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.comparisons import Comparison, in_turns, lines_of
from benchmarks.costs import Start, lines_of_starts
from benchmarks.feeds import Feeds
from benchmarks.figures import Line, line_of_costs
from benchmarks.load import Target, WrongAnswerError, ask
from benchmarks.paid_servers import CONFIG, FREE, HANG_SECONDS, SOLD, PaidServers, PaymentNetwork, open_paid_servers, open_payment_network
from benchmarks.processes import LAST, environment, on_cpu, own_module
from benchmarks.servers import refresh
from benchmarks.wire import get
from campus.features.chain import receipt_of
from tests.serving import CAMPUS, free_port, write_config

HANGING = 8  # the most payments of one address that are verified at once
PAID_CALLS = 15
REFUSAL_GOAL, UNCHANGED_GOAL, PAID_GOAL, BOOT_GOAL = 0.7, 0.97, 25, 3.0
"""Shares of a rate, milliseconds of CPU, seconds."""
REQUEST_ID = "benchmarks"
"""The X-Request-Id of each request, so that refusals, which repeat it, are all the same."""


def payment_lines(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, times: int) -> Iterator[Line]:
    """All lines; `times` is how often paid calls and each start are measured."""
    with open_payment_network() as network:

        @contextmanager
        def opened(number: int) -> Iterator[Sequence[Comparison]]:
            with open_paid_servers(folder / f"servers{number}", feeds, network) as servers:
                paid_call(servers)  # loads x402
                yield list(comparisons(servers))

        yield from lines_of(in_turns(opened, rounds=rounds, seconds=seconds))
        with open_paid_servers(folder / "servers", feeds, network) as servers, on_cpu(LAST):
            costs = [paid_call(servers) for _ in range(times)]
        yield line_of_costs("a paid call: CPU of campus alone", unit="ms", costs=costs, goal=PAID_GOAL)
        yield from boot_lines(folder, feeds, network, times=times)


def comparisons(servers: PaidServers) -> Iterator[Comparison]:
    """The refusal with terms, calls by key, and free calls while paid calls wait."""
    free = _target(servers, FREE)
    refused = Target(servers.on.server, ask(servers.on.server, [_request(servers.on.server.port, SOLD)], status=402))
    if "accepts" not in json.loads(refused.exchanges[0].body):
        raise WrongAnswerError("the 402 carries no terms")
    yield Comparison("402 with its terms ÷ the free twin", REFUSAL_GOAL, refused, free)
    on, off = (
        Target(side.server, ask(side.server, [get(SOLD, port=side.server.port, key=side.key)])) for side in (servers.on, servers.off)
    )
    yield Comparison("a call by key, payments on ÷ off", UNCHANGED_GOAL, on, off)
    yield Comparison(
        f"free, {HANGING} paid calls hanging in the facilitator ÷ none", UNCHANGED_GOAL, free, free, partial(servers.hanging, HANGING)
    )


def _target(servers: PaidServers, path: str) -> Target:
    return Target(servers.on.server, ask(servers.on.server, [_request(servers.on.server.port, path)]))


def _request(port: int, path: str) -> bytes:
    return get(path, port=port, request_id=REQUEST_ID)


def paid_call(servers: PaidServers) -> float:
    """CPU milliseconds of campus per paid call, the mean of several in sequence."""
    payments = servers.signed(PAID_CALLS)
    before = servers.on.server.cpu_seconds()
    answers = [servers.pay(headers) for headers in payments]
    cpu = servers.on.server.cpu_seconds() - before
    if any(answer.status_code != 200 or not receipt_of(answer)["success"] for answer in answers):
        raise WrongAnswerError(f"a paid call was answered {answers[-1].status_code}: {answers[-1].text[:300]}")
    return cpu / PAID_CALLS * 1000


def boot_lines(folder: Path, feeds: Feeds, network: PaymentNetwork, *, times: int) -> Iterator[Line]:
    """The start with and without payments, with a facilitator that works, hangs or is down; and the loaded blockchain modules."""
    tables = {
        "campus serve without [payments]: exec to first 200": "",
        "the same with [payments]": network.table(network.facilitator.url),
        f"the same, facilitator hanging {HANG_SECONDS} s": network.table(network.hanging.url),
        "the same, facilitator down": network.table(f"http://127.0.0.1:{free_port()}"),
    }
    configs = {what: _config(folder / f"start{number}", feeds, table) for number, (what, table) in enumerate(tables.items())}
    yield from lines_of_starts([_start(what, config) for what, config in configs.items()], times=times)
    without, with_payments, *_ = configs.values()
    what = "modules of x402, web3 and other blockchain libraries at start"
    yield line_of_costs(f"{what}, without [payments]", unit="", costs=[heavy_modules(without)], goal=0)
    yield line_of_costs(f"{what}, with [payments]", unit="", costs=[heavy_modules(with_payments)], goal=0)


def _config(folder: Path, feeds: Feeds, table: str) -> tuple[Path, int]:
    folder.mkdir(parents=True)
    text = CONFIG.format(feeds=feeds.settings) + table
    refresh(folder, feeds, text)
    return write_config(folder, text, port=(port := free_port())), port


def _start(what: str, at: tuple[Path, int]) -> Start:
    config, port = at
    return Start(what, [CAMPUS, "serve", "--config", config], port, FREE, BOOT_GOAL)


def heavy_modules(at: tuple[Path, int]) -> int:
    """How many of those modules are loaded in an open campus before it listens."""
    command = own_module("loaded_modules", str(at[0]))
    return int(subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True).stdout)
