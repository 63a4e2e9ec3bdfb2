"""Names of vendors, products and packages as they are compared: KEV's Palo Alto Networks is NVD's paloaltonetworks."""

import re
import unicodedata
from functools import lru_cache

ONE_COLON = re.compile("(?<!:):(?!:)")


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Its letters and digits in lower case, and + and #, which tell C++ from C."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(character for character in folded if character.isalnum() or character in "+#") or folded


def plain_product(name: str) -> tuple[str | None, str]:
    """Vendor and product of a name that may be written as vendor:product; Perl's names, such as Net::DNS, have no vendor."""
    *vendor, product = ONE_COLON.split(name, maxsplit=1)
    return plain_name(vendor[0]) if vendor else None, plain_name(product)


def plain_package(name: str) -> str:
    """The last part of a package's name: lodash of pkg:npm/lodash@4.17.20, log4j-core of org.apache.logging.log4j:log4j-core."""
    path = name.partition("?")[0].partition("#")[0].rstrip("/")
    last = re.split("[/:]", path)[-1]
    return plain_name(last.partition("@")[0] or last)
