"""Whether a key opens a tool: the decision that both transports, HTTP and MCP, ask for before a tool runs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from starlette.types import Scope

from campus.caller import ABSENT, Caller, Credential, Frame, Key, Way
from campus.context import context_of
from campus.directory import ProductEntry
from campus.keys.token_cache import TokenCache
from campus.observability import utc_text
from campus.pricing import Offer
from campus.steps import Unlock, Unlocks
from twins import Problem

ALL = "all"
REALM = 'Bearer realm="campus"'
USELESS = frozenset(("unknown", "expired", "revoked"))  # States of a credential that the answer names even if the tool is free.
NO_HEADERS = "If you cannot set headers, ask your user to add the key to this server's configuration."
"""For an agent over MCP: its host sends the headers, and only its user changes the host's configuration."""
UNREADABLE = Credential("absent")
"""The credential of a request whose Authorization header is not of the scheme Bearer, such as a key alone."""
EMPTY = Credential("unknown")  # The credential of a request whose Authorization header ends after Bearer.
CACHED_CALLERS = 4_096  # Callers that are kept: most calls follow another of the same caller.


class Refusals:
    """What a caller is told whose call no key opens. `unlocks` are asked for other ways than keys; see campus.steps."""

    def __init__(self, products: Sequence[ProductEntry], *, guide: str | None = None, unlocks: Sequence[Unlocks] = ()) -> None:
        self._products = products
        self.unlocks = unlocks
        self._guide = guide
        self._ways_cache: dict[tuple[str, str, Way], tuple[str, list[dict[str, Any]]]] = {}  # as long as there are tools

    def examples(self, offer: Offer) -> Iterator[Problem]:
        """How calls of the tool over HTTP are refused: one without a key, and one with a key of another scope, if one is sold."""
        if not offer.access.is_free:
            yield self._refusal(offer, ABSENT, "http")
        other = next((one.scope for one in self._products if one.scope not in (offer.scope, ALL)), None)
        if other and (offer.access.key == "optional" or (offer.access.key != "never" and not offer.access.is_free)):
            yield self._wrong_scope(offer, other, "http")

    def _refusal(self, offer: Offer, credential: Credential, way: Way) -> Problem:
        code, why = self._reason(offer, credential)
        challenge = REALM if code == "access_required" else f'{REALM}, error="invalid_token"'
        ways, unlock = self.ways_in(offer, way)
        return Problem(402, code, f"{why} {ways}", headers={"WWW-Authenticate": challenge}, unlock=unlock)

    def _reason(self, offer: Offer, credential: Credential) -> tuple[str, str]:
        ended = utc_text(credential.key.expires_at) if credential.key else ""
        reasons = {
            "unknown": "The key in this call is unknown; check that it was copied completely.",
            "expired": f"The key in this call expired on {ended}.",
            "revoked": "The key in this call was revoked.",
        }
        if credential is EMPTY:
            return "key_unknown", "The Authorization header of this call has no key after Bearer; is the variable that holds it empty?"
        if credential.state in reasons:
            return f"key_{credential.state}", reasons[credential.state]
        if credential is UNREADABLE:
            return (
                "access_required",
                f"{offer.tool} is not free, and this call's Authorization header is not of the form 'Bearer KEY'.",
            )
        return "access_required", f"{offer.tool} is not free."

    def _wrong_scope(self, offer: Offer, scope: str, way: Way) -> Problem:
        ways, unlock = self.ways_in(offer, way)
        return Problem(
            403,
            "insufficient_scope",
            f"The key in this call has scope {scope}, but {offer.tool} needs a key of scope {offer.scope}. {ways}",
            headers={"WWW-Authenticate": f'{REALM}, error="insufficient_scope", scope="{offer.scope}"'},
            unlock=unlock,
        )

    def ways_in(self, offer: Offer, way: Way) -> tuple[str, list[dict[str, Any]]]:
        found = self._ways_cache.get((offer.building, offer.tool, way))
        if found is None:
            others = self.other_ways(offer, way)
            data = [*(one.to_unlock() for one in self.opening(offer)), *(dict(one.data) for one in others if one.data)]
            found = self._ways_cache[offer.building, offer.tool, way] = self._ways(offer, way, others), data
        return found

    def other_ways(self, offer: Offer, way: Way) -> list[Unlock]:
        return [found for unlocks in self.unlocks if (found := unlocks(offer, way)) is not None]

    def _ways(self, offer: Offer, way: Way, others: Sequence[Unlock]) -> str:
        ways = [one for one in (self._by_key(offer, way), *(other.sentence for other in others)) if one]
        if not ways:
            elsewhere = way == "delegate" and self.unlocks
            sold_at = "at this server's address without /connect" if elsewhere else "and payments are not available here; ask the operator"
            ways = [f"It is sold per call only, {sold_at}."]
        ways += [offer.access.advice] if offer.access.advice and way != "delegate" else []
        return " ".join([*ways, self._guide] if way == "mcp" and self._guide else ways)

    def _by_key(self, offer: Offer, way: Way) -> str:
        if offer.access.key == "never":
            return ""
        keys = list(map(str, self.opening(offer)))
        if not keys:
            return f"No key of scope {offer.scope} is sold at the moment; ask the operator."
        if way == "delegate":
            return f"Ask your user to connect again with a key of scope {offer.scope} or {ALL}: {'; '.join(keys)}."
        header = f"Send a key of scope {offer.scope} or {ALL} in the header 'Authorization: Bearer KEY'."
        asked = f" {NO_HEADERS}" if way == "mcp" else ""
        return f"{header}{asked} Keys that unlock it: {'; '.join(keys)}."

    def opening(self, offer: Offer) -> list[ProductEntry]:
        if offer.access.key == "never":
            return []
        return [one for one in self._products if one.scope in (offer.scope, ALL)]


