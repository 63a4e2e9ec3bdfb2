"""The strict JSON reader: what it accepts, and what it refuses."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twins import Problem, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_characters="\0", codec="utf-8")), inner),
)


@given(VALUES)
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b'{"deep": [{"a": -1e999}]}',
        b'"\\u0000"',
        b'{"a\\u0000b": 1}',
        b'"\\ud800"',
        b'"\xff"',
        b"[" * 250 + b"]" * 250,
        b"[" * 100_000,
        b"9" * 5000,
        str(2**63).encode(),
        str(-(2**63) - 1).encode(),
        b"'single'",
        b"[1,]",
    ],
)
def test_unstorable_and_malformed_json_is_refused(text: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_json(text)
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")


def test_json_that_only_looks_unstorable_is_read() -> None:
    assert read_json(b'["\\\\u0000", "1e999", 1e10, 9223372036854775807]') == ["\\u0000", "1e999", 1e10, 2**63 - 1]
    assert math.isclose(read_json(b"1.7976931348623157e308"), 1.7976931348623157e308)


def test_an_error_does_not_repeat_the_json() -> None:
    with pytest.raises(Problem) as refused:
        read_json(b'{"password": "hunter2" "x"}')
    assert "hunter2" not in refused.value.detail
