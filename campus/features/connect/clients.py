"""OAuth clients, none of which is stored: a registered client's id is its own authenticated record, another's is the URL of its document.

A registration (RFC 7591) is answered with an id that contains the client's name and redirect URIs and a code by which this campus
recognises them. A client id that is an https URL names a client id metadata document, which is fetched through the guarded client.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import anyio
import httpx
from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from campus.errors import TargetRefused, one_line
from campus.outbound.http_clients import GuardedClient
from campus.shares import LatestEntries

START = "campus_client_"
LONGEST_ID = 4_096
LONGEST_NAME = 80
MOST_URIS, LONGEST_URIS = 10, 1_500
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
EDITORS = ("cursor", "vscode", "vscode-insiders", "windsurf")
"""Editors that receive codes by a scheme of their own."""
MAC_BYTES = 16

DOCUMENT_SECONDS, FAILURE_SECONDS = 600.0, 30.0
"""How long a client's document is used, and how long it is not asked for again after it could not be read."""
FETCH_SECONDS = 5.0
FETCHES, FETCHES_PER_HOST = 8, 2
WAIT_SECONDS = 10.0
"""How long a document waits for its turn to be fetched."""
MOST_DOCUMENTS = 256
"""Kept in memory; as many refusals are kept apart, so that they push out no document that is used."""


class ClientRefused(Exception):
    """A client's metadata cannot be used; the sentence is for the person who came from it."""


def may_receive_codes(uri: str) -> bool:
    """Whether a code may be sent to a redirect URI: over https, to a program on the user's machine, or to one of the editors."""
    parts = urlsplit(uri)
    is_reached = parts.hostname in LOOPBACK_HOSTS if parts.scheme == "http" else parts.scheme in ("https", *EDITORS)
    return is_reached and bool(parts.netloc) and not ("#" in uri or "@" in parts.netloc)


def is_local(uri: str) -> bool:
    """Whether a redirect URI leads to a program on the user's machine."""
    parts = urlsplit(uri)
    return parts.hostname in LOOPBACK_HOSTS if parts.scheme == "http" else parts.scheme in EDITORS


def _comparable(uri: str) -> str:
    """The URI without the port of a program on the user's machine, which may listen on any (RFC 8252), and never without a path."""
    parts = urlsplit(uri)
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS
    return parts._replace(netloc=str(parts.hostname) if is_local else parts.netloc, path=parts.path or "/").geturl()


class Client(OAuthClientInformationFull):
    """A public client: it proves with PKCE that it is the one that asked."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """The URI, if it is one of the client's; InvalidRedirectUriError otherwise."""
        if redirect_uri is None:
            raise InvalidRedirectUriError("redirect_uri is missing")
        known = {_comparable(str(uri)) for uri in self.redirect_uris or ()}
        if _comparable(str(redirect_uri)) not in known or not may_receive_codes(str(redirect_uri)):
            raise InvalidRedirectUriError("redirect_uri is none of those that the client registered")
        return redirect_uri

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """All that was asked for: the resource decides what a token opens, and the answer names the scope that was granted."""
        return None if requested_scope is None else requested_scope.split()


def client_of(client_id: str, name: str, uris: Sequence[str]) -> Client:
    return Client.model_validate({"client_id": client_id, "client_name": name, "redirect_uris": uris, "token_endpoint_auth_method": "none"})


def refusal_of(uris: Sequence[str]) -> str | None:
    """Why the redirect URIs of a registration are refused; None if they are accepted."""
    if not uris or len(uris) > MOST_URIS or sum(map(len, uris)) > LONGEST_URIS:
        return f"register 1 to {MOST_URIS} redirect URIs of at most {LONGEST_URIS:,} characters together"
    if refused := [uri for uri in uris if not may_receive_codes(uri)]:
        return f"{refused[0][:80]!r} is refused: use https, or http to localhost, without a user and a fragment"
    return None


def registered_id(name: str, uris: Sequence[str], secret: str) -> str:
    """The id of a client that registers: its record, authenticated."""
    return _stamped(json.dumps([name, *uris], separators=(",", ":")).encode(), secret)


def registered_client(client_id: str, secret: str) -> Client | None:
    if not client_id.startswith(START) or len(client_id) > LONGEST_ID or not client_id.isascii():
        return None
    try:
        record = urlsafe_b64decode(client_id.removeprefix(START) + "==")[MAC_BYTES:]
    except ValueError:
        return None
    if not hmac.compare_digest(client_id, _stamped(record, secret)):
        return None
    name, *uris = json.loads(record)
    return client_of(client_id, name, uris)


