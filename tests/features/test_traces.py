"""Traces, from a served campus to a collector that speaks OTLP over HTTP."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anyio
from fastmcp import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from serving import serving

from tests import patient

CONFIG = """
[storage]
url = "sqlite:data"
[products.all]
scope = "all"
price = "9"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
[buildings.recorder]
"""


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            for resource in ExportTraceServiceRequest.FromString(plain).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()


def test_each_call_is_one_trace_from_the_edge_to_its_statements_and_none_tells_a_secret(tmp_path: Path) -> None:
    callers_trace, name = "4bf92f3577b34da6a3ce929d0e0e4736", "nightly-traced"

    async def call_over_mcp(url: str, key: str) -> None:
        async with Client(f"{url}/recorder/mcp", auth=key) as client:
            await client.call_tool("fleet_status", {})

    with collector() as (endpoint, spans):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER_ARG": "1"}
        with serving(tmp_path, CONFIG, environ=environ) as served:
            key = served.key("all")
            bearer = {"Authorization": f"Bearer {key}", "traceparent": f"00-{callers_trace}-00f067aa0ba902b7-00"}
            monitor = {"name": name, "period_minutes": 60, "alert_webhook": "https://hooks.slack.com/x"}
            made = patient.post(f"{served.url}/v1/recorder/monitors", json=monitor, headers=bearer)
            assert made.status_code == 200, made.text
            assert patient.get(f"{served.url}/v1/no/such?token=s3cret").status_code == 404
            anyio.run(call_over_mcp, served.url, key)
    by_id = {span.span_id: span for span in spans}
    roots = {span.name: span for span in spans if span.parent_span_id not in by_id}
    registration = roots["POST /v1/recorder/monitors"]
    assert registration.trace_id.hex() == callers_trace
    below = [span for span in spans if span.trace_id == registration.trace_id and span is not registration]
    assert "INSERT" in {span.name for span in below}
    assert all(span.parent_span_id in by_id for span in below)
    (listed,) = [span for span in spans if span.name.endswith("recorder:fleet_status")]
    assert {"tools/call fleet_status", "SELECT"} <= {span.name for span in spans if span.trace_id == listed.trace_id}
    assert "job" in roots
    for span in spans:
        text = str(span)
        assert not [secret for secret in (key, "s3cret", name) if secret in text], text


def test_a_caller_decides_what_is_traced_only_where_the_sampler_follows_parents(tmp_path: Path) -> None:
    sampled, other = f"00-{'a' * 32}-{'1' * 16}-01", f"00-{'b' * 32}-{'1' * 16}-00"
    for sampler, followed in (("parentbased_traceidratio", {"a" * 32}), ("traceidratio", set())):
        with collector() as (endpoint, spans):
            environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER_ARG": "0", "OTEL_TRACES_SAMPLER": sampler}
            (folder := tmp_path / sampler).mkdir()
            with serving(folder, CONFIG, environ=environ) as served:
                for header in (sampled, other, "nonsense"):
                    assert patient.get(f"{served.url}/v1/gateway", headers={"traceparent": header}).status_code == 200
        assert {span.trace_id.hex() for span in spans if span.name.startswith("GET")} == followed


def test_calls_are_answered_while_the_collector_is_away(tmp_path: Path) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_SAMPLER_ARG": "1"}
    with serving(tmp_path, CONFIG, environ=environ) as served:
        assert [patient.get(f"{served.url}/v1/gateway").status_code for _ in range(3)] == [200] * 3
