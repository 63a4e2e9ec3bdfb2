"""What may be shown of an address: scheme and host, for its user, path and query may hold a password or a token."""

import re
from urllib.parse import urlsplit

ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>\\]+", re.IGNORECASE)


def origin_of(url: str) -> str:
    """`https://jane:secret@feeds.example/token?key=x` as `https://feeds.example`; a file's address as it is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an address that cannot be read"
    if parts.scheme == "file":
        return url
    if not host:
        return "an address without a host"
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None else "")


def redacted(text: str) -> str:
    """The text with every address in it cut after its host; `/…` where something was cut."""
    return ADDRESS.sub(_cut, text) if "://" in text else text


def _cut(found: re.Match[str]) -> str:
    url, origin = found[0], origin_of(found[0])
    # punctuation after an address belongs to the sentence
    return url if url.rstrip(".,;:)]/") in (origin, origin.rstrip("]")) else f"{origin}/…"
