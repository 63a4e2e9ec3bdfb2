"""An OAuth client and its user's browser, over HTTP: registers, opens the consent page, types a key, and calls with the token."""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from forms import shown

HTML = {"Accept": "text/html"}
ORIGIN = "https://campus.test"
CALLBACK = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 20 + "-erifier_of.the~tests" + "0" * 10
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


@dataclass
class ChatApp:
    """A client that connects to one building. `issuer` is where it found the authorization server."""

    http: httpx.AsyncClient
    building: str = "lock"
    callback: str = CALLBACK
    issuer: str = f"{ORIGIN}/connect"
    client_id: str = ""
    tokens: dict[str, Any] = field(default_factory=dict)

    @property
    def mcp(self) -> str:
        return f"{self.issuer}/{self.building}/mcp"

    async def register(self, *uris: str, name: str = "Chat app") -> httpx.Response:
        answer = await self.http.post(f"{self.issuer}/register", json={"client_name": name, "redirect_uris": uris or [self.callback]})
        self.client_id = answer.json().get("client_id", "")
        return answer

    async def authorize(self, **changed: str | None) -> httpx.Response:
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.callback,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "a state & more",
            "resource": self.mcp,
            **changed,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return await self.http.get(f"{self.issuer}/authorize", params=given, headers=HTML)

    async def page(self, **changed: str | None) -> httpx.Response:
        """The consent page."""
        if not self.client_id:
            await self.register()
        answer = await self.authorize(**changed)
        assert answer.status_code == 302, answer.text
        return await self.http.get(answer.headers["location"], headers=HTML)

    async def send(self, page: httpx.Response, key: str, *, answer: str = "allow", headers: dict[str, str] | None = None) -> httpx.Response:
        token = re.search(r'name="form_token" value="(\w+)"', page.text)
        form = {"form_token": token[1] if token else "", "key": key, "answer": answer}
        return await shown(self.http, await self.http.post(str(page.url), data=form, headers=HTML | (headers or {})), HTML)

    async def code(self, key: str, **changed: str | None) -> str:
        """A code, for a key that the user types."""
        return str(answer_of(await self.send(await self.page(**changed), key))["code"])

    async def redeem(self, code: str, /, **changed: str) -> httpx.Response:
        given = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.callback, "code_verifier": VERIFIER}
        return await self._token(given | changed)

    async def refresh(self, token: str | None = None, **changed: str) -> httpx.Response:
        return await self._token({"grant_type": "refresh_token", "refresh_token": token or self.tokens["refresh_token"]} | changed)

    async def connect(self, key: str) -> dict[str, Any]:
        answer = await self.redeem(await self.code(key))
        assert answer.status_code == 200, answer.text
        return self.tokens

    async def ask(self, method: str = "tools/list", *, token: str | None = None, url: str | None = None, **params: Any) -> httpx.Response:
        token = self.tokens.get("access_token", "") if token is None else token
        headers = {"Accept": "application/json, text/event-stream"} | ({"Authorization": f"Bearer {token}"} if token else {})
        return await self.http.post(url or self.mcp, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers=headers)

    async def is_let_in(self, **options: Any) -> bool:
        answer = await self.ask(**options)
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200

    async def _token(self, form: dict[str, str]) -> httpx.Response:
        answer = await self.http.post(f"{self.issuer}/token", data={"client_id": self.client_id, **form})
        if answer.status_code == 200:
            self.tokens = answer.json()
        return answer


def answer_of(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code in (302, 303), answer.text
    location = answer.headers["location"]
    found = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
    return {**found, "to": location.partition("?")[0]}


def result_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    text = answer.text
    if not text.startswith("{"):  # a stream, which begins with a comment if the call takes long
        text = next(line for line in text.splitlines() if line.startswith("data:")).removeprefix("data:")
    found: dict[str, Any] = httpx.Response(200, text=text).json()["result"]
    return found
