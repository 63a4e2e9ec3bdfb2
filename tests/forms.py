"""What a browser does with the answer to a form: it follows it to where it is shown."""

from collections.abc import Mapping

import httpx


async def shown(http: httpx.AsyncClient, answer: httpx.Response, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """The page that a kept answer shows; any other answer as it is."""
    location = answer.headers.get("location", "")
    return await http.get(location, headers=headers or {}) if location.startswith("/answers/") else answer
