"""The tokens that callers send, as text: how those of keys and of connected clients are made, checked and stored.

    campus_live_    32 characters of base62   6 characters of base62    a key's
    campus_access_  43 characters of base62   6 characters of base62    a connected client's
    kind            190 or 256 random bits    CRC-32 of the characters before it

A client's code and refresh token have the form of its access token, with another kind. Because of the checksum a typo is refused
without reading the database, and a scan for leaked tokens has no false matches. Only the SHA-256 is stored: so many random bits need
no slow hash.
"""

import re
from typing import Literal
from zlib import crc32

from campus.secrets import Entropy, base62, random_base62

START = "campus_live_"
BODY_LENGTH = 32
CHECKSUM_LENGTH = 6
SHOWN_LENGTH = 12
TOKEN_LENGTH = len(START) + BODY_LENGTH + CHECKSUM_LENGTH
SHAPE = re.compile(rf"{START}([0-9A-Za-z]{{{BODY_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})")
Kind = Literal["code", "access", "refresh"]
ACCESS = "campus_access_"
CLIENT_BODY_LENGTH = 43
ACCESS_LENGTH = len(ACCESS) + CLIENT_BODY_LENGTH + CHECKSUM_LENGTH
CLIENT_SHAPE = re.compile(rf"campus_(?:code|access|refresh)_([0-9A-Za-z]{{{CLIENT_BODY_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})")


def new_token(entropy: Entropy) -> str:
    body = random_base62(BODY_LENGTH, entropy)
    return f"{START}{body}{checksum_of(body)}"


def is_well_formed(text: str) -> bool:
    match = SHAPE.fullmatch(text)
    return match is not None and match[2] == checksum_of(match[1])


def new_client_token(kind: Kind, entropy: Entropy) -> str:
    body = random_base62(CLIENT_BODY_LENGTH, entropy)
    return f"campus_{kind}_{body}{checksum_of(body)}"


def is_client_token(text: str) -> bool:
    match = CLIENT_SHAPE.fullmatch(text)
    return match is not None and match[2] == checksum_of(match[1])


def prefix_of(token: str) -> str:
    """The first 12 random characters, by which people tell keys apart; the other 20 stay secret (119 bits)."""
    return token.removeprefix(START)[:SHOWN_LENGTH]


def pasted(text: str) -> str:
    """A text by which an operator looks for keys. Of one with a token in it, as copied from a client's settings, whole, cut or masked,
    only START and the characters by which keys are told apart.
    """
    found = re.search(rf"{START}[0-9A-Za-z]{{0,{SHOWN_LENGTH}}}", text)
    return found[0] if found else text.strip()


def checksum_of(body: str) -> str:
    return base62(crc32(body.encode()), CHECKSUM_LENGTH)
