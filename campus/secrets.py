"""Secrets: random identifiers, answers encrypted under a caller's own secret, and what looks like one. Pure: randomness is an argument."""

import re
from collections.abc import Callable, Iterable
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Entropy", "digest_of", "random_base62", "random_id", "seal", "unseal", "unsealed"]

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 16
NONCE_BYTES = 12
HIDDEN = "(hidden)"
SECRET_NAME = re.compile(r"secret|pass|pwd|token|credential|auth|private|cookie|dsn|key|mnemonic|seed|signature", re.IGNORECASE)
"""Settings, variables and options with such names are hidden. Too many are better than too few: strangers may use any name."""

Entropy = Callable[[int], bytes]
"""Returns that many random bytes: `secrets.token_bytes`."""


def random_base62(length: int, entropy: Entropy) -> str:
    """`length` letters and digits, evenly distributed: 8 bytes more than they need keep the bias below 2⁻⁶⁴."""
    return base62(int.from_bytes(entropy(length * 6 // 8 + 8)), length)


def random_id(prefix: str, entropy: Entropy) -> str:
    """An identifier such as mon_4f…, with 95 random bits."""
    return f"{prefix}_{random_base62(ID_LENGTH, entropy)}"


def digest_of(secret: str) -> bytes:
    """The SHA-256 digest under which a secret is stored, 32 bytes. One of 190 random bits needs no slow hash."""
    return sha256(secret.encode()).digest()


def base62(number: int, length: int) -> str:
    """The last `length` digits of a number in base 62."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def seal(data: bytes, secret: str, *, entropy: Entropy, context: bytes = b"") -> bytes:
    """Encrypt with AES-256-GCM under a secret that is not stored; `unseal` needs the same `context`, which is not kept in the result."""
    nonce = entropy(NONCE_BYTES)
    return nonce + _cipher(secret).encrypt(nonce, data, context)


def unseal(sealed: bytes, secret: str, *, context: bytes = b"") -> bytes | None:
    """The data, or None if the secret or the context differs."""
    try:
        return _cipher(secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except InvalidTag:
        return None


def unsealed(sealed: bytes, secrets: Iterable[str], *, context: bytes = b"") -> bytes | None:
    """The data, by whichever of the secrets opens it; None if none does."""
    return next((data for secret in secrets if (data := unseal(sealed, secret, context=context)) is not None), None)


def _cipher(secret: str) -> AESGCM:
    return AESGCM(sha256(f"seal\n{secret}".encode()).digest())


def is_sendable(secret: str) -> bool:
    """Whether it can be sent in a header: libraries repeat one that cannot be in what they raise, which is logged."""
    return secret.isascii() and secret.isprintable() and " " not in secret
