"""What other programs send to the address of a beat, read as the arguments of heartbeat: of any method, path, query string and body.

With a valid secret a request counts first and complains second: nothing in it is refused, and what means nothing here is named in the
answer's `ignored`. A text is the output of the run. But no word from outside is a success by default: a status that nobody knows, or
that cannot be read, is kept as a `log`, which moves no deadline, so that a misspelt failure does not pass for a sign of life. Where a
request says several statuses, the worst counts: a failure, then one that is not known.
"""

import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import anyio.to_thread
from pydantic import MISSING, TypeAdapter, ValidationError
from starlette.types import Receive, Scope

from buildings.recorder.arguments import LEAST_PERIOD, LONGEST, NextIn, Output, Progress, RunId, Seq, minutes
from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.rules import LARGEST_BEAT, capsule_json
from buildings.recorder.beats.runs import OUTPUT_BYTES, end_of
from buildings.recorder.monitors.state_machine import Status, Word
from campus import Problem
from campus.secrets import digest_of
from twins import ClientDisconnectedError, RequestDependency, has_too_many_values, read_json

ROUTE = "/v1/recorder/beat/{monitor_id}/{secret}"
ALSO = (
    f"HEAD|PUT|PATCH|DELETE {ROUTE}",
    *(f"GET|HEAD|POST|PUT|PATCH|DELETE {ROUTE}{rest}" for rest in ("/", "/{signal}", "/{signal}/")),
)
LARGEST_BODY, MOST_UNANNOUNCED = 1024 * 1024, 768 * 1024
"""The bytes that are read of a body: campus refuses a request as soon as it has read more, so one of unknown size is left before."""
LEAST_UNUSUAL = 100  # The bytes of a body that is not looked at for being plain.
READ_HERE = 64 * 1024  # A larger body is read in a thread.
MOST_PAIRS, MOST_IGNORED = 100, 20
SERVICE_RESULTS = ["exit-code", "signal", "core-dump", "timeout", "watchdog", "oom-kill", "protocol", "resources", "start-limit-hit"]
WORDS: Mapping[str, Word] = {
    **{"ok": "ok", "start": "start", "idle": "idle", "fail": "fail", "log": "log"},
    **{"up": "ok", "down": "fail"},  # Uptime Kuma
    **{"run": "start", "complete": "ok"},  # Cronitor
    **{"in_progress": "start", "error": "fail"},  # Sentry
    **{"success": "ok", "failure": "fail", "failed": "fail", "cancelled": "fail"},  # GitHub Actions
    **dict.fromkeys(SERVICE_RESULTS, "fail"),  # systemd
}
CHECKS: Mapping[str, Any] = {"seq": Seq, "next_in": NextIn, "rid": RunId, "output": Output, "progress": Progress}
OWN_NAMES: Mapping[str, str] = {name: name for name in ("status", "capsule", *CHECKS)}
NAMES: Mapping[str, str] = {
    **OWN_NAMES,
    **{"state": "status", "status_code": "status", "s": "status", "exit_code": "status", "series": "rid"},
    **{"msg": "output", "message": "output", "m": "output"},
}
"""The names of arguments, and what other services call them in a query string or form: Uptime Kuma, Cronitor, Dead Man's Snitch."""
STRANGE = re.compile(r"[^\w.-]")
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,16}")
MENTIONED = re.compile(rb'"status"\s*:\s*"?([^",}\s]{0,20})')
PART_NAME = re.compile(rb'\bname="(\w{1,40})"')
UNKNOWN_STATUS = "status: not one that is known, so this request is kept as a log and moves no deadline"


class Said(NamedTuple):
    """What a beat says, as the arguments of heartbeat."""

    status: Status = "ok"
    capsule: Any = MISSING
    seq: int | None = None
    next_in: float | None = None
    rid: str | None = None
    output: str | None = None
    progress: str | float | None = None

    def beat(self, monitor_id: str, secret_digest: bytes, at: datetime) -> Beat:
        return Beat(
            monitor_id,
            secret_digest,
            at,
            self.status,
            next_in=None if self.next_in is None else minutes(self.next_in),
            capsule=None if self.capsule is MISSING else capsule_json(self.capsule),
            seq=self.seq,
            rid=self.rid,
            output=None if self.output is None else end_of(self.output.encode(errors="replace")),
            progress=None if self.progress is None else digest_of(str(self.progress)),
        )


class Signal(NamedTuple):
    """The arguments of heartbeat in a request, without those of its path; and what else it held, in words."""

    arguments: dict[str, Any]
    ignored: tuple[str, ...] = ()


