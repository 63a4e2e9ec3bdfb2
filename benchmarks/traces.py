"""What traces cost a call when a hundredth of the calls is traced: campus with a collector beside the same campus without one."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from benchmarks.comparisons import Comparison, in_turns
from benchmarks.figures import Line, line_of_pairs
from benchmarks.load import Target, ask
from benchmarks.processes import HOST, campus
from benchmarks.uvicorn_parts import CONFIG
from benchmarks.wire import get

GOAL = 0.98
SHARE = "0.01"


class Collector(BaseHTTPRequestHandler):
    """Takes all spans."""

    def do_POST(self) -> None:
        """Read, and answer that all is well."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def trace_lines(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """The day's list with a key, over HTTP."""
    (folder / "made").mkdir(parents=True)
    with campus(folder / "made", CONFIG) as (_, served):
        key = served.key("cve")

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        with ExitStack() as stack:
            collector = stack.enter_context(ThreadingHTTPServer((HOST, 0), Collector))
            Thread(target=collector.serve_forever, daemon=True).start()
            stack.callback(collector.shutdown)
            named = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector.server_port}", "OTEL_TRACES_SAMPLER_ARG": SHARE}
            targets = []
            for side, environ in (("traced", named), ("plain", {})):
                place = shutil.copytree(folder / "made", folder / f"{side}{number}")
                server, _ = stack.enter_context(campus(place, CONFIG, environ=environ))
                targets.append(Target(server, ask(server, [get("/v1/brief/today", port=server.port, key=key)])))
            yield [Comparison("a hundredth of the calls traced ÷ none", GOAL, targets[0], targets[1])]

    for one in in_turns(opened, rounds=rounds, seconds=seconds):
        yield line_of_pairs(one.comparison.what, goal=one.comparison.goal, pairs=one.pairs, judged=["CPU"])
