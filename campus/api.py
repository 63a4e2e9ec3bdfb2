"""What `from campus import …` gives: the public API for plugin authors."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from campus.building import CONTRACT, Building, Check, Holding, Holdings, Job, Page, Service, Settings, ToolCall
from campus.caller import Caller, Key
from campus.directory import BuildingEntry, Directory, ProductEntry, ToolEntry
from campus.errors import JobFailed, KeyRefused, MailRefused, MailUnavailable, StorageUnavailable, TargetRefused
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY, check_idempotency_key
from campus.keys.makers import MadeBy, Maker
from campus.layout.apps import add_app
from campus.layout.events import EventStreams
from campus.layout.renderer import pretty_json
from campus.observability import origin_of, utc_text
from campus.outbound.http_clients import GuardedClient
from campus.outbound.mail import Mail
from campus.pricing import access, free
from campus.secrets import Entropy, digest_of, random_base62, random_id, seal, unseal
from campus.shares import TokenBuckets
from campus.site import CurrentCaller, CurrentSite, Site
from campus.storage import (
    EPOCH,
    MICROSECOND,
    Json,
    Moment,
    Span,
    Storage,
    UtcDateTime,
    among,
    in_snapshot,
    in_transaction,
    is_postgres,
    registry,
)
from twins import Problem, route

__all__ = [
    "CONTRACT",
    "EPOCH",
    "HOW_TO_MAKE_A_KEY",
    "MICROSECOND",
    "Building",
    "BuildingEntry",
    "Caller",
    "Check",
    "CurrentCaller",
    "CurrentSite",
    "Directory",
    "Entropy",
    "EventStreams",
    "GuardedClient",
    "Holding",
    "Holdings",
    "Job",
    "JobFailed",
    "Json",
    "Key",
    "KeyRefused",
    "MadeBy",
    "Mail",
    "MailRefused",
    "MailUnavailable",
    "Maker",
    "Moment",
    "Page",
    "Problem",
    "ProductEntry",
    "Request",
    "Response",
    "Service",
    "Settings",
    "Site",
    "Span",
    "Storage",
    "StorageUnavailable",
    "StreamingResponse",
    "TargetRefused",
    "TokenBuckets",
    "ToolCall",
    "ToolEntry",
    "UtcDateTime",
    "access",
    "add_app",
    "among",
    "check_idempotency_key",
    "digest_of",
    "free",
    "in_snapshot",
    "in_transaction",
    "is_postgres",
    "origin_of",
    "pretty_json",
    "random_base62",
    "random_id",
    "registry",
    "route",
    "seal",
    "unseal",
    "utc_text",
]
