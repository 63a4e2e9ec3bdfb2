"""What payments cost: those who pay, those who have a key, those who call what is free, and the operator who starts the service."""

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
from benchmarks.market import CONFIG, FREE, HANG_SECONDS, SOLD, Market, Money, open_market, open_money
from benchmarks.processes import LAST, environment, on_cpu, own_module
from benchmarks.servers import refresh
from benchmarks.wire import get
from campus.testing.payments import receipt_of
from tests.serving import CAMPUS, free_port, write_config

HANGING = 8  # as many as one wallet at one address may have checked at once
PAID_CALLS = 15
REFUSAL_GOAL, UNCHANGED_GOAL, PAID_GOAL, BOOT_GOAL = 0.7, 0.97, 25, 3.0
"""Shares of a rate, milliseconds of CPU, seconds."""
NAMED = "benchmarks"
"""The id of each request: a refusal repeats it."""


def payment_lines(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, times: int) -> Iterator[Line]:
    """All of them; `times` is how often paid calls and each start are measured."""
    with open_money() as money:

        @contextmanager
        def opened(number: int) -> Iterator[Sequence[Comparison]]:
            with open_market(folder / f"market{number}", feeds, money) as market:
                paid_call(market)  # so that x402 is loaded by then
                yield list(comparisons(market))

        yield from lines_of(in_turns(opened, rounds=rounds, seconds=seconds))
        with open_market(folder / "market", feeds, money) as market, on_cpu(LAST):
            costs = [paid_call(market) for _ in range(times)]
        yield line_of_costs("a paid call: CPU of campus alone", unit="ms", costs=costs, goal=PAID_GOAL)
        yield from boot_lines(folder, feeds, money, times=times)


def comparisons(market: Market) -> Iterator[Comparison]:
    """What goes on beside payments, and the refusal that asks for one."""
    free = _target(market, FREE)
    refused = Target(market.on.server, ask(market.on.server, [_request(market.on.server.port, SOLD)], status=402))
    if "accepts" not in json.loads(refused.exchanges[0].body):
        raise WrongAnswerError("the 402 carries no terms")
    yield Comparison("402 with its terms ÷ the free twin", REFUSAL_GOAL, refused, free)
    on, off = (Target(side.server, ask(side.server, [get(SOLD, port=side.server.port, key=side.key)])) for side in (market.on, market.off))
    yield Comparison("a call by key, payments on ÷ off", UNCHANGED_GOAL, on, off)
    yield Comparison(
        f"free, {HANGING} paid calls hanging in the facilitator ÷ none", UNCHANGED_GOAL, free, free, partial(market.hanging, HANGING)
    )


def _target(market: Market, path: str) -> Target:
    return Target(market.on.server, ask(market.on.server, [_request(market.on.server.port, path)]))


def _request(port: int, path: str) -> bytes:
    return get(path, port=port, request_id=NAMED)


def paid_call(market: Market) -> float:
    """CPU milliseconds of campus for one paid call, from many; they go one after the other."""
    payments = market.signed(PAID_CALLS)
    before = market.on.server.cpu_seconds()
    answers = [market.pay(headers) for headers in payments]
    cpu = market.on.server.cpu_seconds() - before
    if any(answer.status_code != 200 or not receipt_of(answer)["success"] for answer in answers):
        raise WrongAnswerError(f"a paid call was answered {answers[-1].status_code}: {answers[-1].text[:300]}")
    return cpu / PAID_CALLS * 1000


def boot_lines(folder: Path, feeds: Feeds, money: Money, *, times: int) -> Iterator[Line]:
    """The start with and without payments, whatever the facilitator does; and what of the chain's libraries is loaded by then."""
    tables = {
        "campus serve without [payments]: exec to first 200": "",
        "the same with [payments]": money.table(money.facilitator.url),
        f"the same, facilitator hanging {HANG_SECONDS} s": money.table(money.hanging.url),
        "the same, facilitator down": money.table(f"http://127.0.0.1:{free_port()}"),
    }
    configs = {what: _config(folder / f"start{number}", feeds, table) for number, (what, table) in enumerate(tables.items())}
    yield from lines_of_starts([_start(what, config) for what, config in configs.items()], times=times)
    without, with_payments, *_ = configs.values()
    what = "modules of x402, web3 and the like when it listens"
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
    """How many of them a campus holds that is open, and about to listen."""
    command = own_module("loaded", str(at[0]))
    return int(subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True).stdout)
