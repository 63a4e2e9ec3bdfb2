"""Reads a request's arguments from path, query and body, as the operation declares them; what does not fit is an error."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from twins.http.json_reader import MOST_VALUES, has_too_many_values, read_json, unstorable_reason
from twins.problems import FieldError, Problem, invalid_request, pointer_to, refuse_too_many, unknown_field
from twins.tool.annotation import BODY_LIMIT
from twins.tool.hang_up import ClientDisconnectedError
from twins.tool.operation import QUERY_METHODS, Operation, Parameter, Place

MOST_PAIRS = 2_000
"""How many parameters a query string may have: more than the head of a request holds of ids, such as those of CVEs."""
FIRST_MEMBER = re.compile(rb'\s*\{\s*"(\w{1,100})"\s*:')
CAMPAIGN_PREFIX = b"utm_"  # Campaign parameters of analytics programs: https://support.google.com/analytics/answer/10917952.
TRACKING_NAMES = frozenset(
    (
        *(b"gclid", b"gclsrc", b"gbraid", b"wbraid", b"dclid"),  # Google Ads and Campaign Manager
        b"fbclid",  # Facebook
        b"igshid",  # Instagram
        b"msclkid",  # Microsoft Advertising
        b"twclid",  # X
        b"ttclid",  # TikTok
        b"yclid",  # Yandex Direct
        *(b"mc_cid", b"mc_eid"),  # Mailchimp
        *(b"_hsenc", b"_hsmi"),  # HubSpot
        b"mkt_tok",  # Marketo
    )
)
"""Names that only these services use. Browsers strip about the same (Firefox's query parameter stripping, Safari's link tracking
protection). `ref` is not among them: sites use it with other meanings, so it may be a mistake that the caller should see."""


class UnreadableArgumentsError(Exception):
    def __init__(self, errors: Sequence[FieldError], arguments: dict[str, Any]) -> None:
        super().__init__(f"{len(errors)} arguments cannot be read")
        self.errors = errors
        self.arguments = arguments


class BodyLimits(NamedTuple):
    """The bytes that a body may have: of arguments, and as one argument that is the whole body, None if that has no limit of its own."""

    of_arguments: int
    whole: int | None = None


async def read_arguments(
    operation: Operation, scope: Scope, receive: Receive, *, limits: BodyLimits, readers: anyio.CapacityLimiter, is_link: bool = False
) -> dict[str, Any]:
    """The arguments as JSON values, by the tool's own names; not yet validated.

    An argument that is the whole body is bytes if the body is larger than one of arguments may be, or no text. A body over
    BODY_LIMIT is read in a thread, of which `readers` allows some at the same time. With `is_link`, query parameters that other
    services add to shared links are ignored.

    Raises UnreadableArgumentsError, whose errors the caller adds to those of validation; and Problem: 400 `invalid_json` and
    `unexpected_body`, 413 `too_large`, 415 `unsupported_media_type`, 422 `invalid_request`.
    """
    if (reader := operation.route.reader) is not None:
        arguments = await reader(scope, receive)
        if errors := _decode_path(scope["path_params"], operation, arguments):
            raise UnreadableArgumentsError(errors, arguments)
        return arguments
    in_query = scope["method"] in QUERY_METHODS
    query: bytes = scope["query_string"]
    if scope["method"] == "DELETE":
        _refuse_body(Headers(scope=scope))
    if in_query and not query and not operation.route.placeholders:
        return {}
    errors = []
    arguments = {}
    if not in_query:
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # the first of each name counts
        data = await _receive_body(headers, receive, limit=max(limits.of_arguments, limits.whole or 0))
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        read = partial(_read_body, data, content_type, operation, limits)
        body = read() if len(data) <= BODY_LIMIT else await anyio.to_thread.run_sync(read, limiter=readers)
        errors += _unknown_in_body(body, operation)
        arguments |= body
    if query:
        is_beside_text = arguments.keys() <= {operation.route.body}  # of a body with arguments, the query string is none
        known = operation.by_wire_name if in_query else operation.by_wire_name_beside_text if is_beside_text else {}
        texts = _query_texts(query, known, is_link=is_link)
        refuse_too_many(len(texts), len(known))
        errors += _unknown(texts, known, place="query")
        errors += _decode_query(texts, known, arguments, lenient=operation.route.lenient)
    if operation.route.placeholders:
        errors += _decode_path(scope["path_params"], operation, arguments)
    if errors:
        raise UnreadableArgumentsError(errors, arguments)
    return arguments


def without_tracking(query: bytes, *, known: Collection[str]) -> bytes:
    own = {name.encode() for name in known}
    parts = [(part, unquote_to_bytes(part.partition(b"=")[0])) for part in query.split(b"&")]
    return b"&".join(part for part, name in parts if name in own or not (name.startswith(CAMPAIGN_PREFIX) or name in TRACKING_NAMES))


def _query_texts(query: bytes, known: Mapping[str, Parameter], *, is_link: bool) -> dict[str, list[str]]:
    """The texts of each name. Problem 422 for too many, before any is read.

    A link's tracking parameters are removed only if a name is unknown or something cannot be read.
    """
    if query.count(b"&") >= MOST_PAIRS:
        raise Problem(422, "invalid_request", f"the query string has more than {MOST_PAIRS:,} parameters; send fewer")
    try:
        texts = _by_name(_query_pairs(query))
        if not is_link or known.keys() >= texts.keys():
            return texts
    except Problem:
        if not is_link:
            raise
    return _by_name(_query_pairs(without_tracking(query, known=known)))


def _query_pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise invalid_request([FieldError("/query", "not_utf8", "is not percent-encoded UTF-8")]) from None


def _by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, text in pairs:
        grouped.setdefault(name, []).append(text)
    return grouped


def _unknown_in_body(body: Mapping[str, Any], operation: Operation) -> list[FieldError]:
    if operation.accepts_unknown:
        return []
    refuse_too_many(len(body), len(operation.by_name))
    return _unknown(body, operation.by_name_in_body, place="body")


def _unknown(sent: Iterable[str], known: Mapping[str, Parameter], *, place: Place) -> list[FieldError]:
    return [unknown_field(place, name, known) for name in sent if name not in known]


def _decode_path(texts: Mapping[str, str], operation: Operation, arguments: dict[str, Any]) -> list[FieldError]:
    errors = []
    for name, text in texts.items():
        if (parameter := operation.by_name.get(name)) is None:
            continue  # for the route's own reader
        decoder = parameter.decoder
        value = arguments[name] = text if decoder.takes_any_text else decoder.decode((text,))
        if reason := unstorable_reason(value):
            errors.append(FieldError(pointer_to("path", name), "not_storable", reason))
    return errors


def _decode_query(
    texts: Mapping[str, list[str]], known: Mapping[str, Parameter], arguments: dict[str, Any], *, lenient: Sequence[str]
) -> list[FieldError]:
    errors = []
    for wire, sent in texts.items():
        if parameter := known.get(wire):
            try:
                value = arguments[parameter.name] = parameter.decoder.decode(sent)
            except ValueError as error:
                errors.append(FieldError(pointer_to("query", wire), "repeated", str(error)))
                continue
            if parameter.name not in lenient and (reason := unstorable_reason(value)):
                errors.append(FieldError(pointer_to("query", wire), "not_storable", reason))
    return errors


def _refuse_body(headers: Headers) -> None:
    """Problem 400 for a body: it would be ignored silently, even if it held a secret or a condition."""
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise Problem(400, "unexpected_body", "DELETE takes its arguments in the query string; send them there, without a body")


async def _receive_body(headers: Mapping[bytes, bytes], receive: Receive, *, limit: int) -> bytes:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Problem(415, "unsupported_media_type", "a compressed body is not accepted; send it without Content-Encoding")
    announced = headers.get(b"content-length", b"").decode("latin-1")
    body = None if announced.isdecimal() and int(announced[:20]) > limit else await read_body(receive, [], limit=limit)
    if body is None:
        raise _too_large(limit)
    return body


async def read_body(receive: Receive, received: list[Message], *, limit: int) -> bytes | None:
    """The request's body; None if it is longer than `limit`. What was received is added to `received`. Raises ClientDisconnectedError."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        received.append(message)
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        if not message.get("more_body", False):
            return part if len(part) == size else b"".join([each.get("body", b"") for each in received])


