"""The secrets of monitors, the hashes under which they are stored, and how they are compared. Pure."""

import hmac
from hashlib import sha256

from campus import Entropy, random_base62

SECRET_LENGTH = 32
NO_DIGEST = bytes(32)
"""In place of the digest of a monitor that does not exist, so that the comparison takes as long."""


def new_secret(entropy: Entropy) -> str:
    """190 random bits as letters and digits: it is part of URLs and crontabs."""
    return random_base62(SECRET_LENGTH, entropy)


def digest_of(text: str) -> bytes:
    """The 32 bytes under which a secret is stored; 190 random bits need no slow hash."""
    return sha256(text.encode()).digest()


def digest_matches(digest: bytes | None, given: bytes) -> bool:
    """Whether two digests are equal, in constant time; False for None, the digest of a monitor that does not exist."""
    same = hmac.compare_digest(NO_DIGEST if digest is None else digest, given)
    return same and digest is not None
