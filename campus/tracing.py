"""Traces of calls, jobs and alerts to a collector of OpenTelemetry, where the environment names one.

A share of requests is traced, chosen at the edge. Nothing below knows of it: some functions are wrapped once, SQLAlchemy says
which statements run, and FastMCP makes spans of its own. In a call that is not traced, each of them looks at one context variable.
"""

import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from random import random
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from campus.alerts.dispatcher import Dispatcher
from campus.context import context_of
from campus.jobs.run import Runner
from campus.payments.processor import PaymentProcessor
from campus.payments.settlement import Settlement
from campus.paywall.admission import Paywall
from twins import Problem

SHARE = 0.01
"""Of requests and alerts that are traced, unless OTEL_TRACES_SAMPLER_ARG says more. Jobs always are."""
QUERY_LENGTH = 2000
BEGINS = {"campus.begins": True}
"""The attributes of a span that begins a trace."""
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
        """True in what is traced."""
        return IN_TRACE.get()


@contextmanager
def in_trace() -> Iterator[None]:
    """While a trace is made in this task."""
    token = IN_TRACE.set(True)
    try:
        yield
    finally:
        IN_TRACE.reset(token)


class OnlyBegun(Sampler):
    """Keeps the spans of traces that were begun here, and no other: a caller's own `traceparent` does not decide what is traced."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, kind: Any = None, attributes: Any = None, *more: Any, **named: Any
    ) -> SamplingResult:
        """A span is kept if it begins a trace, or if that around it in this process is kept, whatever the caller names as its parent."""
        keep = attributes == BEGINS or trace.get_current_span().is_recording()
        return SamplingResult(Decision.RECORD_AND_SAMPLE if keep else Decision.DROP, attributes)

    def get_description(self) -> str:
        """Its name."""
        return "OnlyBegun"


class TracedApp:
    """An app, a share of whose requests is traced."""

    def __init__(self, app: ASGIApp, provider: Traced, share: float) -> None:
        self._app = app
        self._share = share
        self._tracer = provider.get_tracer("campus")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request. Not a coroutine: that saves one per request that is not traced."""
        if scope["type"] != "http" or random() >= self._share:  # noqa: S311  # no secret
            return self._app(scope, receive, send)
        return self._traced(scope, receive, send)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope["method"]
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        around = extract({"traceparent": headers.get("traceparent", "")})
        with (
            in_trace(),
            self._tracer.start_as_current_span(method, around, SpanKind.SERVER, BEGINS, record_exception=False) as span,
        ):
            span.set_attribute("http.request.method", method)  # no path and no query: they may hold secrets
            await self._app(scope, receive, sent)
            context = context_of(scope)
            if context.route:
                span.update_name(f"{method} {context.route}")
                span.set_attribute("http.route", context.route)
            code = context.status or status
            span.set_attributes({"http.response.status_code": code, "campus.request_id": scope["request_id"]})
            if code >= 500:
                span.set_status(StatusCode.ERROR)


@contextmanager
def traced(app: ASGIApp, name: str, version: str) -> Iterator[ASGIApp]:
    """The app with traces; what waits to be sent is sent at the end. Once per process. OTEL_EXPORTER_OTLP_ENDPOINT names the collector."""
    share = float(os.environ.get(OTEL_TRACES_SAMPLER_ARG) or SHARE)
    own = {"service.name": os.environ.get(OTEL_SERVICE_NAME) or name, "service.version": version}
    provider = Traced(OnlyBegun(), Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    for wrapped in (
        Wrapped(Paywall, "find", "find key"),
        Wrapped(PaymentProcessor, "process", "sell"),
        Wrapped(Settlement, "settle", "settle"),
        Wrapped(Runner, "run", "job", share=1),
        Wrapped(Dispatcher, "_sent", "send alert", share=share),
    ):
        _wrap(wrapped, provider)
    _trace_statements(provider)
    try:
        yield TracedApp(app, provider, share)
    finally:
        provider.shutdown()


def _wrap(wrapped: Wrapped, provider: Traced) -> None:
    inner = getattr(wrapped.owner, wrapped.method)
    tracer = provider.get_tracer("campus")

    @wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Awaitable[Any]:
        begins = wrapped.share > 0 and random() < wrapped.share  # noqa: S311
        return with_span(inner(*args, **kwargs), begins) if begins or IN_TRACE.get() else inner(*args, **kwargs)

    async def with_span(result: Awaitable[Any], begins: bool) -> Any:
        with (
            in_trace(),
            tracer.start_as_current_span(
                wrapped.name, attributes=BEGINS if begins else None, record_exception=False, set_status_on_exception=False
            ) as span,
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
