"""Problems as RFC 9457 has them."""

import pytest
from fastmcp.exceptions import ToolError

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


def test_without_addresses_for_codes_the_type_says_nothing() -> None:
    assert Problem(404, "x", "y").body() == {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "y", "code": "x"}


@pytest.mark.parametrize(
    ("status", "title"), [(402, "Payment Required"), (429, "Too Many Requests"), (499, "Bad Request"), (599, "Internal Server Error")]
)
def test_every_status_has_a_title(status: int, title: str) -> None:
    assert Problem(status, "x", "y").body()["title"] == title


def test_as_an_answer_it_is_never_kept_and_brings_its_headers() -> None:
    answer = problem_answer(Problem(429, "rate_limited", "slow down", headers={"Retry-After": "12"}), types="/errors/")
    assert answer.status == 429
    assert dict(answer.headers) == {b"content-type": b"application/problem+json", b"cache-control": b"no-store", b"retry-after": b"12"}
    assert b'"type":"/errors/rate_limited"' in answer.body
