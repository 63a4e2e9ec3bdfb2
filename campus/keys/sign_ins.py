"""How often somebody may try to sign in with a key, or with the operator's password."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from starlette.requests import Request

from campus.addresses import LOOPBACK_PROXIES, network_of
from campus.caller import Credential
from campus.shares import TokenBuckets
from twins import Problem

ATTEMPTS_PER_MINUTE = 10  # Of one address, or with one key.
ATTEMPTS_IN_ALL = 60  # Of all addresses with nothing that is valid: at one listener, and for the operator as one account.
WHY_NOT = {
    "unknown": "This key is unknown; check that it was copied completely.",
    "expired": "This key has expired.",
    "revoked": "This key was revoked.",
}


@dataclass(frozen=True)
class SignInLimit:
    """How often an address may try to sign in at one listener, an IPv6 address with its networks, and how often all together."""

    now: Callable[[], datetime]
    attempts: TokenBuckets = field(default_factory=lambda: TokenBuckets(ATTEMPTS_PER_MINUTE))
    in_all: TokenBuckets = field(default_factory=lambda: TokenBuckets(ATTEMPTS_IN_ALL))

    def check(self, request: Request) -> None:
        """Count an attempt of the request's address. Problem 429 if there were too many."""
        address = request.client.host if request.client else ""
        self._count(self.attempts, network_of(address), "came from your address")
        if address not in LOOPBACK_PROXIES:  # who is on the machine is not shut out by those elsewhere
            self._count(self.in_all, "", "come from everywhere at the moment")

    def check_key(self, request: Request, found: Credential) -> None:
        """Count an attempt with a key: with a valid one for that key, so that nobody is shut out by who tries others at the same address.

        Problem 429 if there were too many.
        """
        if found.state == "valid" and found.key is not None:
            self._count(self.attempts, found.key.lineage, "were made with this key")
        else:
            self.check(request)

    def _count(self, attempts: TokenBuckets, name: str, which: str) -> None:
        now = self.now()
        if not attempts.take(name, now):
            seconds = attempts.seconds_left(name, now)
            detail = f"Too many attempts to sign in {which}; try again in {seconds} s."
            raise Problem(429, "too_many_sign_ins", detail, headers={"Retry-After": str(seconds)})
