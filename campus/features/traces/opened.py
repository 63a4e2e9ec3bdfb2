"""The layer around the edge, if the environment names a collector; else nothing of it is loaded."""

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version

from starlette.types import ASGIApp

from campus.building import Building
from campus.errors import CampusError
from campus.http_parts import HttpPart

COLLECTORS = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}


class Traces(HttpPart):
    def outermost(self, app: ASGIApp) -> AbstractContextManager[ASGIApp]:
        if not os.environ.keys() & COLLECTORS:
            return nullcontext(app)
        try:
            from campus.features.traces.tracing import traced  # the SDK, which few want
        except ImportError:
            raise CampusError("the environment names a collector of OpenTelemetry: `pip install 'mcp-campus[otel]'`, or unset it") from None
        return traced(app, self.campus.plan.config.server.name, version("mcp-campus"))


building = Building(http=Traces)
