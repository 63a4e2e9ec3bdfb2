"""Signing in as the operator: the password, sessions in this process's memory, and the guard in front of each of the operator's pages."""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from hashlib import scrypt

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.context import context_of
from campus.features.audit_log.log import OPERATOR, AuditLog
from campus.keys.sign_ins import SignInLimit
from campus.layout.forms import local_path
from campus.layout.renderer import Pages
from campus.secrets import digest_of
from twins import Problem

PATH, SIGN_OUT = "/sign-in", "/sign-out"
LONGEST_SESSION = timedelta(hours=12)
MOST_SESSIONS = 100
REPEATED = frozenset({"/keys/search", "/check", SIGN_OUT})
"""Forms that change nothing when they are sent again."""
NO_STORE = {"Cache-Control": "private, no-store"}
Answer = Callable[[Request, Mapping[str, str]], Awaitable[Response]]
"""A page: it receives the fields of the form that was sent, none for GET."""
log = logging.getLogger(__name__)


class OperatorSessions:
    """The sessions of this process, by the digest of their ids. They need no database, and end with the process, as the password does.

    A session ends after twelve hours. Beyond `MOST_SESSIONS` the oldest ends. Passwords are checked one at a time, in a thread, at a
    cost that bounds how fast many addresses guess, and in the order of their arrival.
    """

    def __init__(self, password: str, *, now: Callable[[], datetime]) -> None:
        self._password = _slow_digest_of(password)
        self._check = CapacityLimiter(1)
        self._now = now
        self._ends_at: dict[bytes, datetime] = {}

    async def accepts(self, password: str) -> bool:
        """Whether this is the password, in constant time."""
        return hmac.compare_digest(await to_thread.run_sync(_slow_digest_of, password, limiter=self._check), self._password)

    def open(self) -> str:
        session_id = secrets.token_urlsafe(24)
        now = self._now()
        live = [(digest, ends_at) for digest, ends_at in self._ends_at.items() if now < ends_at]
        self._ends_at = {**dict(live[-MOST_SESSIONS + 1 :]), digest_of(session_id): now + LONGEST_SESSION}
        return session_id

    def is_open(self, session_id: str) -> bool:
        ends_at = self._ends_at.get(digest_of(session_id))
        return ends_at is not None and self._now() < ends_at <= self._now() + LONGEST_SESSION

    def close(self, session_id: str) -> None:
        self._ends_at.pop(digest_of(session_id), None)


class SignIn:
    def __init__(self, pages: Pages, sessions: OperatorSessions, *, limit: SignInLimit, audit: AuditLog | None = None) -> None:
        self._audit = audit
        self._pages = pages
        self._sessions = sessions
        self._limit = limit

    def guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """The page for the operator alone: others are led to sign in. A form is refused unless it carries the operator's token."""

        async def guarded(request: Request) -> Response:
            context_of(request.scope).is_personal = True
            reads = request.method in ("GET", "HEAD")
            is_open = self._sessions.is_open(self.session_of(request))
            if reads and not is_open:
                asked = f"?next={request.url.path}" if request.url.path != "/" else ""
                return RedirectResponse(f"{PATH}{asked}", status_code=303, headers=NO_STORE)
            form = {} if reads else await self._pages.layout.checked_form(request, repeats=request.url.path in REPEATED)
            self.check(self.session_of(request))
            response = await answer(request, form)
            if not reads:
                self._note(request, "operator", "ok" if response.status_code < 400 else f"status {response.status_code}")
            return response

        return guarded

    def session_of(self, request: Request) -> str:
        cookies = self._pages.layout.cookies_of(request)
        return cookies.sent(request, cookies.session) or ""

    def check(self, session_id: str) -> None:
        """Problem 401 once a session is over."""
        if not self._sessions.is_open(session_id):
            raise Problem(401, "sign_in_required", "Sign in as the operator first.")

    async def show(self, request: Request) -> Response:
        """The form, or the overview for an operator who is signed in."""
        if self._sessions.is_open(self.session_of(request)):
            return RedirectResponse("/", status_code=303, headers=NO_STORE)
        return self._page(request, next_path=local_path(request.query_params.get("next", "")))

    async def sign_in(self, request: Request) -> Response:
        """Open a session for the right password. Its id is new, whatever cookie was sent: nobody can choose it beforehand."""
        cookies = self._pages.layout.cookies_of(request)
        form = await self._pages.layout.checked_form(request, repeats=True)
        self._limit.check(request)
        address = request.client.host if request.client else ""
        next_path = local_path(form.get("next", ""))
        if not await self._sessions.accepts(form.get("password", "")):
            log.warning("operator's password refused", extra={"client": address})
            self._note(request, None, "refused")
            return self._page(request, next_path=next_path, is_wrong=True)
        self._sessions.close(self.session_of(request))
        response = RedirectResponse(next_path or "/", status_code=303, headers=NO_STORE)
        cookies.put(response, cookies.session, self._sessions.open(), seconds=int(LONGEST_SESSION.total_seconds()))
        log.info("operator signed in", extra={"client": address})
        self._note(request, "operator", "ok")
        return response

    async def sign_out(self, request: Request, form: Mapping[str, str]) -> Response:
        cookies = self._pages.layout.cookies_of(request)
        self._sessions.close(self.session_of(request))
        await self._pages.layout.kept.forget(self.session_of(request))
        response = RedirectResponse(PATH, status_code=303, headers=NO_STORE)
        cookies.remove(response, cookies.session)
        return response

    def _note(self, request: Request, who: str | None, outcome: str) -> None:
        """Note an act of the operator, or a refused attempt to sign in, in the audit log."""
        if self._audit is not None:
            path = request.scope["raw_path"].decode("latin-1")  # as it was sent: decoded it may hold what no database stores
            self._audit.note(who, OPERATOR, path, outcome, request_id=request.scope.get("request_id"))

    def _page(self, request: Request, *, next_path: str, is_wrong: bool = False) -> Response:
        return self._pages.page("sign_in.html", request, status=403 if is_wrong else 200, next_path=next_path, is_wrong=is_wrong)


def _slow_digest_of(password: str) -> bytes:
    """A digest that takes 16 MiB and about 50 ms: nobody stores it, so its salt need not be secret or random."""
    return scrypt(password.encode(), salt=b"campus operator", n=2**14, r=8, p=1)
