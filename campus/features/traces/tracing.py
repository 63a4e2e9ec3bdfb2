"""Traces of calls, jobs and alerts to a collector of OpenTelemetry, where the environment names one.

A share of requests is traced, chosen at the edge. Nothing below knows of it: some functions are wrapped once, SQLAlchemy says
which statements run, and FastMCP makes spans of its own. In a call that is not traced, each of them looks at one context variable.
"""

import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from random import getrandbits, random
from time import time_ns
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from campus.context import context_of
from campus.feature import named
from campus.installed import installed_features
from campus.jobs.run import Runner
from campus.paywall.admission import Paywall
from twins import Problem

SHARE = 0.01  # Of requests and alerts that are traced, unless OTEL_TRACES_SAMPLER_ARG says more. Jobs always are.
QUERY_LENGTH = 2000
FAILED = 500  # The lowest status of an error.
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
IN_TRACE: ContextVar[bool] = ContextVar("in_trace", default=False)


class Wrapped(NamedTuple):
    """A method that is a span of its own. One with a `share` begins a trace, if there is none, for that share of its calls."""

    owner: type
    method: str
    name: str
    share: float = 0


class Traced(TracerProvider):
    """The provider of spans. `records` is false in a call that is not traced: twins then calls the tool as if there were no provider."""

    @property
    def records(self) -> bool:
        return IN_TRACE.get()


@contextmanager
def in_trace() -> Iterator[None]:
    """While a trace is made in this task."""
    token = IN_TRACE.set(True)
    try:
        yield
    finally:
        IN_TRACE.reset(token)


class InTrace(Sampler):
    """Keeps the spans of traces that were begun here, and no other: what a caller names as their parent decides nothing."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, kind: Any = None, attributes: Any = None, *more: Any, **named: Any
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if IN_TRACE.get() else Decision.DROP, attributes)

    def get_description(self) -> str:
        return "InTrace"


class TracedApp:
    """An app each of whose requests is traced.

    A request's own span is made when it is over, as the SDK hands it to exporters. A span of the SDK's tracer takes 90 µs and, where one
    request in a hundred has one, 250 µs, because its code is in no cache of the CPU; this one takes 25 µs.
    """

    def __init__(self, app: ASGIApp, processor: SpanProcessor, resource: Resource) -> None:
        self._app = app
        self._processor = processor
        self._resource = resource
        self._made_by = InstrumentationScope("campus")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time_ns()
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        parent = callers_span(scope)
        span = SpanContext(parent.trace_id if parent else getrandbits(128), getrandbits(64), is_remote=False, trace_flags=SAMPLED)
        around, entered = attach(trace.set_span_in_context(NonRecordingSpan(span))), IN_TRACE.set(True)
        try:
            await self._app(scope, receive, sent)
        finally:
            IN_TRACE.reset(entered)
            detach(around)
        context = context_of(scope)
        code = context.status or status
        about = {"http.request.method": scope["method"], "http.response.status_code": code, "campus.request_id": scope["request_id"]}
        ended = ReadableSpan(
            f"{scope['method']} {context.route}" if context.route else scope["method"],  # no path and no query: they may hold secrets
            span,
            parent,
            self._resource,
            about | ({"http.route": context.route} if context.route else {}),
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR if code >= FAILED else StatusCode.UNSET),
            start_time=began,
            end_time=time_ns(),
            instrumentation_scope=self._made_by,
        )
        self._processor.on_end(ended)


def callers_span(scope: Scope) -> SpanContext | None:
    header = dict(scope["headers"]).get(b"traceparent")
    if header is None:
        return None
    found = trace.get_current_span(extract({"traceparent": header.decode("latin-1")})).get_span_context()
    return found if found.is_valid else None


def for_share(share: float, traced_app: ASGIApp, app: ASGIApp, *, follows: bool) -> ASGIApp:
    """`traced_app` for a share of the requests, `app` for the others: a function, which Python calls faster than an object.

    With `follows` it is also for each request whose caller says that it traces it.
    """

    def either(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_traced = random() < share and scope["type"] == "http"  # noqa: S311  # no secret
        return (traced_app if is_traced else app)(scope, receive, send)

    def either_or_followed(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_followed = scope["type"] == "http" and (span := callers_span(scope)) is not None and span.trace_flags.sampled
        return (traced_app if is_followed else either)(scope, receive, send)

    return either_or_followed if follows else either


@contextmanager
def traced(app: ASGIApp, name: str, version: str) -> Iterator[ASGIApp]:
    """The app with traces; what waits to be sent is sent at the end. Once per process. OTEL_EXPORTER_OTLP_ENDPOINT names the collector."""
    share = float(os.environ.get(OTEL_TRACES_SAMPLER_ARG) or SHARE)
    own = {"service.name": os.environ.get(OTEL_SERVICE_NAME) or name, "service.version": version}
    provider = Traced(InTrace(), Resource.create(own))
    processor = BatchSpanProcessor(OTLPSpanExporter())
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    for wrapped in (
        Wrapped(Paywall, "find", "find key"),
        *(
            Wrapped(named(owner), method, name, own_share)
            for feature in installed_features().values()
            for own_share, methods in ((0, feature.spans), (share, feature.traces))
            for (owner, method), name in methods.items()
        ),
        Wrapped(Runner, "run", "job", share=1),
    ):
        _wrap(wrapped, provider)
    _trace_statements(provider)
    try:
        follows = os.environ.get(OTEL_TRACES_SAMPLER, "").startswith("parentbased_")
        yield for_share(share, TracedApp(app, processor, provider.resource), app, follows=follows)
    finally:
        provider.shutdown()


def _wrap(wrapped: Wrapped, provider: Traced) -> None:
    inner = getattr(wrapped.owner, wrapped.method)
    tracer = provider.get_tracer("campus")

    @wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Awaitable[Any]:
        begins = wrapped.share > 0 and random() < wrapped.share  # noqa: S311
        return with_span(inner(*args, **kwargs)) if begins or IN_TRACE.get() else inner(*args, **kwargs)

    async def with_span(result: Awaitable[Any]) -> Any:
        with (
            in_trace(),
            tracer.start_as_current_span(wrapped.name, record_exception=False, set_status_on_exception=False) as span,
        ):
            try:
                return await result
            except Problem as refusal:
                span.set_attribute("error.type", refusal.code)
                raise
            except Exception as error:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    setattr(wrapped.owner, wrapped.method, outer)


def _trace_statements(provider: Traced) -> None:
    tracer = provider.get_tracer("campus")

    @event.listens_for(Engine, "before_cursor_execute")
    def begin(_: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if context is not None and IN_TRACE.get():
            context.campus_span = tracer.start_span(statement.split(None, 1)[0], kind=SpanKind.CLIENT)
            context.campus_span.set_attributes({"db.system.name": context.dialect.name, "db.query.text": statement[:QUERY_LENGTH]})

    @event.listens_for(Engine, "after_cursor_execute")
    def end(_: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if (span := getattr(context, "campus_span", None)) is not None:
            span.end()

    @event.listens_for(Engine, "handle_error")
    def fail(failed: Any) -> None:
        if (span := getattr(failed.execution_context, "campus_span", None)) is not None:
            span.set_status(Status(StatusCode.ERROR, type(failed.original_exception).__name__))
            span.end()
