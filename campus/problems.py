"""The problems that callers get: every code explained, and those that several parts of campus answer with."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from campus.errors import StorageFault, StorageUnavailable
from twins import Problem

EXPLAINED_AT = "/errors/"  # Where the codes of the problems that callers get are explained.

EXPLANATIONS: Mapping[str, str] = {
    "access_required": "The tool is not free. `unlock` lists each key that unlocks it, its price and where to buy it.",
    "key_unknown": "The key that was sent is unknown. Check that it was copied completely, or send another.",
    "key_expired": "The key that was sent has expired. `unlock` lists the keys that unlock the tool.",
    "key_revoked": "The key that was sent was revoked. `unlock` lists the keys that unlock the tool.",
    "insufficient_scope": "The scope of the key that was sent does not cover the tool. `unlock` names the key to add.",
    "weak_idempotency_key": "Others may send the same Idempotency-Key; use random characters. Nothing was done or charged.",
    "invalid_request": "One or more arguments are missing, unknown or not valid. `detail` names each; `errors` has them as data.",
    "invalid_json": "The arguments are not acceptable JSON: malformed, nested too deeply, or with values such as NaN.",
    "idempotency_key_reused": "The Idempotency-Key was sent before with another request; make a new one for a new request.",
    "forbidden": "The caller may not use the tool.",
    "form_expired": "The form does not come from a page that this browser opened here lately. Open the page again and send it there.",
    "form_sent": "The form was sent before and does its work once; its answer is not there yet, or no longer. Look at what was done.",
    "answer_over": "The address showed the answer to a form, for an hour, to the browser that sent it and to no other.",
    "sign_in_required": "The page is for the operator, who has not signed in, or no longer is.",
    "too_many_sign_ins": "Too many attempts to sign in or to connect a client, from one address or with one key. Wait for Retry-After.",
    "login_required": "This address takes calls of connected clients only. Your client opens a page that asks for a key.",
    "token_refused": "The access token is unknown or has ended, or is for another MCP server. Connect the client again.",
    "invalid_authorization": "The request of a client to be let in is not valid; `detail` says why. Nothing was shared.",
    "connect_request_over": "A request to let a client in is answered within ten minutes. Start again in the client.",
    "not_found": "Nothing is served at this address.",
    "too_many_calls": "More calls in a minute than are answered. Nothing was done or charged; wait for Retry-After, then call more slowly.",
    "too_many_sessions": "The key, or the address without one, keeps as many MCP sessions as it may. End one, or use the current protocol.",
    "too_many_streams": "The key, or all keys together, have the maximum number of open event streams. Close a page that shows them.",
    "target_refused": "The webhook's address breaks a rule; `detail` names it.",
    "too_many_registrations": "The key or address registered too much in a minute. Try again after the time in Retry-After.",
    "method_not_allowed": "The address does not accept this method. The Allow header lists those that it accepts.",
    "unexpected_body": "DELETE takes its arguments in the query string, without a body.",
    "unsupported_media_type": "Send the body as application/json, without Content-Encoding.",
    "too_large": "The body is larger than the tool accepts.",
    "body_too_large": "The body is larger than this service accepts.",
    "body_timeout": "The body did not arrive in time.",
    "head_too_large": "The request line and headers are larger than this service accepts.",
    "invalid_http": "The request is not valid HTTP/1.1, or of another version of HTTP.",
    "invalid_host": "The request has no Host header, or more than one.",
    "origin_refused": "The service has no https address, and no web page but its own and those of its machine may call it.",
    "misdirected_request": "The host of the request is not served here.",
    "input_required": "The tool asks its caller a question, which is in input_requests. Answer it over MCP: HTTP cannot carry the answer.",
    "tool_error": "The tool refused the call; `detail` says why.",
    "timeout": "The tool took too long.",
    "upstream_unavailable": "The server behind the tool cannot be reached or started at the moment. Try again after Retry-After.",
    "upstream_failed": "The server or API behind the tool did not return a valid answer. Try again later.",
    "upstream_refused": "The API behind the tool refused the call; the status is its own, and `detail` has its words.",
    "invalid_result": "The tool returned what its output schema does not allow. Nothing is charged; the cause is in the log.",
    "internal_error": "The call failed on the server. `request_id` identifies the request in its log.",
    "storage_unavailable": "The data cannot be reached at the moment; try again after the time in Retry-After.",
    "overloaded": "Too many calls are being answered; try again after the time in Retry-After.",
}
"""The codes of the core and of twins. A feature, or a building, explains its own by `Building(…, problems={code: text})`."""


class Fixed(NamedTuple):
    """A problem whose words are always the same; `seconds` is its Retry-After."""

    status: int
    detail: str
    seconds: int | None = None


FIXED: Mapping[str, Fixed] = {
    "form_expired": Fixed(403, "This form is no longer valid, or another site sent it; open the page again and send it there."),
    "form_sent": Fixed(
        409,
        "This form was sent before and does its work once; nothing was done again. Its answer is not there yet, or is kept no longer:"
        " reload this page in a moment, or look at what was done before you fill in another form.",
    ),
    "answer_over": Fixed(
        404,
        "This is the address of an answer to a form. It shows that for an hour to the browser that sent the form, until its visitor signs"
        " out, and to no other browser. Open the page of the form to see what was done.",
    ),
    "storage_unavailable": Fixed(503, "The data cannot be reached at the moment; try again.", 5),
    "upstream_unavailable": Fixed(
        503, "the server behind this tool cannot be reached or started at the moment; try again after the time in Retry-After", 30
    ),
}


def fixed_problem(code: str) -> Problem:
    status, detail, seconds = FIXED[code]
    return Problem(status, code, detail, headers={"Retry-After": str(seconds)} if seconds else None)


def storage_problem(error: StorageUnavailable, log: logging.Logger, **about: object) -> Problem:
    """503 for a database that cannot be used at the moment, once the reason is in the log."""
    is_unknown = isinstance(error, StorageFault) and not error.is_known
    log.log(error.level, "storage unavailable: %s", error, exc_info=error if is_unknown else None, extra=about)
    return fixed_problem("storage_unavailable")


def explanations(own: Mapping[str, str], buildings: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """What `/errors/<code>` returns, by code: campus's own, then those of the buildings, which `buildings` has by their names.

    Buildings do not know each other: where two explain the same code, each text names its building.
    """
    found: dict[str, dict[str, Any]] = {code: {"code": code, "explanation": text} for code, text in own.items()}
    for code in dict.fromkeys(code for problems in buildings.values() for code in sorted(problems)):
        texts = {name: problems[code] for name, problems in buildings.items() if code in problems}
        several = len(set(texts.values())) > 1
        named = " ".join(f"{name}: {text}" for name, text in texts.items()) if several else next(iter(texts.values()))
        found.setdefault(code, {"code": code, "explanation": named, "buildings": list(texts)})
    return found
