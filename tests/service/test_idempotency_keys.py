"""Idempotency-Keys: random ones are strong, whatever made them; those that people and agents invent are refused."""

import base64
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campus.idempotency_keys import LONGEST_KEY, check_idempotency_key, weakness_of
from twins import Problem

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
WEAK = {
    "a" * 22: "different letters",
    "1234567890123456789012": "counts or repeats",
    "abcabcabcabcabcabcabcabc": "different letters",
    "abcdefgh" * 3: "counts or repeats",
    "0123456789abcdef0123456789abcdef": "counts or repeats",
    "0000-0001-0002-0003-0004-0005": "different letters",
    "a1b2c3d4-e5f6-7890-abcd-ef1234567890": "counts or repeats",
    "9f8e7d6c5b4a39281706f5e4d3c2b1a0": "counts or repeats",
    "agent7x0001-agent7x0002-agent7x0003": "counts or repeats",
    "idempotency-key-000001": "words",
    "my-idempotency-key-for-today": "words",
    "buy-campus-pass-2026-11-22-attempt-1": "words",
    "2026-11-22T06:54:36.123456Z": "words",
    "20261122T065436Z-20261122T065436Z": "counts or repeats",
    "17637944761763794476912834": "words",
    "550e8400-e29b-41d4-a716-446655440000": "manual",
    "short": "5 characters",
    "": "0 characters",
    "x8Kq2" * 52: "260 characters",
    "fV3k9Zq0tLx7Rw2uBn5s\u00e9d8A": "ASCII",
    "fV3k9Zq0tLx7\tRw2uBn5sYd8A": "ASCII",
}


@pytest.mark.parametrize(("key", "reason"), WEAK.items())
def test_what_others_could_send_too_is_refused_with_the_reason_and_the_way_to_a_strong_one(key: str, reason: str) -> None:
    assert reason in (weakness_of(key) or "")
    with pytest.raises(Problem) as refused:
        check_idempotency_key(key)
    assert (refused.value.status, refused.value.code) == (400, "weak_idempotency_key")
    assert "token_urlsafe(24)" in refused.value.detail
    assert key not in refused.value.detail or len(key) < 8


@pytest.mark.parametrize("key", ["fV3k9Zq0tLx7Rw2uBn5sYd8A" * 20, "x8Kq2" * 52])
def test_a_key_that_is_too_long_is_refused_for_its_length_and_not_as_one_that_others_may_send(key: str) -> None:
    with pytest.raises(Problem) as refused:
        check_idempotency_key(key)
    assert f"has {len(key)} characters, more than 255. Use 22 to 255" in refused.value.detail
    assert "another caller" not in refused.value.detail


@settings(max_examples=5 * settings.default.max_examples)
@given(st.integers(0, 2**64))
def test_random_keys_of_every_usual_make_are_strong(seed: int) -> None:
    random = Random(seed)

    def urlsafe(size: int) -> str:
        return base64.urlsafe_b64encode(random.randbytes(size)).decode().rstrip("=")

    uuid = UUID(int=random.getrandbits(128), version=4)
    timed = f"{1_790_000_000_000 + random.randrange(10**12):012x}"
    ulid = "01" + "".join(random.choice(CROCKFORD) for _ in range(24))
    made = (
        *(str(uuid), uuid.hex, str(uuid).upper(), f"{{{uuid}}}", f'"{uuid}"', f"urn:uuid:{uuid}"),
        *(urlsafe(16), urlsafe(24), urlsafe(32), random.randbytes(16).hex(), random.randbytes(32).hex()),
        *(
            base64.b64encode(random.randbytes(18)).decode(),
            ulid,
            f"{timed[:8]}-{timed[8:]}-7{uuid.hex[:3]}-{uuid.hex[16:20]}-{uuid.hex[20:]}",
        ),
        *(f"buy-campus-pass-{uuid}", f"idem_{urlsafe(24)}"),
    )
    assert {key: weakness_of(key) for key in made if weakness_of(key)} == {}


@given(st.text(max_size=300))
def test_any_text_is_judged(key: str) -> None:
    reason = weakness_of(key)
    assert reason is not None or 22 <= len(key) <= LONGEST_KEY
