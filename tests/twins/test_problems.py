"""Problems of RFC 9457: their body, their title, their answer."""

import enum
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastmcp.exceptions import ToolError
from pydantic import BaseModel
from pydantic_core import to_json

from twins import FieldError, Problem, problem_answer


def test_a_problem_is_a_tool_error_whose_sentence_is_its_detail() -> None:
    problem = Problem(404, "monitor_not_found", "no such monitor")
    assert isinstance(problem, ToolError)
    assert str(problem) == "no such monitor"


def test_the_body_has_the_members_of_the_rfc_and_its_extensions() -> None:
    problem = Problem(422, "invalid_request", "no", errors=[FieldError("/body/x", "missing", "is required"), {"pointer": "/y"}], extra=1)
    assert problem.body("/errors/", request_id="r") == {
        "type": "/errors/invalid_request",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "no",
        "code": "invalid_request",
        "request_id": "r",
        "errors": [{"pointer": "/body/x", "code": "missing", "detail": "is required"}, {"pointer": "/y"}],
        "extra": 1,
    }


def test_without_an_address_for_codes_the_type_is_about_blank() -> None:
    assert Problem(404, "x", "y").body() == {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "y", "code": "x"}


@pytest.mark.parametrize(
    ("status", "title"), [(402, "Payment Required"), (429, "Too Many Requests"), (499, "Bad Request"), (599, "Internal Server Error")]
)
def test_every_status_has_a_title(status: int, title: str) -> None:
    assert Problem(status, "x", "y").body()["title"] == title


def test_its_answer_is_never_stored_and_has_its_headers() -> None:
    answer = problem_answer(Problem(429, "rate_limited", "slow down", headers={"Retry-After": "12"}), types="/errors/")
    assert answer.status == 429
    assert dict(answer.headers) == {b"content-type": b"application/problem+json", b"cache-control": b"no-store", b"retry-after": b"12"}
    assert b'"type":"/errors/rate_limited"' in answer.body


@pytest.mark.parametrize("value", ["/a\r\nSet-Cookie: b=c", "/\N{RIGHTWARDS ARROW}", "/\0"])
def test_a_header_cannot_end_early(value: str) -> None:
    with pytest.raises(ValueError, match=r"the header Location of Problem\('moved'\) has a line break or a character beyond latin-1"):
        Problem(404, "moved", "it is elsewhere", headers={"Location": value})


class Tide(BaseModel):
    height: float


@dataclass
class Port:
    name: str


class Word(str):
    """A text of a class of its own."""


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    "value",
    [
        "é\u2028\N{GRINNING FACE}",
        0.1,
        1e300,
        1e-7,
        math.nan,
        math.inf,
        2**80,
        True,
        None,
        (1, [2, {"a": "b"}]),
        {"a": {1: "a number's name"}},
        {"one"},
        datetime(2026, 8, 21, tzinfo=UTC),
        Decimal("1.50"),
        Tide(height=1.5),
        Port("Brest"),
        Word("ebb"),
        Level.LOW,
        b"bytes",
        object,
    ],
    ids=repr,
)
def test_its_members_are_written_like_those_of_a_result(value: Any) -> None:
    problem = Problem(422, "odd", "é", member=value)
    assert problem_answer(problem).body == to_json(problem.body(), inf_nan_mode="null", fallback=str)
