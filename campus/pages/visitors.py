"""The visitor of a page: by which key it may call tools, and what the start page shows of each building."""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request

from campus.caller import Caller, Credential, Key
from campus.catalog.server import OpenBuilding
from campus.keys.keyring import KeyRing
from campus.keys.sessions import Sessions
from campus.layout.forms import Cookies
from campus.layout.renderer import SIGNED_IN
from campus.paywall.admission import ADMISSION, ALL, SIGNED_IN_KEY, Paywall, bearer
from campus.site import Site
from twins import Problem

log = logging.getLogger(__name__)
ABSENT = Credential("absent")


@dataclass(frozen=True)
class Visitors:
    """What pages ask about their visitors. `buildings` and `sites` are those that are open, by name."""

    paywall: Paywall
    keys: KeyRing
    sessions: Sessions
    cookies: Cookies
    buildings: MutableMapping[str, OpenBuilding]
    sites: Mapping[str, Site[Any, Any]]

    async def credential(self, request: Request) -> Credential:
        """The key of the request's Authorization header, else the one that the visitor signed in with."""
        request.scope[SIGNED_IN] = True
        if (found := request.scope.get(SIGNED_IN_KEY)) is None:
            if (token := bearer(request.scope)) is not None:
                found = await self.keys.find(token)
            elif session_id := request.cookies.get(self.cookies.session):
                found = await self.sessions.find(session_id)
            else:
                found = ABSENT
            request.scope[SIGNED_IN_KEY] = found
        assert isinstance(found, Credential)
        return found

    async def caller(self, building: str, request: Request) -> Caller:
        """The visitor as a caller of the building's tools; `.key` is set only if it is valid for the building."""
        credential = await self.credential(request)
        key = credential.key if credential.state == "valid" else None
        covers = key is not None and key.scope in (self.buildings[building].scope, ALL)
        return Caller(key if covers else None, None, "http", _address(request))

    async def admit(self, building: str, request: Request, tool: str) -> Caller:
        """The visitor as the caller of one tool. Problem 402 or 403, as the tool itself would refuse; 404 if it is hidden."""
        offer = self.buildings[building].offers.get(tool)
        if offer is None:
            raise Problem(404, "not_found", f"the tool {tool} is not available here")
        await self.credential(request)
        scope = {name: value for name, value in request.scope.items() if name != ADMISSION}
        return (await self.paywall.admit(offer, scope, frame="http")).caller

    async def usage(self, key: Key) -> dict[str, str]:
        """What a key uses of each building that it opens, in a few words."""
        found = {}
        for name, building in self.buildings.items():
            if (usage := building.loaded.building.usage) is not None and key.scope in (building.scope, ALL):
                found[name] = await usage(self.sites[name], key)
        return found

    async def highlights(self) -> Sequence[Markup]:
        """What the buildings show of themselves on the start page. One that fails is logged and left out."""
        found: list[Markup] = []
        for name, building in self.buildings.items():
            if (highlight := building.loaded.building.highlight) is None:
                continue
            try:
                found.append(escape(await highlight(self.sites[name])))
            except Problem:
                continue  # such as no list yet
            except Exception:  # a building's code may raise anything; the start page shows the others
                log.exception("highlight failed", extra={"building": name})
        return [part for part in found if part]


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
