"""Schemathesis hooks: values that exist, such as days that have a list, headers worth trying, and 402 where Schemathesis expects 401.

Loaded by Schemathesis itself (SCHEMATHESIS_HOOKS). Reads CAMPUS_DAY_BEFORE and CAMPUS_DAY, the days that have a list, and
CAMPUS_KEYLESS, 1 when no key is sent, and CAMPUS_MADE, what was made before the run, in JSON; writes a line for each answer to the
file CAMPUS_TALLY.
"""

import json
import os
from functools import reduce
from itertools import count
from operator import or_
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import AllowHeaderMismatch, RejectedPositiveData, UnsupportedMethodResponse

DAY = os.environ["CAMPUS_DAY"]
KEYLESS = os.environ["CAMPUS_KEYLESS"] == "1"
TALLY = Path(os.environ["CAMPUS_TALLY"])
REFUSED_PROBES = ("Expected 401 or 403, got `402 ", "Got 402 when missing required 'Authorization' header")
PURCHASE = "/v1/checkout/keys"
"""A purchase, which no key opens."""
ADDRESSES = ("target_refused", "no_mail_here")
"""Whether an address can be reached, and whether this service sends e-mail."""
BETWEEN_ARGUMENTS = ("invalid_window", "no_cve_ids", "invalid_cve_ids")
OF_CAPSULES = ("capsule_not_storable", "capsule_too_large")
"""A capsule is any JSON whose integers fit into 64 bits, whose texts have no NUL, and that has at most 32,768 bytes."""
NO_SCHEMA_SAYS = {
    "must be one line of printable characters": "no pattern knows all characters that are printable",
    "a text holds the character NUL": "client generators trip over a pattern for every text",
    "the JSON cannot be accepted: a text holds the character NUL": "the same, in a body whose arguments are not told apart",
    "is not UTF-8 text": "a body that is not JSON is text, and client generators send it only where the document calls it binary",
    "alert_webhook or alert_email is required": "an empty address is none, and an e-mail address without a key is none here",
    "nothing to change": "an empty text leaves a target as it is",
    "name vendors, products or cve_ids, or send least_score alone": "an empty list names nothing",
}
"""The rules that a well-formed call may break, by the beginning of what is said of the argument or the call, and why no schema has them."""
OF_BOTH_METHODS = "/v1/cve/verdicts"
"""Documented for programs that pay by its GET alone, and served by POST too."""
KNOWN = {"date": DAY, "cve_id": "CVE-2021-44228", "cve_ids": ["CVE-2021-44228", "CVE-1999-0001"]}
"""Arguments whose values exist from the start."""
NAMING = {"feed_id": "feed_id", "watch_id": "watch_id", "monitor_id": "monitor_id", "secret": "secret", "s": "secret"}
"""The arguments that name a feed, a watch or a monitor, by the member that they are of the answer to whoever made it."""
MADE: list[dict[str, str]] = [
    {name: made[member] for name, member in NAMING.items() if member in made} for made in json.loads(os.environ["CAMPUS_MADE"])
]
"""Such arguments of all that was made and not deleted, the newest last. A beat is the first operation: its monitor is there before."""
WINDOW = {"from": os.environ["CAMPUS_DAY_BEFORE"], "to": DAY}
COMPARISONS = ("/v1/brief/changes", "/v1/brief/changes/counts")
"""A history takes a window too, but of days that have EPSS."""
OF_PAYMENTS = ("PAYMENT-SIGNATURE", "Idempotency-Key")
"""Headers in which no generated text is right; tests/contract/test_generated_payments.py sends them."""
TARGETS = count()
LATIN = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f\xa0", exclude_categories=["Cc"]), max_size=40)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        # not text/html: browsers receive problems as pages, which the documents for programs do not describe
        "Accept": st.sampled_from(["*/*", "text/plain", "application/problem+json", "application/json;q=0"]) | LATIN,
        "Accept-Encoding": st.sampled_from(["gzip", "identity", "br;q=1"]) | LATIN,
        "Accept-Language": LATIN,
        "Cookie": LATIN,
        "If-Modified-Since": LATIN,
        "If-None-Match": st.sampled_from(["*", '""', 'W/"a"', '"a", "b"']) | LATIN,
        "Origin": st.sampled_from(["null", "https://elsewhere.example"]) | LATIN,
        "Range": st.sampled_from(["bytes=0-1", "bytes=-1"]) | LATIN,
        "Referer": LATIN,
        "X-Forwarded-For": LATIN,
        "X-Request-Id": LATIN,
        "traceparent": st.sampled_from(["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-0-0-0"]) | LATIN,
    },
)


