"""What the mcp SDK's OAuth handlers ask campus for: clients, requests that wait for a key's holder, codes and tokens.

A request is not stored before a key was shown: the address of the consent page contains it, sealed.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import inf
from urllib.parse import urlencode, urlsplit

from mcp.server.auth.provider import (
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from campus.building import Holdings
from campus.features.connect.clients import (
    START,
    Client,
    ClientDocuments,
    ClientRefused,
    client_of,
    is_local,
    refusal_of,
    registered_client,
    registered_id,
    shown_name,
)
from campus.features.connect.connected import ConnectedClients, Consent, Issued
from campus.keys.tokens import Kind
from campus.secrets import Entropy, seal, unseal
from twins import Problem

OFFLINE = "offline_access"
CHALLENGE, VERIFIER = re.compile(r"[A-Za-z0-9_-]{43}"), re.compile(r"[A-Za-z0-9._~-]{43,128}")
REQUEST_TERM = timedelta(minutes=10)
LONGEST_REQUEST = 6_000
"""Characters of a sealed request: many proxies accept request lines of 8 KB."""
SEALED = b"request to connect"
USED_UP = "it is unknown, expired or was used before, or its key has ended; connect again"


@dataclass(frozen=True)
class ConnectUrls:
    """Where everything is served: below `prefix`, which may be empty, of `origin`. Both together are the issuer."""

    origin: str
    prefix: str

    @property
    def issuer(self) -> str:
        """The issuer's URL, without a slash at its end."""
        return f"{self.origin}{self.prefix}"

    @property
    def metadata_path(self) -> str:
        return f"/.well-known/oauth-authorization-server{self.prefix}"

    def path(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def mcp_path(self, building: str) -> str:
        return f"{self.prefix}/{building}/mcp"

    def mcp(self, building: str) -> str:
        """The URL of a building's MCP endpoint: the resource that a token is for."""
        return f"{self.origin}{self.mcp_path(building)}"

    def resource_path(self, building: str) -> str:
        return f"/.well-known/oauth-protected-resource{self.mcp_path(building)}"

    def is_resource(self, text: str, building: str) -> bool:
        """Whether a resource parameter names the building's MCP endpoint, with or without a slash at its end."""
        return text.rstrip("/") == self.mcp(building)


@dataclass(frozen=True)
class Connectable:
    """A building that clients can be connected to. A key opens it if it has one of `scopes`; any key does if there are none.

    `holdings` is what its tools make that goes on after their calls.
    """

    name: str
    title: str
    mcp_path: str
    scopes: frozenset[str]
    holdings: Holdings | None = None

    def is_opened_by(self, scope: str) -> bool:
        """Whether a key of this scope opens one of its tools that need a key."""
        return not self.scopes or scope in self.scopes


@dataclass(frozen=True)
class ConnectRequest(Consent):
    """A checked authorization request, which waits for the answer of a key's holder. `asked_at` is a POSIX time."""

    state: str | None
    asked_at: float

    @property
    def is_local(self) -> bool:
        return is_local(self.redirect_uri)

    @property
    def described_at(self) -> str | None:
        """The host of the client's document; None for a client that registered, whose name nobody vouches for."""
        return None if self.client_id.startswith(START) else urlsplit(self.client_id).netloc


class Provider:
    """The methods of the SDK's OAuthAuthorizationServerProvider that its handlers for registration, authorization and tokens call.

    `buildings` are those that can be connected to, by name; it changes when one is opened late. Without `documents`, every client has
    to register.
    """

    def __init__(
        self,
        addresses: ConnectUrls,
        buildings: Mapping[str, Connectable],
        connected: ConnectedClients,
        documents: ClientDocuments | None,
        *,
        now: Callable[[], datetime],
        entropy: Entropy,
    ) -> None:
        self.addresses = addresses
        self.buildings = buildings
        self.connected = connected
        self.documents = documents
        self._now = now
        self._entropy = entropy

    async def client(self, client_id: str) -> Client | None:
        """The client with this id; None if it did not register here. Raises ClientRefused if its document cannot be used."""
        if client_id.startswith("https://"):
            return await self.documents.client(client_id) if self.documents else None
        return registered_client(client_id, await self.connected.secret())

    async def get_client(self, client_id: str) -> Client | None:
        try:
            return await self.client(client_id)
        except ClientRefused:
            return None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Turn the registration into its answer: the client as it is here. RegistrationError if its redirect URIs are refused."""
        uris = [str(uri) for uri in client_info.redirect_uris or ()]
        if refusal := refusal_of(uris):
            raise RegistrationError("invalid_redirect_uri", refusal)
        name = shown_name(client_info.client_name)
        client = client_of(registered_id(name, uris, await self.connected.secret()), name, uris)
        client.scope = " ".join([*self.buildings, OFFLINE])
        client.client_id_issued_at = client_info.client_id_issued_at
        for member in OAuthClientInformationFull.model_fields:
            setattr(client_info, member, getattr(client, member))

    async def authorize(self, client: Client, params: AuthorizationParams) -> str:
        """The address of the consent page for the request. Raises AuthorizeError."""
        building = next((name for name in self.buildings if self.addresses.is_resource(params.resource or "", name)), None)
        if building is None:
            known = " ".join(map(self.addresses.mcp, self.buildings))
            raise AuthorizeError("invalid_target", f"send the parameter resource with the address of an MCP server: one of {known}")
        if not CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", "code_challenge is not a SHA-256 digest in base64url")
        request = ConnectRequest(
            client_id=client.client_id,
            client_name=client.client_name or "",
            building=building,
            code_challenge=params.code_challenge,
            redirect_uri=str(params.redirect_uri),
            state=params.state,
            asked_at=self._now().timestamp(),
        )
        data = json.dumps(asdict(request), separators=(",", ":")).encode()
        sealed = urlsafe_b64encode(seal(data, await self.connected.secret(), entropy=self._entropy, context=SEALED)).decode()
        if len(sealed) > LONGEST_REQUEST:
            raise AuthorizeError("invalid_request", "the request is too long; send a shorter state")
        return f"{self.addresses.issuer}/consent?{urlencode({'request': sealed})}"

    async def opened(self, sealed: str) -> ConnectRequest:
        """The request in the address of a consent page. Problem 400 if it is over, or was not sealed here."""
        try:
            data = unseal(urlsafe_b64decode(sealed), await self.connected.secret(), context=SEALED)
        except ValueError:  # no base64, or too short for a seal
            data = None
        request = ConnectRequest(**json.loads(data)) if data else None
        is_over = request is None or abs(self._now().timestamp() - request.asked_at) >= REQUEST_TERM.total_seconds()
        if request is None or is_over or request.building not in self.buildings:
            raise Problem(400, "connect_request_over", "This request to connect is over; start again in your client.")
        return request

    async def load_authorization_code(self, client: Client, authorization_code: str) -> AuthorizationCode | None:
        """A code that was issued to the client, also if it was used or has expired: the exchange decides that."""
        issued = await self._issued(client, authorization_code, "code")
        if issued is None:
            return None
        return AuthorizationCode.model_validate(
            {
                "code": authorization_code,
                "client_id": issued.client_id,
                "scopes": [issued.building],
                "expires_at": inf,
                "code_challenge": issued.code_challenge,
                "redirect_uri": issued.redirect_uri,
                "redirect_uri_provided_explicitly": True,
            }
        )

    async def exchange_authorization_code(self, client: Client, authorization_code: AuthorizationCode) -> OAuthToken:
        return await self._exchanged(authorization_code.code, "code")

    async def load_refresh_token(self, client: Client, refresh_token: str) -> RefreshToken | None:
        issued = await self._issued(client, refresh_token, "refresh")
        if issued is None:
            return None
        return RefreshToken(token=refresh_token, client_id=issued.client_id, scopes=[issued.building, OFFLINE])

    async def exchange_refresh_token(self, client: Client, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        return await self._exchanged(refresh_token.token, "refresh")

    async def _issued(self, client: Client, token: str, kind: Kind) -> Issued | None:
        """What a code or refresh token was issued for; None if it is unknown, or another client's."""
        issued = await self.connected.issued(token, kind)
        return issued if issued is not None and issued.client_id == client.client_id else None

    async def _exchanged(self, token: str, kind: Kind) -> OAuthToken:
        pair = await self.connected.exchange(token, kind)
        if pair is None:
            raise TokenError("invalid_grant", USED_UP)
        scope = f"{pair.building} {OFFLINE}"
        return OAuthToken(access_token=pair.access, refresh_token=pair.refresh, expires_in=pair.seconds, scope=scope)
