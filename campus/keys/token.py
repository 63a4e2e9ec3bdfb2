"""The token that a caller sends as its key: how it is made, checked and kept. Pure: randomness is an argument.

    campus_live_  32 characters of base62   6 characters of base62
    the mark      190 random bits           CRC-32 of the 32 before it

The checksum lets a typo be refused without a look at the database, and tells a leaked token from chance in a scan.
Only its SHA-256 is stored: 190 random bits need no slow hash.
"""

import re
from hashlib import sha256
from zlib import crc32

from campus.storage import Entropy, base62, random_base62

MARK = "campus_live_"
BODY_LENGTH = 32
CHECKSUM_LENGTH = 6
PREFIX_LENGTH = 12
TOKEN_LENGTH = len(MARK) + BODY_LENGTH + CHECKSUM_LENGTH
SHAPE = re.compile(rf"{MARK}([0-9A-Za-z]{{{BODY_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})")


def new_token(entropy: Entropy) -> str:
    """Make a token; whoever holds it holds the key."""
    body = random_base62(BODY_LENGTH, entropy)
    return f"{MARK}{body}{_checksum_of(body)}"


def is_well_formed(text: str) -> bool:
    """Whether the text can be a token at all."""
    match = SHAPE.fullmatch(text)
    return match is not None and match[2] == _checksum_of(match[1])


def digest_of(token: str) -> bytes:
    """The 32 bytes of SHA-256 under which the token is stored."""
    return sha256(token.encode()).digest()


def prefix_of(token: str) -> str:
    """The first 12 random characters, for people to tell keys apart; the other 20 stay secret (119 bits)."""
    return token.removeprefix(MARK)[:PREFIX_LENGTH]


def _checksum_of(body: str) -> str:
    return base62(crc32(body.encode()), CHECKSUM_LENGTH)
