"""The token that a caller sends as its key: how it is made, checked and stored. Pure: randomness is an argument.

    campus_live_  32 characters of base62   6 characters of base62
    fixed prefix  190 random bits           CRC-32 of the 32 before it

Because of the checksum a typo is refused without reading the database, and a scan for leaked tokens has no false matches.
Only its SHA-256 is stored: 190 random bits need no slow hash.
"""

import re
from hashlib import sha256
from zlib import crc32

from campus.storage import Entropy, base62, random_base62

START = "campus_live_"
BODY_LENGTH = 32
CHECKSUM_LENGTH = 6
SHOWN_LENGTH = 12
TOKEN_LENGTH = len(START) + BODY_LENGTH + CHECKSUM_LENGTH
SHAPE = re.compile(rf"{START}([0-9A-Za-z]{{{BODY_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})")


def new_token(entropy: Entropy) -> str:
    """Make a token. Its holder has the key."""
    body = random_base62(BODY_LENGTH, entropy)
    return f"{START}{body}{_checksum_of(body)}"


def is_well_formed(text: str) -> bool:
    """Whether the text has the form of a token, checksum included."""
    match = SHAPE.fullmatch(text)
    return match is not None and match[2] == _checksum_of(match[1])


def digest_of(token: str) -> bytes:
    """The SHA-256 digest under which the token is stored, 32 bytes."""
    return sha256(token.encode()).digest()


def prefix_of(token: str) -> str:
    """The first 12 random characters, by which people tell keys apart; the other 20 stay secret (119 bits)."""
    return token.removeprefix(START)[:SHOWN_LENGTH]


def _checksum_of(body: str) -> str:
    return base62(crc32(body.encode()), CHECKSUM_LENGTH)
