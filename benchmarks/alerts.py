"""What the alert of a dead monitor costs: each goes to a target of its own, over TLS, to one receiver on the other CPU."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Line, line_of_costs
from benchmarks.monitors import CONFIG, fill, opened
from benchmarks.outages import cause_outage
from benchmarks.processes import LAST, campus, on_cpu, running
from tests.recorder.receivers import make_authority

DEATHS = 5_000
GOAL = 0.6
GIVE_UP_SECONDS = 120.0
POLL_SECONDS = 0.05


def alert_lines(folder: Path, *, times: int) -> Iterator[Line]:
    """CPU of campus for each alert, from its raising to the stored result."""
    folder.mkdir()
    found = [_spent(folder / str(number)) for number in range(times)]
    seconds, cpu = zip(*found, strict=True)
    yield line_of_costs(
        f"CPU of one alert, of {DEATHS:,} by TLS to one host", unit="ms", costs=[1000 * one / DEATHS for one in cpu], goal=GOAL
    )
    yield line_of_costs("the same: until all are delivered", unit="s", costs=seconds)


def _spent(folder: Path) -> tuple[float, float]:
    """Seconds and CPU seconds from the common deadline of all monitors until no alert waits."""
    folder.mkdir()
    authority = make_authority(folder)
    with ExitStack() as stack, on_cpu(LAST):
        _, port = stack.enter_context(running("webhook_receiver", str(authority.file), cpu=LAST))
        fill(folder, DEATHS, receiver_url=f"https://localhost:{port}/", per_target=1)
        server, _ = stack.enter_context(campus(folder, CONFIG, environ={"SSL_CERT_FILE": str(authority.file)}))
        database = stack.enter_context(opened(folder))
        cpu, began = server.cpu_seconds(), time.perf_counter()
        cause_outage(database, 0, size=DEATHS)
        while database.waiting():
            if time.perf_counter() - began > GIVE_UP_SECONDS:
                raise RuntimeError(f"{database.waiting():,} alerts still wait after {GIVE_UP_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began, server.cpu_seconds() - cpu
