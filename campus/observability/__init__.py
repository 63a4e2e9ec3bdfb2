"""What operators see of a running campus: its log, its metrics, which Prometheus reads, and which tool holds the event loop."""

from campus.observability.logs import LIBRARY_LEVELS, LogFormat, LogLevel, OneLine, OneObject, log_to_stderr, origin_of, redacted, utc_text
from campus.observability.metrics import EventLoopLag, Metrics, Reading, RequestMetrics

__all__ = [
    "LIBRARY_LEVELS",
    "EventLoopLag",
    "LogFormat",
    "LogLevel",
    "Metrics",
    "OneLine",
    "OneObject",
    "Reading",
    "RequestMetrics",
    "log_to_stderr",
    "origin_of",
    "redacted",
    "utc_text",
]