def _stamped(record: bytes, secret: str) -> str:
    mac = hmac.digest(secret.encode(), b"client id\n" + record, "sha256")[:MAC_BYTES]
    return START + urlsafe_b64encode(mac + record).decode().rstrip("=")


def shown_name(name: str | None) -> str:
    """A client's name for itself, safe to show: one line without control characters."""
    return one_line(name or "", longest=LONGEST_NAME)


class MetadataDocument(BaseModel):
    client_id: str
    client_name: str | None = None
    redirect_uris: list[AnyUrl] = Field(min_length=1, max_length=MOST_URIS)


@dataclass(frozen=True)
class _Known:
    """What was found at a client's URL: the client, or why there is none."""

    until: float
    client: Client | None
    refusal: str = ""


class ClientDocuments:
    """Fetches client id metadata documents, and keeps them for ten minutes. One host has a share of the fetches."""

    def __init__(self, web: GuardedClient, *, elapsed: Callable[[], float]) -> None:
        self._web = web.apart(lookups=FETCHES).within(FETCH_SECONDS)
        self._elapsed = elapsed
        self._usable: LatestEntries[str, _Known] = LatestEntries(MOST_DOCUMENTS)
        self._refused: LatestEntries[str, _Known] = LatestEntries(MOST_DOCUMENTS)
        self._fetches = anyio.Semaphore(FETCHES)
        self._hosts: WeakValueDictionary[str, anyio.Semaphore] = WeakValueDictionary()

    def is_known(self, url: str) -> bool:
        return self._known(url) is not None

    def _known(self, url: str) -> _Known | None:
        found = self._usable.get(url) or self._refused.get(url)
        return found if found is not None and self._elapsed() < found.until else None

    async def client(self, url: str) -> Client:
        """The client whose id is this URL. Raises ClientRefused."""
        found = self._known(url) or await self._in_turn(url)
        if found.client is None:
            raise ClientRefused(found.refusal)
        return found.client

    async def _in_turn(self, url: str) -> _Known:
        """What is found at a URL, once it is its turn; a URL that breaks a rule takes none."""
        try:
            self._check_url(url)
        except (ClientRefused, TargetRefused) as refused:
            return self._keep(url, self._refusal(refused))
        share = self._hosts.setdefault(str(urlsplit(url).hostname), anyio.Semaphore(FETCHES_PER_HOST))
        async with AsyncExitStack() as turn:
            try:
                with anyio.fail_after(WAIT_SECONDS):
                    await turn.enter_async_context(share)
                    await turn.enter_async_context(self._fetches)
            except TimeoutError:
                raise ClientRefused("too many documents of clients are being fetched; try again in a minute") from None
            return self._known(url) or self._keep(url, await self._fetched(url))  # known: it was fetched while this waited

    async def _fetched(self, url: str) -> _Known:
        try:
            client = await self._read(url)
        except (ClientRefused, TargetRefused) as refused:
            return self._refusal(refused)
        except httpx.HTTPError:
            return _Known(
                self._elapsed() + FAILURE_SECONDS, None, "the client's document cannot be fetched at the moment; try again in a minute"
            )
        return _Known(self._elapsed() + DOCUMENT_SECONDS, client)

    def _refusal(self, refused: Exception) -> _Known:
        return _Known(self._elapsed() + FAILURE_SECONDS, None, f"the client's document cannot be used: {refused}")

    def _check_url(self, url: str) -> None:
        self._web.check_url(url)
        path = unquote(urlsplit(url).path)
        if path in ("", "/") or {".", ".."} & set(path.split("/")):
            raise ClientRefused("its URL has no path, or one with dots")

    async def _read(self, url: str) -> Client:
        answer = await self._web.get(url, headers={"accept": "application/json"})
        if answer.status_code != 200:
            raise ClientRefused(f"its server answered {answer.status_code}")
        try:
            document = MetadataDocument.model_validate_json(answer.content)
        except ValidationError:
            raise ClientRefused("it is not a JSON object of at most 4 KB with client_id and redirect_uris") from None
        if document.client_id != url:
            raise ClientRefused("its client_id is not its own URL")
        uris = [uri for each in document.redirect_uris if may_receive_codes(uri := str(each))]
        if not uris:
            raise ClientRefused("none of its redirect URIs may receive a code")
        return client_of(url, shown_name(document.client_name), uris)

    def _keep(self, url: str, found: _Known) -> _Known:
        self._usable.pop(url, None)
        self._refused.pop(url, None)
        kept = self._refused if found.client is None else self._usable
        kept[url] = found
        return found
