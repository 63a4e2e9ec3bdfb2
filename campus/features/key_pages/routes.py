"""The page of a visitor's key: /keys signs in and out, and shows what the key opens and owns, until when, and how to renew it.

The key itself is sent once, in the body of a form, and is in no address, page, log or cookie.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from campus.building import Building
from campus.caller import Key
from campus.catalog.plan import Plan
from campus.directory import ProductEntry
from campus.features.connect.let_in import clients_of, disconnect
from campus.features.credits.accounts import Accounts, as_csv
from campus.features.key_pages.holdings import owned_by
from campus.features.usage.counts import KeyUsage, UsageRow
from campus.http.service_routes import own_page
from campus.http_parts import HttpPart
from campus.keys.sign_ins import WHY_NOT
from campus.layout.forms import NOT_STORED, local_path, see_other
from campus.layout.renderer import Link
from campus.paywall.admission import ALL
from twins import RouteEntry

PATH = "/keys"
STATEMENT = f"{PATH}/statement.csv"
ENDS_SOON = 7  # Days.
USAGE_DAYS = 7  # How many days of its calls are shown, today included.


class KeyPages(HttpPart):
    places: Mapping[str, str] = {"sign_in": PATH}
    navigation = (Link(PATH, "Sign in", "Your key", place=3),)
    notices = True

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        return [
            own_page(["GET"], PATH, self.show),
            own_page(["GET"], STATEMENT, self.statement),
            own_page(["POST"], PATH, self.sign_in),
            own_page(["POST"], f"{PATH}/sign-out", self.sign_out),
            own_page(["POST"], f"{PATH}/disconnect", self.disconnect),
            own_page(["POST"], f"{PATH}/holdings", self.change),
        ]

    async def show(self, request: Request) -> Response:
        credential = await self.visitors.credential(request)
        if credential.valid_key is not None:
            return await self._key_page(request, credential.valid_key)
        ended = credential.key if credential.state == "expired" else None
        why = "" if ended else WHY_NOT.get(credential.state, "")
        return self._sign_in_page(request, why, next_path=local_path(request.query_params.get("next", "")), ended=ended)

    async def sign_in(self, request: Request) -> Response:
        """Open a session for the key in the form. The session's id is new, whatever cookie was sent: nobody can choose it beforehand."""
        form = await self.pages.layout.checked_form(request, repeats=True)
        now = self.campus.core.now()
        next_path = local_path(form.get("next", ""))
        found = await self.visitors.keys.tokens.find(form.get("key", "").strip())
        self.campus.sign_ins.check_key(request, found)
        if (key := found.renewable_key) is None:
            return self._sign_in_page(request, WHY_NOT[found.state], next_path=next_path, status=403)
        next_path = next_path if found.state == "valid" else PATH
        cookies = self.pages.layout.cookies
        opened = await self.campus.core.sessions.open(key, instead_of=cookies.sent(request, cookies.session))
        response = see_other(next_path or PATH)
        cookies.put(response, cookies.session, opened.id, seconds=int((opened.ends_at - now).total_seconds()))
        return response

    async def sign_out(self, request: Request) -> Response:
        cookies = self.pages.layout.cookies
        await self.pages.layout.checked_form(request, repeats=True)
        session = cookies.sent(request, cookies.session) or ""
        await self.campus.core.sessions.close(session)
        await self.pages.layout.kept.forget(session)
        response = see_other(PATH)
        cookies.remove(response, cookies.session)
        return response

    async def disconnect(self, request: Request) -> Response:
        form = await self.pages.layout.checked_form(request)
        if (key := (await self.visitors.credential(request)).valid_key) is not None:
            core, connect = self.campus.core, self.campus.feature("connect")
            ended = await disconnect(core.storage, form.get("client", ""), lineage=key.lineage, now=core.now())
            core.keys.makers.forget()
            if connect is not None:
                connect.tokens.forget(ended)
        return see_other(PATH)

    async def change(self, request: Request) -> Response:
        form = await self.pages.layout.checked_form(request)
        if (key := (await self.visitors.credential(request)).valid_key) is not None:
            place = form.get("building"), form.get("id")
            owned = await owned_by(key, self.visitors)
            call = next((one.call(form.get("action", "")) for one in owned if (one.building, one.holding.id) == place), None)
            if call is not None:
                await self.visitors.call(str(place[0]), request, call.tool, call.arguments)
        return see_other(PATH)

    def _sign_in_page(self, request: Request, why: str, *, next_path: str, status: int = 200, ended: Key | None = None) -> Response:
        return self.pages.page(
            "sign_in.html",
            request,
            data={"ok": True, "signed_in": False},
            status=status,
            why=why,
            next_path=next_path,
            products=self.directory.products,
            ended=ended,
            renewals=self._renewals(ended) if ended else [],
        )

    def _renewals(self, key: Key) -> Sequence[ProductEntry]:
        return [product for product in self.directory.products if (product.name, product.scope) == (key.product, key.scope)]

    async def statement(self, request: Request) -> Response:
        """What changed the visitor's balance, for a spreadsheet."""
        credential = await self.visitors.credential(request)
        if (key := credential.valid_key) is None:
            return self._sign_in_page(request, WHY_NOT.get(credential.state, ""), next_path=STATEMENT, status=403)
        accounts: Accounts = self.campus.feature("credits")
        headers = {**NOT_STORED, "Content-Disposition": 'attachment; filename="statement.csv"'}
        return Response(as_csv(await accounts.statement(key.lineage)), media_type="text/csv", headers=headers)

    async def _called(self, key: Key) -> Sequence[UsageRow]:
        counts: KeyUsage | None = self.campus.feature("usage")
        return () if counts is None else await counts.read(lineage=key.lineage, days=USAGE_DAYS)

    async def _key_page(self, request: Request, key: Key) -> Response:
        opens = [one for one in self.directory.buildings() if one.key_scope and key.scope in (one.key_scope, ALL)]
        usage = await self.visitors.usage(key)
        clients = await clients_of(self.campus.core.storage, key.lineage, now=self.campus.core.now())
        calls = await self._called(key)
        accounts: Accounts = self.campus.feature("credits")
        standing = await accounts.standing(key)
        owned = await owned_by(key, self.visitors)
        about = {"id": key.id, "product": key.product, "scope": key.scope, "issued_at": key.issued_at, "expires_at": key.expires_at}
        return self.pages.page(
            "key.html",
            request,
            data={
                **{"ok": True, "signed_in": True, "key": about, "opens": [one.name for one in opens], "usage": usage, "clients": clients},
                "holdings": [one.view for one in owned],
                "calls": [one.model_dump(exclude={"lineage"}) for one in calls],
                "allowance": standing and standing.allowance,
                "credits": standing and standing.balance,
            },
            standing=standing,
            key=key,
            opens=opens,
            used=[(entry.title, usage[entry.name]) for entry in self.directory.buildings() if entry.name in usage],
            clients=clients,
            calls=calls,
            owned=owned,
            days_left=(days_left := ceil((key.expires_at - self.campus.core.now()) / timedelta(days=1))),
            badge_of=standing_of(days_left, standing.opens if standing else None),
            ends_soon=days_left <= ENDS_SOON,
            renewals=self._renewals(key),
            seller=self.directory.seller(),
        )


def standing_of(days_left: int, opens: bool | None) -> tuple[str, str]:
    """What the page of a valid key says first, and its tone; `opens` is whether anything is left for calls, None without a bound."""
    if opens is False:
        return "no calls left", "warn"
    return ("ends soon", "warn") if days_left <= ENDS_SOON else ("valid", "good")


building = Building(http=KeyPages)