class Paywall(Refusals):
    """Admits calls by key, and refuses the others with the ways to unlock the tool.

    `guide` is a sentence that says over MCP where paying is explained.
    """

    def __init__(self, tokens: TokenCache, products: Sequence[ProductEntry], *, guide: str | None = None) -> None:
        super().__init__(products, guide=guide)
        self._tokens = tokens
        self._caller = lru_cache(maxsize=CACHED_CALLERS)(caller_with)

    async def admit(self, offer: Offer, scope: Scope, *, frame: Frame) -> Caller:
        """Authorize the request to call the tool, and store the caller in its context. Raises Problem 402 or 403.

        A call made inside an admitted one is not checked again: its caller is that of the outermost call.
        """
        context = context_of(scope)
        if context.caller is not None:
            return context.caller
        return self.judge(offer, scope, self.peek(scope) or await self.find(scope), frame=frame)

    def judge(self, offer: Offer, scope: Scope, credential: Credential, *, frame: Frame) -> Caller:
        """As `admit`, with a credential that is known."""
        context = context_of(scope)
        context.credential = credential
        way: Way = "delegate" if context.is_delegated else frame
        context.caller = caller = self._judge(offer, credential, frame=frame, way=way, address=(scope.get("client") or ("",))[0])
        return caller

    def peek(self, scope: Scope) -> Credential | None:
        """What the request's Authorization header, or its session, contains; None if only the database knows."""
        sent = authorization(scope)
        token = None if sent is None else bearer_token(sent)
        if token:
            return self._tokens.peek(token)
        if token is not None:
            return EMPTY
        credential = context_of(scope).credential or ABSENT
        return UNREADABLE if credential is ABSENT and sent is not None else credential

    async def find(self, scope: Scope) -> Credential:
        """As `peek`, from the database. Raises StorageUnavailable."""
        return await self._tokens.find(bearer(scope) or "")

    def _judge(self, offer: Offer, credential: Credential, *, frame: Frame, way: Way, address: str) -> Caller:
        if credential.state == "valid" and credential.key is not None and offer.access.key != "never":
            if credential.key.scope in (offer.scope, ALL):
                return self._caller(credential.key, frame, address, None, credential.client)
            if not offer.access.is_free or offer.access.key == "optional":
                raise self._wrong_scope(offer, credential.key.scope, way)
        if not offer.access.is_free:
            raise self._refusal(offer, credential, way)
        return self._caller(None, frame, address, f"key_{credential.state}" if credential.state in USELESS else None)


def caller_with(key: Key | None, frame: Frame, address: str, key_ignored: str | None, client: str | None = None) -> Caller:
    return Caller(key, None, frame, address, key_ignored=key_ignored, client=client)


def bearer(scope: Scope) -> str | None:
    sent = authorization(scope)
    return None if sent is None else bearer_token(sent)


def authorization(scope: Scope) -> bytes | None:
    for name, value in scope.get("headers", ()):
        if name == b"authorization":
            found: bytes = value
            return found
    return None


def bearer_token(sent: bytes) -> str | None:
    kind, _, token = sent.partition(b" ")
    return token.strip().decode("latin-1") if kind.lower() == b"bearer" else None