class _Ignored(RequestDependency[tuple[str, ...]]):
    scope_key = "recorder.ignored"

    def without_request(self) -> tuple[str, ...]:
        return ()


def CurrentIgnored() -> Any:
    """The default of a tool's parameter that holds what `read_beat` did not understand."""
    return _Ignored()


async def read_beat(scope: Scope, receive: Receive) -> dict[str, Any]:
    """The arguments of heartbeat in a request to the address of a beat; its scope is told what was ignored."""
    headers, said = dict(scope["headers"]), scope["path_params"].get("signal")
    if said is None and not scope["query_string"] and b"content-length" not in headers and b"transfer-encoding" not in headers:
        return {}
    signal = await read_signal(scope, receive, said, headers)
    if signal.ignored:
        scope[_Ignored.scope_key] = signal.ignored
    return signal.arguments


async def read_signal(scope: Scope, receive: Receive, said: str | None, headers: Mapping[bytes, bytes]) -> Signal:
    """What a request with these headers says; `said` is what its path says."""
    query: bytes = scope["query_string"]
    length = headers.get(b"content-length")
    if (length is None or length == b"0") and b"transfer-encoding" not in headers:
        return signal_of(said, query) if query or said is not None else Signal({})
    if length is not None and int(length) > LARGEST_BODY:
        signal, rest = signal_of(said, query), f"the body: it is over {LARGEST_BODY:,} bytes, and was not read"
        return signal._replace(ignored=(*signal.ignored, rest))
    body, is_whole = await _received(receive, MOST_UNANNOUNCED if length is None else LARGEST_BODY)
    kind, coding = headers.get(b"content-type", b"").lower(), headers.get(b"content-encoding", b"")
    if kind == b"application/json" and said is None and not query and (plain := _plain(body)) is not None:
        return Signal(plain)
    read = partial(signal_of, said, query, body, kind, coding)
    signal = read() if len(body) <= READ_HERE and not coding else await anyio.to_thread.run_sync(read)
    return signal if is_whole else signal._replace(ignored=(*signal.ignored, f"the body after {len(body):,} bytes"))


async def _received(receive: Receive, limit: int) -> tuple[bytes, bool]:
    chunks, size, more = [], 0, True
    while more and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
    return b"".join(chunks), not more


def _plain(body: bytes) -> dict[str, Any] | None:
    """The arguments of a beat that says ok and perhaps when the next one comes, as most do; None for any other body. For speed."""
    try:
        said = read_json(body) if len(body) < LEAST_UNUSUAL else None
    except Problem:
        return None
    if type(said) is not dict or not said.keys() <= {"status", "next_in"} or said.get("status", "ok") != "ok":
        return None
    next_in = said.get("next_in", LEAST_PERIOD)
    return said if type(next_in) in (int, float) and LEAST_PERIOD <= next_in <= LONGEST else None


def signal_of(said: str | None, query: bytes, body: bytes = b"", kind: bytes = b"", coding: bytes = b"") -> Signal:
    """What a request says in its path, its query string and its body of a content type and encoding. Pure."""
    reading = _Reading([] if said is None else [said])
    if query:
        reading.add(_pairs(query), NAMES)
    if body := reading.decompressed(body, coding):
        reading.read_body(body, kind)
    return reading.signal()


