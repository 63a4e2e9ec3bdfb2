"""What a payment is for, as one URL: the same call has the same one over HTTP and MCP. Pure."""

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from twins import Operation

LONGEST_VALUE = 200
LONGEST_QUERY = 1_000


def resource_of(operation: Operation, url: str, arguments: Mapping[str, Any] | None, *, without: Collection[str] = ()) -> str:
    """The canonical URL of a call: `url` is the public address, `arguments` in their one form, None where they cannot be read.

    The twin's path with its placeholders filled, and every other argument as a query member, sorted, whatever the method.
    A text stands as it is, anything else as compact JSON; what is long is there by its SHA-256. A placeholder without
    a value stays as `:name`. `without` names arguments that say nothing of what is bought.
    """
    sent = {name: spelled(value) for name, value in (arguments or {}).items() if name not in without}
    path = operation.path
    for name in operation.route.placeholders:
        path = path.replace(f"{{{name}}}", quote(sent.pop(name), safe="") if name in sent else f":{name}")
    if not sent:
        return f"{url}{path}"
    query = urlencode(sorted((operation.place_of(name, operation.methods[0])[1], text) for name, text in sent.items()))
    if len(query) > LONGEST_QUERY:
        query = f"arguments={digest(query)}"
    return f"{url}{path}?{query}"


def spelled(value: Any) -> str:
    """One argument as a text."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else digest(text)


def digest(text: str) -> str:
    """What stands for a text that is too long."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"
