"""The checksum in an address's capital letters (EIP-55): one mistyped letter would send every payment to nobody.

Loaded only where it is wanted: Keccak takes a tenth of a second to load.
"""

from Crypto.Hash import keccak


def spelled(address: str) -> str:
    """The address with the capital letters that its checksum wants."""
    digits = address.removeprefix("0x").lower()
    sums = keccak.new(data=digits.encode("ascii"), digest_bits=256).hexdigest()
    return "0x" + "".join(digit.upper() if int(sums[place], 16) > 7 else digit for place, digit in enumerate(digits))
