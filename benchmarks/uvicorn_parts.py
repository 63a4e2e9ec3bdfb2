"""What campus's own parts over uvicorn's protocol save a keyed call, each beside a campus in which it is switched back."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import create_connection

from benchmarks.comparisons import Comparison, in_turns
from benchmarks.figures import Line, line_of_pairs, line_of_skipped
from benchmarks.load import Target, ask
from benchmarks.processes import HOST, LAST, Server, baseline, campus, on_cpu, stop
from benchmarks.wire import get
from tests.serving import free_port

GOALS = {"responses": 1.05, "connections": 0.95}
"""A part that saves less than a twentieth of a call's CPU is not worth its lines; all limits together may cost as much."""
CONFIG = """
[products.cve]
scope = "cve"
price = "19"
term = "30 days"

[buildings.cve]
sample = true
"""
CADDYFILE = """
{{
    admin off
    auto_https off
}}
http://{host}:{port} {{
    reverse_proxy {host}:{upstream} {{
        header_up Host {host}:{upstream}
        transport http {{
            keepalive 10s
        }}
    }}
}}
"""


def part_lines(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """Each part, asked directly and behind Caddy, over keep-alive connections."""
    (folder / "made").mkdir(parents=True)
    with campus(folder / "made", CONFIG) as (_, served):
        key = served.key("cve")

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        with ExitStack() as stack:
            sides = {}
            for part in ("nothing", *GOALS):
                place = shutil.copytree(folder / "made", folder / f"{part}{number}")
                sides[part] = _sides(stack.enter_context(baseline("switched_back", part, str(place / "campus.toml"))), key, place, stack)
            yield [
                Comparison(f"{part} ÷ uvicorn's own, {way}", goal, ours, theirs)
                for part, goal in GOALS.items()
                for (way, ours), theirs in zip(sides["nothing"].items(), sides[part].values(), strict=True)
            ]

    for one in in_turns(opened, rounds=rounds, seconds=seconds):
        yield line_of_pairs(one.comparison.what, goal=one.comparison.goal, pairs=one.pairs, judged=["CPU"])
    if not shutil.which("caddy"):
        yield line_of_skipped("the same behind Caddy", reason="caddy is not installed")


def _sides(server: Server, key: str, folder: Path, stack: ExitStack) -> dict[str, Target]:
    """A campus, asked for one CVE directly and behind a Caddy of its own; the CPU that is measured is always that of the campus."""
    (brief,) = ask(server, [get("/v1/brief/today", port=server.port, key=key)])
    found = re.search(rb"CVE-[0-9]+-[0-9]+", brief.body)
    assert found
    path = f"/v1/cve/{found[0].decode()}"
    sides = {"direct": Target(server, ask(server, [get(path, port=server.port, key=key)]))}
    if program := shutil.which("caddy"):
        front = replace(server, port=stack.enter_context(_proxied(program, server, folder)))
        sides["behind Caddy"] = Target(front, ask(front, [get(path, port=front.port, key=key)]))
    return sides


@contextmanager
def _proxied(program: str, server: Server, folder: Path) -> Iterator[int]:
    """Caddy before a server, on the CPU of the load; its port."""
    port = free_port()
    file = folder / "Caddyfile"
    file.write_text(CADDYFILE.format(host=HOST, port=port, upstream=server.port))
    with on_cpu(LAST):
        process = subprocess.Popen(
            [program, "run", "--adapter", "caddyfile", "--config", file], stderr=subprocess.DEVNULL, env={"HOME": str(folder)}
        )
    try:
        _wait_until_it_listens(process, port)
        yield port
    finally:
        stop(process)


def _wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int) -> None:
    while True:
        assert process.poll() is None, "caddy ended"
        try:
            create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
