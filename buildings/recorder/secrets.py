"""The secrets of monitors and targets, the digests under which they are stored, and how they are compared. Pure."""

import hmac
from base64 import b64encode
from hashlib import sha256

from campus import Entropy, random_base62

SECRET_LENGTH = 32
SIGNING_BYTES = 32
NOBODY = bytes(32)
"""Stands for the digest of a monitor that does not exist, so that comparing takes as long."""


def new_secret(entropy: Entropy) -> str:
    """190 random bits as letters and digits: it is part of URLs and crontabs."""
    return random_base62(SECRET_LENGTH, entropy)


def digest_of(text: str) -> bytes:
    """The 32 bytes under which a secret is stored; 190 random bits need no slow hash."""
    return sha256(text.encode()).digest()


def is_right(digest: bytes | None, given: bytes) -> bool:
    """Whether two digests are equal, in constant time; False for None, the digest of a monitor that does not exist."""
    same = hmac.compare_digest(NOBODY if digest is None else digest, given)
    return same and digest is not None


def shown_signing_secret(key: bytes) -> str:
    """A signing secret in the format of Standard Webhooks."""
    return f"whsec_{b64encode(key).decode()}"


def token_for(purpose: str, key: bytes) -> str:
    """The token of a URL that only the reader of a target was sent: derived from the target's key, so that it is not stored."""
    return hmac.new(key, purpose.encode(), sha256).hexdigest()
