"""Names of vendors and products as they are compared: KEV's Palo Alto Networks and D-Link are NVD's paloaltonetworks and dlink."""

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Its letters and digits in lower case, and + and #, which tell C++ from C."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(character for character in folded if character.isalnum() or character in "+#") or folded
