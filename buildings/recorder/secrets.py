"""Identifiers, secrets and their digests. Pure: randomness is an argument."""

import hmac
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SECRET_LENGTH = 32
ID_LENGTH = 16
SIGNING_BYTES = 32
NOBODY = bytes(32)
"""Stands in for the digest of a monitor that there is not, so that looking for it takes as long."""

Entropy = Callable[[int], bytes]
"""Gives that many random bytes: `secrets.token_bytes`."""


def new_id(prefix: str, entropy: Entropy) -> str:
    """Such as mon_4f…: 95 random bits."""
    return f"{prefix}_{_base62(ID_LENGTH, entropy)}"


def new_secret(entropy: Entropy) -> str:
    """190 random bits, in letters and digits: it stands in addresses and in crontabs."""
    return _base62(SECRET_LENGTH, entropy)


def digest_of(text: str) -> bytes:
    """The 32 bytes under which a secret is stored; 190 random bits need no slow hash."""
    return sha256(text.encode()).digest()


def is_right(digest: bytes | None, given: bytes) -> bool:
    """Whether two digests are the same, in the same time whatever they are; None is nobody's."""
    same = hmac.compare_digest(NOBODY if digest is None else digest, given)
    return same and digest is not None


def shown_signing_secret(key: bytes) -> str:
    """A signing secret as Standard Webhooks writes it."""
    return f"whsec_{b64encode(key).decode()}"


def token_for(purpose: str, key: bytes) -> str:
    """What stands in an address that only the owner of a target was sent: made of the target's key, so nothing is stored."""
    return hmac.new(key, purpose.encode(), sha256).hexdigest()


def _base62(length: int, entropy: Entropy) -> str:
    number = int.from_bytes(entropy(length * 6 // 8 + 8))
    characters = []
    for _ in range(length):
        number, place = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[place])
    return "".join(characters)
