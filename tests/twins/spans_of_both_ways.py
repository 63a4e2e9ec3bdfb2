"""Prints the spans of the same requests by a server's own app and by the direct endpoint. A process has one tracer provider."""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from fastmcp import FastMCP
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, TracerProvider, get_current_span

sys.path.append(str(Path(__file__).parents[1]))
from mcp_oracle import LEGACY, MODERN, ask, request_of

from twins import ArgumentChecker, DirectMcp, operations_of, serve_schemas

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


class RecordedSpan(NonRecordingSpan):
    """A span that remembers what it is told."""

    def __init__(self, name: str, parent: SpanContext, attributes: Any) -> None:
        super().__init__(SpanContext(parent.trace_id or 1, 2, is_remote=False, trace_flags=TraceFlags(1)))
        self.said: dict[str, Any] = {"name": name, "trace": f"{parent.trace_id:x}", "attributes": dict(attributes or {})}

    def is_recording(self) -> bool:
        return True

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.said["attributes"])

    def set_attribute(self, key: str, value: Any) -> None:
        self.said["attributes"][key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.said["attributes"] |= attributes

    def update_name(self, name: str) -> None:
        self.said["name"] = name

    def record_exception(self, exception: BaseException, *_: Any, **__: Any) -> None:
        self.said.setdefault("errors", []).append(str(exception))


class RecordingTracer(Tracer):
    """Makes spans that are remembered, in order."""

    def __init__(self, spans: list[RecordedSpan]) -> None:
        self._spans = spans

    def start_span(self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, *_: Any, **__: Any) -> Any:
        span = RecordedSpan(name, get_current_span(context).get_span_context(), attributes)
        self._spans.append(span)
        return span

    def start_as_current_span(self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, *_: Any, **__: Any) -> Any:
        return trace.use_span(self.start_span(name, context, kind, attributes), end_on_exit=True)


class RecordingProvider(TracerProvider):
    """The provider of all tracers here."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:
        return RecordingTracer(self.spans)


async def main() -> None:
    """One line of JSON for each way."""
    provider = RecordingProvider()
    trace.set_tracer_provider(provider)
    mcp: FastMCP[Any] = FastMCP("Spans")

    @mcp.tool
    async def count(fail: bool = False) -> int:
        if fail:
            raise RuntimeError("count-secret-error")
        return 1

    app = mcp.http_app(path="/mcp", stateless_http=True)
    checkers = [ArgumentChecker(mcp, operation) for operation in await operations_of(mcp)]
    await serve_schemas(mcp)
    front = DirectMcp(app, mcp, checkers, stateless=True, explains=True)
    async with app.router.lifespan_context(app):
        for each in (app, front):
            provider.spans.clear()
            for version in (MODERN, LEGACY):
                for arguments in ({}, {"fail": True}):
                    request = request_of("", version, "tools/call", {"name": "count", "arguments": arguments}, meta=TRACE)
                    found = await ask(each, "/mcp", request)
                    assert found.way == ("twins" if each is front else ""), found.way
                await ask(each, "/mcp", request_of("", version, "tools/list", {}, meta=TRACE))
            print(json.dumps(described(provider.spans)))


def described(spans: Sequence[RecordedSpan]) -> list[dict[str, Any]]:
    for span in spans:
        span.said["attributes"].pop("mcp.session.id", None)
    return [span.said for span in spans]


logging.disable(logging.CRITICAL)
anyio.run(main)
