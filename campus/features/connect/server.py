"""The endpoints that OAuth clients call themselves: metadata, registration, tokens and revocation.

The handlers are the mcp SDK's. What they leave out is here: plain words for what cannot be read, resource indicators at the token
endpoint (RFC 8707), the length of a PKCE verifier, repeated parameters, and revocation by public clients, which have no secret to send.
Every client is public.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import AuthorizationCodeRequest, RefreshTokenRequest, TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from campus.features.connect.clients import Client, client_of, registered_client
from campus.features.connect.provider import OFFLINE, VERIFIER, Provider
from campus.keys.tokens import Kind
from campus.layout.forms import FORM_TYPE

ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}
"""The last part of each endpoint's path, by its name in the metadata."""
GRANTS = ("authorization_code", "refresh_token")
LONGEST_BODY, MOST_PARAMETERS = 16_384, 50
WRONG_FORM = f"send the parameters as {FORM_TYPE}, each once, in at most {LONGEST_BODY:,} bytes"
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
MAY_REPEAT = "resource"
WORDS = {
    "is missing": ("missing",),
    "must be a text": ("string_type",),
    "must be a list": ("list_type",),
    "must not be empty": ("too_short",),
    "must be a URL, such as https://example.com": ("url_type", "url_parsing", "url_scheme", "url_syntax_violation", "url_too_long"),
}
"""By pydantic's types of errors. None repeats what was sent."""


class PublicClients(ClientAuthenticator):
    """Recognises the client of a request by its id alone: a code or token is bound to the id, so no document is fetched here."""

    def __init__(self, provider: Provider) -> None:
        self._connected = provider.connected

    async def authenticate_request(self, request: Request) -> Client:
        """The client. Raises AuthenticationError if the id is missing or was not made here."""
        client_id = str((await request.form()).get("client_id", ""))
        if client_id.startswith("https://"):
            return client_of(client_id, "", [])
        client = registered_client(client_id, await self._connected.secret())
        if client is None:
            raise AuthenticationError("the client_id is missing or unknown; register again")
        return client


class ClientEndpoints:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._authenticator = PublicClients(provider)
        asked = cast(Any, provider)  # each handler calls some methods of the SDK's protocol only
        self._registration = RegistrationHandler(asked, ClientRegistrationOptions(enabled=True))
        self._token = TokenHandler(asked, self._authenticator)

    async def metadata(self, request: Request) -> Response:
        issuer = self._provider.addresses.issuer
        members = {
            "issuer": issuer,
            **{f"{name}_endpoint": f"{issuer}/{path}" for name, path in ENDPOINTS.items()},
            "scopes_supported": [*self._provider.buildings, OFFLINE],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANTS),
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": self._provider.documents is not None,
            "authorization_response_iss_parameter_supported": True,
        }
        return await MetadataHandler(OAuthMetadata.model_validate(members)).handle(request)

    async def resource_metadata(self, request: Request, building: str) -> Response:
        members = {
            "resource": self._provider.addresses.mcp(building),
            "authorization_servers": [self._provider.addresses.issuer],
            "scopes_supported": [building],
            "resource_name": self._provider.buildings[building].title,
        }
        return await ProtectedResourceMetadataHandler(ProtectedResourceMetadata.model_validate(members)).handle(request)

    async def register(self, request: Request) -> Response:
        """Registration (RFC 7591): answers a client id. Nothing is stored."""
        if len(await request.body()) > LONGEST_BODY:
            return oauth_error("invalid_client_metadata", f"the registration has more than {LONGEST_BODY:,} bytes")
        answer = await self._registration.handle(request)
        if answer.status_code == 400 and (fault := fault_in(OAuthClientMetadata.model_validate_json, await request.body())):
            return oauth_error("invalid_client_metadata", fault)
        answer.headers.update(NO_STORE)
        return answer

    async def token(self, request: Request) -> Response:
        form = await _form(request)
        if form is None:
            return oauth_error("invalid_request", WRONG_FORM)
        if "grant_type" in form and form["grant_type"] not in GRANTS:
            return oauth_error("unsupported_grant_type", f"grant_type must be {' or '.join(GRANTS)}")
        if "code_verifier" in form and not VERIFIER.fullmatch(str(form["code_verifier"])):
            return oauth_error("invalid_grant", "code_verifier is not 43 to 128 unreserved characters")
        kind: Kind = "refresh" if form.get("grant_type") == "refresh_token" else "code"
        issued = await self._provider.connected.issued(str(form.get("refresh_token" if kind == "refresh" else "code", "")), kind)
        asked = [str(each) for each in form.getlist("resource")]
        if issued is not None and not all(self._provider.addresses.is_resource(each, issued.building) for each in asked):
            return oauth_error("invalid_target", "the code or token was issued for another resource")
        answer: Response = await self._token.handle(request)
        asked_for = RefreshTokenRequest if kind == "refresh" else AuthorizationCodeRequest
        if answer.status_code == 400 and (fault := fault_in(asked_for.model_validate, dict(form))):
            return oauth_error("invalid_request", fault)
        return answer

    async def revoke(self, request: Request) -> Response:
        """Revocation (RFC 7009): ends the client that a token was issued to, with all its tokens."""
        form = await _form(request)
        if form is None or not form.get("token"):
            return oauth_error("invalid_request", f"{WRONG_FORM}: token and client_id")
        try:
            client = await self._authenticator.authenticate_request(request)
        except AuthenticationError as error:
            return oauth_error("invalid_client", error.message, status=401)
        await self._provider.connected.revoke(str(form["token"]), client_id=client.client_id)
        return Response(status_code=200, headers=NO_STORE)


def oauth_error(code: str, description: str, *, status: int = 400) -> Response:
    return JSONResponse({"error": code, "error_description": description}, status, headers=NO_STORE)


def repeated(names: Iterable[str]) -> str | None:
    """The first parameter that was sent more than once, which RFC 6749 forbids; `resource` may be repeated."""
    return next((name for name, times in Counter(names).items() if times > 1 and name != MAY_REPEAT), None)


async def _form(request: Request) -> FormData | None:
    """The parameters of a request; None if they are not sent as a form, are too many or too long, or one is sent twice."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return None
    body = await request.body()  # checked before it is parsed: a megabyte of separators would stop the event loop for seconds
    if len(body) > LONGEST_BODY or body.count(b"&") >= MOST_PARAMETERS:
        return None
    form = await request.form()
    return None if repeated(name for name, _ in form.multi_items()) else form


def described(location: str, description: str) -> str:
    """The address of an OAuth error with another description."""
    parts = urlsplit(location)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "error_description"]
    return parts._replace(query=urlencode([*query, ("error_description", description)])).geturl()


def fault_in(read: Callable[[Any], object], sent: object) -> str | None:
    """What is wrong with what was sent, in plain words; None if it can be read."""
    try:
        read(sent)
    except ValidationError as error:
        # of the errors at one place the last counts: of a member that may be one of some words or any text
        found = {_place(one): _words(one) for one in error.errors(include_url=False, include_input=False)}
        return "; ".join(f"{place} {words}" if place else "send a JSON object" for place, words in found.items())
    return None


def _place(error: ErrorDetails) -> str:
    """The parameter, and the number of the item if it is a list."""
    return ".".join(str(part) for number, part in enumerate(error["loc"]) if number == 0 or isinstance(part, int))


def _words(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error['ctx']['expected']}"
    return next((words for words, kinds in WORDS.items() if error["type"] in kinds), "is not valid")
