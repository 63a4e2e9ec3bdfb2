"""HTTP clients that wait as long as the machine's load asks for: tests use these, never httpx's own, which give up after five seconds."""

from typing import Any

import httpx

from tests.patience import patience

SECONDS = 30.0
"""How long an idle machine may take for one answer."""


def options(given: dict[str, Any]) -> dict[str, Any]:
    return {"timeout": patience(SECONDS), "verify": False, **given}


class Client(httpx.Client):
    """httpx's client, with patience."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**options(given))


class AsyncClient(httpx.AsyncClient):
    """httpx's client for asyncio, with patience."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**options(given))


def request(method: str, url: str, **given: Any) -> httpx.Response:
    return httpx.request(method, url, **options(given))


def get(url: str, **given: Any) -> httpx.Response:
    return request("GET", url, **given)


def post(url: str, **given: Any) -> httpx.Response:
    return request("POST", url, **given)
