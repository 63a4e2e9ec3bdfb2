"""The page of a visitor's key: /keys signs in and out, and shows what the key opens and owns, until when, and how to renew it.

The key itself is sent once, in the body of a form, and is in no address, page, log or cookie.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import ceil

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.caller import Key
from campus.directory import Directory
from campus.keys.connected_clients import ConnectedClients
from campus.keys.sessions import Sessions
from campus.keys.sign_ins import WHY_NOT, SignInLimit
from campus.keys.usage import KeyUsage
from campus.layout.forms import checked_form, local_path
from campus.layout.renderer import Pages
from campus.pages.holdings import owned_by
from campus.pages.visitors import Visitors
from campus.paywall.admission import ALL

PATH = "/keys"
USAGE_DAYS = 7
"""How many days of its calls are shown, today included."""


@dataclass(frozen=True)
class KeyPages:
    pages: Pages
    directory: Directory
    visitors: Visitors
    sessions: Sessions
    clients: ConnectedClients
    calls: KeyUsage
    limit: SignInLimit
    now: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        credential = await self.visitors.credential(request)
        if credential.state == "valid" and credential.key is not None:
            return await self._key_page(request, credential.key)
        why = WHY_NOT.get(credential.state, "")
        return self._sign_in_page(request, why, next_path=local_path(request.query_params.get("next", "")))

    async def sign_in(self, request: Request) -> Response:
        """Open a session for the key in the form. The session's id is new, whatever cookie was sent: nobody can choose it beforehand."""
        form = await checked_form(request, self.pages.layout.cookies)
        now = self.now()
        next_path = local_path(form.get("next", ""))
        found = await self.visitors.keys.tokens.find(form.get("key", "").strip())
        self.limit.check_key(request, found)
        if found.state != "valid" or found.key is None:
            return self._sign_in_page(request, WHY_NOT[found.state], next_path=next_path, status=403)
        cookies = self.pages.layout.cookies
        opened = await self.sessions.open(found.key, instead_of=cookies.sent(request, cookies.session))
        response = RedirectResponse(next_path or PATH, status_code=303, headers={"Cache-Control": "private, no-store"})
        cookies.put(response, cookies.session, opened.id, seconds=int((opened.ends_at - now).total_seconds()))
        cookies.remove(response, cookies.form)
        return response

    async def sign_out(self, request: Request) -> Response:
        cookies = self.pages.layout.cookies
        await checked_form(request, cookies)
        await self.sessions.close(cookies.sent(request, cookies.session) or "")
        response = RedirectResponse(PATH, status_code=303, headers={"Cache-Control": "private, no-store"})
        cookies.remove(response, cookies.session)
        return response

    async def disconnect(self, request: Request) -> Response:
        """End a client that a key of the visitor's lineage let in."""
        form = await checked_form(request, self.pages.layout.cookies)
        credential = await self.visitors.credential(request)
        if credential.state == "valid" and credential.key is not None:
            await self.clients.disconnect(form.get("client", ""), lineage=credential.key.lineage)
        return _back()

    async def change(self, request: Request) -> Response:
        """End or keep something that the visitor's key owns, by the building's own tool."""
        form = await checked_form(request, self.pages.layout.cookies)
        credential = await self.visitors.credential(request)
        if credential.state == "valid" and credential.key is not None:
            place = form.get("building"), form.get("id")
            owned = await owned_by(credential.key, self.visitors)
            call = next((one.call(form.get("action", "")) for one in owned if (one.building, one.holding.id) == place), None)
            if call is not None:
                await self.visitors.call(str(place[0]), request, call.tool, call.arguments)
        return _back()

    def _sign_in_page(self, request: Request, why: str, *, next_path: str, status: int = 200) -> Response:
        return self.pages.page(
            "sign_in.html",
            request,
            data={"ok": True, "signed_in": False},
            status=status,
            why=why,
            next_path=next_path,
            products=self.directory.products,
        )

    async def _key_page(self, request: Request, key: Key) -> Response:
        opens = [one for one in self.directory.buildings() if one.key_scope and key.scope in (one.key_scope, ALL)]
        usage = await self.visitors.usage(key)
        clients = await self.clients.of_lineage(key.lineage)
        calls = await self.calls.of_lineage(key.lineage, days=USAGE_DAYS)
        standing = await self.calls.standing(key) if self.calls.has_quota(key) else None
        owned = await owned_by(key, self.visitors)
        about = {"id": key.id, "product": key.product, "scope": key.scope, "issued_at": key.issued_at, "expires_at": key.expires_at}
        return self.pages.page(
            "key.html",
            request,
            data={
                **{"ok": True, "signed_in": True, "key": about, "opens": [one.name for one in opens], "usage": usage, "clients": clients},
                "holdings": [one.view for one in owned],
                "calls": [one.model_dump(exclude={"lineage"}) for one in calls],
                "quota": standing and {**asdict(standing.quota), "left": standing.left, "ends_at": standing.ends_at},
            },
            standing=standing,
            key=key,
            opens=opens,
            used=[(entry.title, usage[entry.name]) for entry in self.directory.buildings() if entry.name in usage],
            clients=clients,
            calls=calls,
            owned=owned,
            days_left=ceil((key.expires_at - self.now()) / timedelta(days=1)),
            renewals=[product for product in self.directory.products if (product.name, product.scope) == (key.product, key.scope)],
            seller=self.directory.seller(),
        )


def _back() -> Response:
    return RedirectResponse(PATH, status_code=303, headers={"Cache-Control": "private, no-store"})
