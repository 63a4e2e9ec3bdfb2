"""The pages of an authorization request: one that asks a key's holder whether a client may use the key, and one for errors.

There is no session and no remembered consent: the key is sent with each consent, in the body of a form.
"""

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler, AuthorizationRequest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.addresses import network_of
from campus.directory import Directory
from campus.errors import KeyRefused
from campus.features.connect.clients import ClientRefused, is_local
from campus.features.connect.provider import ConnectRequest, Provider
from campus.features.connect.server import described, fault_in, repeated
from campus.keys.keyring import KeyRing
from campus.keys.sign_ins import WHY_NOT, SignInLimit
from campus.layout.renderer import CONTENT_POLICY, Pages
from campus.shares import TokenBuckets
from twins import Problem

FETCHES_PER_MINUTE = 10
POLICY = CONTENT_POLICY.replace(" form-action 'self';", "")
"""Without form-action: browsers hold every redirect after a form to it, and the last one leads to the client."""
log = logging.getLogger(__name__)


class ConsentPages:
    def __init__(
        self,
        provider: Provider,
        pages: Pages,
        directory: Directory,
        keys: KeyRing,
        *,
        sign_ins: SignInLimit,
        now: Callable[[], datetime],
    ) -> None:
        self._provider = provider
        self._pages = pages
        self._directory = directory
        self._keys = keys
        self._sign_ins = sign_ins
        self._now = now
        self._fetches = TokenBuckets(FETCHES_PER_MINUTE)
        self._authorization = AuthorizationHandler(cast(Any, provider))  # it calls some methods of the SDK's protocol only

    async def authorize(self, request: Request) -> Response:
        """Check an authorization request, and lead the browser to the consent page.

        An error is sent to a program on the user's machine at once, and to a client elsewhere only if the user follows a link: anybody
        may register a client, and could otherwise lead people from this address to any page.
        """
        if name := repeated(name for name, _ in request.query_params.multi_items()):
            raise _invalid(f"The parameter {name} was sent more than once.")
        await self._check_client(request)
        answer = await self._authorization.handle(request)
        location = answer.headers.get("location", "")
        fault = fault_in(AuthorizationRequest.model_validate, request.query_params)
        if not location:
            raise _invalid(f"{fault or json.loads(bytes(answer.body))['error_description']}.")
        if location.startswith(f"{self._provider.addresses.issuer}/consent?"):
            return answer
        location = self._from_here(described(location, fault) if fault else location)
        if is_local(location):
            return _leave(location, status=302)
        parts = urlsplit(location)
        error = {name: values[-1] for name, values in parse_qs(parts.query).items() if name in ("error", "error_description")}
        description = error.get("error_description", error["error"])
        return self._page("return.html", request, 400, data=error, description=description, location=location, host=parts.netloc)

    async def show(self, request: Request) -> Response:
        return self._consent_page(request, await self._provider.opened(request.query_params.get("request", "")))

    async def answer(self, request: Request) -> Response:
        """Send the client a code if the form has a key that opens the building, or the refusal of the key's holder."""
        form = await self._pages.layout.checked_form(request)
        asked = await self._provider.opened(request.query_params.get("request", ""))
        if form.get("answer") != "allow":
            return self._return(asked, error="access_denied", error_description="The holder of the key said no.")
        found = await self._keys.tokens.find(form.get("key", "").strip())
        self._sign_ins.check_key(request, found)
        if found.state != "valid" or found.key is None:
            return self._consent_page(request, asked, WHY_NOT[found.state], status=403)
        building = self._provider.buildings[asked.building]
        if not building.is_opened_by(found.key.scope):
            needed = " or ".join(sorted(building.scopes))
            why = f"This key has scope {found.key.scope}, which does not open {building.title}; send one of scope {needed}."
            return self._consent_page(request, asked, why, status=403)
        try:
            code = await self._provider.connected.agree(found.key, asked)
        except KeyRefused as refused:
            return self._consent_page(request, asked, f"This key lets no client in: {refused}.", status=403)
        log.info("client let in", extra={"key_id": found.key.id, "building": asked.building, "returns_to": asked.returns_to})
        return self._return(asked, code=code)

    async def _check_client(self, request: Request) -> None:
        """Problem 400 with the reason for a client that cannot be let in; its document is fetched if it has one."""
        client_id = request.query_params.get("client_id", "")
        documents = self._provider.documents
        if documents and client_id.startswith("https://") and not documents.is_known(client_id):
            address = network_of(request.client.host if request.client else "")
            if not self._fetches.take(address, self._now()):
                detail = "Too many documents of clients were asked for from your address; try again in a minute."
                raise Problem(429, "too_many_sign_ins", detail, headers={"Retry-After": "60"})
        try:
            client = await self._provider.client(client_id)
        except ClientRefused as refused:
            raise _invalid(f"This client cannot be let in: {refused}.") from None
        if client is None:
            raise _invalid("This client is not registered here; remove the connection in your client, and connect again.")

    def _consent_page(self, request: Request, asked: ConnectRequest, why: str = "", *, status: int = 200) -> Response:
        building = self._provider.buildings[asked.building]
        data = {"client": asked.client_name, "building": asked.building, "returns_to": asked.returns_to, "why": why}
        return self._page(
            "consent.html",
            request,
            status,
            data=data,
            asked=asked,
            title=building.title,
            holdings=building.holdings,
            keys_url=f"{self._directory.url}{self._pages.layout.place('sign_in')}",
            why=why,
            action=f"{self._provider.addresses.path('consent')}?{urlencode({'request': request.query_params.get('request', '')})}",
            products=[product for product in self._directory.products if building.is_opened_by(product.scope)],
        )

    def _page(self, template: str, request: Request, status: int, **variables: Any) -> Response:
        response = self._pages.page(template, request, status=status, headers={"X-Frame-Options": "DENY"}, **variables)
        response.headers["Cache-Control"] = "no-store"
        if "content-security-policy" in response.headers:
            response.headers["Content-Security-Policy"] = POLICY
        return response

    def _return(self, asked: ConnectRequest, **answer: str) -> Response:
        if asked.state is not None:
            answer["state"] = asked.state
        joined = "&" if urlsplit(asked.redirect_uri).query else "?"
        return _leave(self._from_here(f"{asked.redirect_uri.rstrip('?')}{joined}{urlencode(answer)}"), status=303)

    def _from_here(self, location: str) -> str:
        """The address with the issuer's name, so that a client which uses several can tell whose answer it is (RFC 9207)."""
        return f"{location}&{urlencode({'iss': self._provider.addresses.issuer})}"


def _leave(location: str, *, status: int) -> Response:
    return RedirectResponse(location, status, headers={"Cache-Control": "no-store"})


def _invalid(detail: str) -> Problem:
    return Problem(400, "invalid_authorization", detail)
