"""Random identifiers and secrets in letters and digits. Pure: randomness is an argument."""

from collections.abc import Callable

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 16

Entropy = Callable[[int], bytes]
"""Returns that many random bytes: `secrets.token_bytes`."""


def random_base62(length: int, entropy: Entropy) -> str:
    """As many characters, evenly drawn: 8 bytes more than they hold leave a bias of 2⁻⁶⁴."""
    return base62(int.from_bytes(entropy(length * 6 // 8 + 8)), length)


def random_id(prefix: str, entropy: Entropy) -> str:
    """An identifier such as mon_4f…, with 95 random bits."""
    return f"{prefix}_{random_base62(ID_LENGTH, entropy)}"


def base62(number: int, length: int) -> str:
    """The last `length` digits of a number in base 62."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