@schemathesis.hook
def before_generate_case(context: Any, strategy: Any) -> Any:
    """Add odd headers to any call, and values that exist to well-formed ones."""
    return st.tuples(strategy, HEADERS, st.booleans()).map(lambda drawn: with_headers(*drawn))


def with_headers(case: Any, headers: dict[str, str], known: bool) -> Any:
    own = {name: value for name, value in (case.headers or {}).items() if name not in OF_PAYMENTS}
    case.headers = {**headers, **own}
    if known and case.meta.generation.mode.is_positive:
        there_are = reduce(or_, MADE, KNOWN | (WINDOW if case.path in COMPARISONS else {}))
        case.path_parameters = {name: there_are.get(name, value) for name, value in (case.path_parameters or {}).items()}
        case.query = {name: there_are.get(name, value) for name, value in (case.query or {}).items()}
        if isinstance(case.body, dict):
            case.body = {name: there_are.get(name, value) for name, value in case.body.items()}
        if isinstance(case.body, dict) and "name" in case.body:
            case.body |= {"name": "fuzz", "alert_webhook": f"http://127.0.0.1:9/{next(TARGETS)}", "alert_email": None}
    return case


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Ignore failures that are only campus's documented 402 where Schemathesis expects 401.

    Schemathesis also calls without the key; in a run without a key every paid call is refused so, and a purchase in every run.
    Ignored too: 304, HTTP's own answer to an If-None-Match, which documents do not list, and the rules that no
    schema can express, listed above.
    """
    if response.status_code == 304 and "If-None-Match" in (case.headers or {}):
        return False
    if isinstance(failure, RejectedPositiveData) and is_beyond_schemas(response):
        return False
    if isinstance(failure, AllowHeaderMismatch | UnsupportedMethodResponse) and case.path == OF_BOTH_METHODS:
        return False
    if isinstance(failure, AcceptedNegativeData) and "null" in (case.query or {}).values():  # the same as leaving the argument out
        return False
    refused_for_access = (
        (KEYLESS or case.path == PURCHASE)
        and response.status_code == 402
        and isinstance(failure, AcceptedNegativeData | RejectedPositiveData)
    )
    return not refused_for_access and not failure.message.startswith(REFUSED_PROBES)


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Write the answer's status and code to the tally, and keep the ids of what there is."""
    if response.status_code == 200 and case.method == "POST" and "{" not in case.path and is_of(response, "application/json"):
        made = response.json()
        MADE.append({name: made[member] for name, member in NAMING.items() if member in made})
    if response.status_code == 200 and case.method == "DELETE":
        MADE[:] = [one for one in MADE if set(one.values()).isdisjoint(case.path_parameters.values())]
    line = {"operation": case.operation.label, "method": case.method, "status": response.status_code, "code": code_of(response)}
    with TALLY.open("a") as tally:
        tally.write(json.dumps(line) + "\n")


def code_of(response: Any) -> str | None:
    if not is_of(response, "application/problem+json"):
        return None
    code: str = response.json()["code"]
    return code


def is_beyond_schemas(response: Any) -> bool:
    if (code := code_of(response)) in (*ADDRESSES, *BETWEEN_ARGUMENTS, *OF_CAPSULES):
        return True
    if code not in ("invalid_request", "invalid_json"):
        return False
    problem = response.json()
    said = [error["detail"] for error in problem.get("errors", ())] or [problem["detail"]]
    return all(each.startswith(tuple(NO_SCHEMA_SAYS)) for each in said)


def is_of(response: Any, kind: str) -> bool:
    return str(response.headers.get("content-type", [""])[0]).startswith(kind)
