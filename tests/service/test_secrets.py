"""Random identifiers, and answers that are sealed under a secret."""

import secrets
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campus.secrets import ALPHABET, random_base62, seal, unseal

LENGTH = 32


def test_every_character_of_the_alphabet_is_drawn_about_as_often() -> None:
    drawn = "".join(random_base62(LENGTH, Random(seed).randbytes) for seed in range(2000))
    counts = [drawn.count(character) for character in ALPHABET]
    assert sum(counts) == 2000 * LENGTH
    assert 900 < min(counts) <= max(counts) < 1165, "1032 are expected, ± 32"


@pytest.mark.parametrize("length", [1, 6, 12, 32])
def test_random_base62_has_the_length_that_was_asked_for(length: int) -> None:
    assert len(random_base62(length, lambda size: b"\x00" * size)) == length


@given(st.binary(max_size=200), st.text(max_size=40), st.binary(max_size=40))
def test_what_is_sealed_opens_to_its_secret_and_context(data: bytes, secret: str, context: bytes) -> None:
    sealed = seal(data, secret, entropy=secrets.token_bytes, context=context)
    assert unseal(sealed, secret, context=context) == data
    assert unseal(sealed, secret + "x", context=context) is None
    assert unseal(sealed, secret, context=context + b"x") is None


def test_no_byte_of_what_is_sealed_can_be_changed() -> None:
    sealed = seal(b"the token", "a secret", entropy=secrets.token_bytes)
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        assert unseal(changed, "a secret") is None


def test_the_same_answer_is_sealed_differently_each_time() -> None:
    assert len({seal(b"the token", "a secret", entropy=secrets.token_bytes) for _ in range(10)}) == 10
