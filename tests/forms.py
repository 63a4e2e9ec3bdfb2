"""What a browser does with forms: it sends the token of the page, and follows the answer to where it is shown."""

import re
from collections.abc import Mapping

import httpx

HTML = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


def token_in(page: str) -> str:
    """The token of a page's first form."""
    found = re.search(r'name="form_token" value="(\w+)"', page)
    assert found is not None, page
    return found[1]


async def sent(http: httpx.AsyncClient, path: str, *, page: str | None = None, **fields: str) -> httpx.Response:
    """The answer to a form that is on another `page`, or at its own address."""
    token = token_in((await http.get(page or path, headers=HTML)).text)
    return await http.post(path, data={"form_token": token, **fields}, headers=HTML)


async def shown(http: httpx.AsyncClient, answer: httpx.Response, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """The page that a kept answer shows; any other answer as it is."""
    location = answer.headers.get("location", "")
    return await http.get(location, headers=headers or {}) if location.startswith("/answers/") else answer