def _read_body(data: bytes, content_type: str, operation: Operation, limits: BodyLimits) -> dict[str, Any]:
    """The arguments in a body. If a text argument takes the body, it is one without arguments: other than JSON, or other JSON."""
    text = operation.route.body
    if not data:
        return {}
    if text is not None and len(data) > limits.of_arguments:
        if _begins_with_an_argument(data, operation):
            raise _too_large(limits.of_arguments)
        return {text: data}
    if text is not None and content_type.partition(";")[0].strip().lower() != "application/json":
        return {text: _text_or_bytes(data, operation)}
    if content_type != "application/json" and not _is_json(content_type):
        raise Problem(415, "unsupported_media_type", "the body must be JSON in UTF-8, sent with Content-Type: application/json")
    is_large = has_too_many_values(data)
    if text is not None and (is_large or not any(f'"{name}"'.encode() in data for name in operation.by_name_in_body)):
        return {text: _text_or_bytes(data, operation)}
    if is_large:
        raise Problem(413, "too_large", f"the body holds more than {MOST_VALUES:,} JSON values")
    body = read_json(data, lenient=operation.route.lenient)
    if text is not None and not (isinstance(body, dict) and body.keys() & operation.by_name_in_body.keys()):
        return {text: _text_or_bytes(data, operation)}
    if not isinstance(body, dict):
        raise invalid_request([FieldError("/body", "not_an_object", "should be a JSON object, with the arguments as its members")])
    return body


def _begins_with_an_argument(data: bytes, operation: Operation) -> bool:
    first = FIRST_MEMBER.match(data)
    return first is not None and first[1].decode() in operation.by_name_in_body


def _text_or_bytes(data: bytes, operation: Operation) -> str | bytes:
    """The text of a body; the bytes of one that is none, for a tool that says how large those may be."""
    try:
        return _text(data)
    except Problem:
        if operation.route.whole_limit is None:
            raise
        return data


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError:
        raise invalid_request([FieldError("/body", "not_utf8", "is not text in UTF-8, nor in UTF-16 with its mark")]) from None
    if reason := unstorable_reason(text):
        raise invalid_request([FieldError("/body", "not_storable", reason)])
    return text


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"the body is larger than {limit} bytes")


def _is_json(content_type: str) -> bool:
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset=")]
    is_json = media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))
    return is_json and all(charset in ("utf-8", "utf8") for charset in charsets)