class _Reading:
    def __init__(self, statuses: list[Any]) -> None:
        self.statuses = statuses
        self.members: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.ignored: list[str] = []

    def add(self, pairs: Iterable[tuple[str, Any]], names: Mapping[str, str]) -> None:
        for sent, value in pairs:
            name = names.get(sent)
            if name == "status":
                self.statuses.append(value)
            elif name == "output" and isinstance(value, str):
                self.outputs.append(value)
            elif name is not None:
                self.members.setdefault(name, value)
            elif value != "":
                self.ignored.append(f"{STRANGE.sub('?', sent[:40])}: not known")

    def decompressed(self, body: bytes, coding: bytes) -> bytes:
        if coding in (b"", b"identity"):
            return body
        try:
            return zlib.decompressobj(wbits=47).decompress(body, LARGEST_BODY)  # gzip or zlib
        except zlib.error:
            self.ignored.append("the body: its Content-Encoding cannot be read; send it as it is, or by gzip")
            self.statuses.append(None)
            return b""

    def read_body(self, body: bytes, kind: bytes) -> None:
        """Our arguments as JSON, as a form or as its parts; else the output, and the statuses that it mentions if it was meant as JSON."""
        is_json = b"json" in kind or body[:100].lstrip().startswith(b"{")
        pairs: Iterable[tuple[str, Any]] = ()
        if is_json and len(body) <= LARGEST_BEAT and not has_too_many_values(body):
            try:
                value = read_json(body, lenient=OWN_NAMES)
            except Problem:
                self.ignored.append("the body: it is no JSON that can be read, so it counts as output")
            else:
                pairs = value.items() if isinstance(value, dict) and not OWN_NAMES.keys().isdisjoint(value) else ()
                return self.add(pairs, OWN_NAMES) if pairs or value in ({}, None) else self.outputs.append(_text(body))
        if is_json:
            self.statuses += [status.decode(errors="replace") for status in set(MENTIONED.findall(body))]
        else:
            pairs = _parts(body) if kind.startswith(b"multipart/") else _form(body)
        if any(name in NAMES for name, _ in pairs):
            self.add(pairs, NAMES)
        else:
            self.outputs.append(_text(body))
        return None

    def signal(self) -> Signal:
        arguments = {name: value for name, value in self.members.items() if name == "capsule"}
        for name, value in self.members.items():
            if name in arguments:
                continue
            try:
                arguments[name] = ADAPTERS[name].validate_python(_number(value) if name == "seq" else _clean(value))
            except ValidationError as error:
                self.ignored.append(f"{name}: {error.errors()[0]['msg']}")
        if "seq" in self.members and "seq" not in arguments and arguments.pop("capsule", None) is not None:
            self.ignored.append("capsule: not stored, since its seq is not known")
        if self.statuses:
            worst = min(map(status_of, self.statuses), key=_badness)
            arguments["status"] = "log" if worst is None else worst
            if worst is None:
                self.ignored.append(UNKNOWN_STATUS)
                unknown = [STRANGE.sub("?", str(one)[:40]) for one in self.statuses if one is not None and status_of(one) is None]
                said = ", ".join(unknown[:MOST_IGNORED]) or "none can be read"
                self.outputs.insert(0, f"A request whose status is not known: {said}")  # so that it is kept even if it says nothing else
        if output := "\n".join(filter(None, self.outputs)):
            arguments["output"] = _clean(output).encode()[-OUTPUT_BYTES:].decode(errors="ignore")
        return Signal(arguments, tuple(self.ignored[-MOST_IGNORED:]))


ADAPTERS: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in CHECKS.items()}


def status_of(said: Any) -> Status | None:
    """The status that a word or number means; None for one that nobody knows. Each exit code but 0 is a failure, whatever its size."""
    if isinstance(said, str):
        word = said.strip().lower()
        said = int(word) if WHOLE_NUMBER.fullmatch(word) else WORDS.get(word)
    if type(said) is int:
        return said if 0 <= said <= 255 else "fail"
    return said if isinstance(said, str) else None  # type: ignore[return-value]  # WORDS has no others


def _badness(status: Status | None) -> int:
    return 1 if status is None else 0 if status == "fail" or (isinstance(status, int) and status > 0) else 2


def _pairs(query: bytes) -> list[tuple[str, str]]:
    parts = query.split(b"&", MOST_PAIRS)[:MOST_PAIRS]
    return [pair for part in parts for pair in parse_qsl(part.decode("latin-1"), keep_blank_values=True)]


def _form(body: bytes) -> list[tuple[str, str]]:
    """The pairs of a form, whatever its content type; none if it is another text."""
    line = body.strip()
    return _pairs(line) if b"=" in line[:100] and len(line) <= READ_HERE and not re.search(rb"\s", line) else []


def _parts(body: bytes) -> list[tuple[str, str]]:
    """The pairs of a form that is sent in parts, between repetitions of its first line."""
    parts = [part.partition(b"\r\n\r\n") for part in body.split(body.partition(b"\r\n")[0] or b"--", MOST_PAIRS)]
    named = [(PART_NAME.search(head[:READ_HERE]), value) for head, _, value in parts]
    return [(name[1].decode(), _text(value.removesuffix(b"\r\n"))) for name, value in named if name]


def _text(body: bytes) -> str:
    return body.decode("utf-16" if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig", errors="replace")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value) else value


def _clean(value: Any) -> Any:
    """A text without NUL and halves of characters, which no database stores; any other value as it is."""
    return value.encode(errors="replace").decode().replace("\0", "\ufffd") if isinstance(value, str) else value
