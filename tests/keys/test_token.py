"""The form of a token: every token is well-formed, and a mistyped one is not."""

import secrets

from hypothesis import given
from hypothesis import strategies as st

from campus.keys.tokens import START, TOKEN_LENGTH, is_well_formed, new_token, prefix_of
from campus.secrets import ALPHABET, digest_of

tokens = st.binary(min_size=64, max_size=64).map(lambda pool: new_token(lambda size: pool[:size]))


@given(tokens)
def test_every_token_that_is_made_is_well_formed(token: str) -> None:
    assert is_well_formed(token)
    assert len(token) == TOKEN_LENGTH == 50
    assert token.startswith("campus_live_")


@given(tokens, st.integers(len(START), TOKEN_LENGTH - 1), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(token: str, place: int, typed: str) -> None:
    mistyped = token[:place] + typed + token[place + 1 :]
    assert is_well_formed(mistyped) is (mistyped == token)


@given(tokens, st.integers(len(START), TOKEN_LENGTH - 2))
def test_two_characters_that_changed_places_are_noticed(token: str, place: int) -> None:
    swapped = token[:place] + token[place + 1] + token[place] + token[place + 2 :]
    assert is_well_formed(swapped) is (swapped == token)


@given(st.text())
def test_random_text_is_not_well_formed(text: str) -> None:
    assert not is_well_formed(text)


@given(tokens, st.sampled_from(["\n", " ", "0", "\x00", "é"]))
def test_a_token_with_anything_around_it_is_not_well_formed(token: str, extra: str) -> None:
    assert not is_well_formed(token + extra)
    assert not is_well_formed(extra + token)


def test_the_form_is_fixed_for_ever() -> None:
    token = new_token(lambda size: bytes(range(size)))
    assert token == "campus_live_jlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1PhCqX"
    assert digest_of(token).hex() == "f020843b0b8dc897316968b8fb8a8153edd76e106ec4fc54c49c2f7d1f246df2"
    assert prefix_of(token) == token[12:24]


def test_tokens_and_their_digests_differ() -> None:
    made = {new_token(secrets.token_bytes) for _ in range(1000)}
    assert len(made) == len({digest_of(token) for token in made}) == 1000
