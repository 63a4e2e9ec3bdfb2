"""The HTTP frame: the gate that twins asks before it calls a tool."""

import logging
from collections.abc import Mapping
from typing import Any

from campus.access import Offer
from campus.errors import StorageUnavailable
from campus.paywall import Paywall
from campus.problems import storage_unavailable
from campus.site import ROUTE, SITE, Site
from twins import Answer, Call, Gate

log = logging.getLogger(__name__)


def gate(site: Site[Any, Any], offers: Mapping[str, Offer], paywall: Paywall) -> Gate:
    """A gate for one building's tools: the caller is admitted before the arguments are read."""

    async def admitted(call: Call) -> Answer:
        scope = call.scope
        scope[SITE] = site
        scope[ROUTE] = call.operation.path
        try:
            admission = await paywall.admit(offers[call.operation.name], scope, frame="http")
            answer = await call.answer()
        except StorageUnavailable as error:
            log.warning("storage unavailable: %s", error, extra={"building": site.name, "request_id": scope.get("request_id")})
            raise storage_unavailable() from None
        if admission.key_ignored is None:
            return answer
        notice = f'299 campus "{admission.key_ignored}: the key was ignored, since this tool is free"'
        return answer.adding({"Warning": notice, "Vary": "Authorization"})

    return admitted
