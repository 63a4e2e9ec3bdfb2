"""POST, redirect, GET: the answer to a form is kept for the browser that sent it, and shown to it at an address of its own.

A form does its work once. Sent again as it was, from a page that was gone back to or by a second press of its button, it leads to the
same answer; with other values it is another form.
"""

import hmac
import json
import re
import secrets
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from campus.addresses import network_of
from campus.context import context_of
from campus.layout.accept import page_form
from campus.layout.forms import FIELD, PRIVATE, Cookies, see_other
from campus.layout.kept import Kept
from campus.problems import fixed_problem
from campus.shares import SENDER
from twins import Problem

PATH = "/answers"
FORM = "campus.posted_form"
"""In a request's scope its PostedForm."""
NAME = re.compile(r"[A-Za-z0-9_-]{32}")
TOKEN_INPUT = re.compile(rf'(<input type="hidden" name="{FIELD}" value=")\w+'.encode())
HERE = re.compile(rb'(<form\b[^>]*) action=""')
"""A form that is sent to the address of its page, which is another one where an answer is shown."""
WAIT_SECONDS, POLL_SECONDS = 10.0, 0.25
"""How long a form that is sent twice waits for its first answer, and between two looks for it."""
LONGEST_ANSWERING = timedelta(minutes=2)
"""A form that was sent longer ago has no answer to wait for: its process has ended, or what it answered is kept no longer."""
LONGEST_TYPED = 64 * 1024
"""Characters of a refused form that its page repeats."""
NOT_REPEATED = frozenset({"key", "password"})
"""Fields that no page repeats."""
LARGEST_PAGE = 4 * 1024**2  # The bytes of an answer, before it is compressed; the bound of Kept is for what is left.
PACKED_HERE = 64 * 1024  # The bytes of the largest that is compressed in the loop.
OWN_HEADERS = frozenset({b"content-length", b"set-cookie"})


class AnsweredBefore(Exception):  # no error: a way out of the page's function
    def __init__(self, response: Response) -> None:
        self.response = response


@dataclass
class PostedForm:
    """A form that is being answered."""

    request: Request
    token: str
    fields: Mapping[str, str]
    cookies: Cookies
    kept: Kept
    page: Callable[["PostedForm", Problem], Response]
    """Renders its refusal, with what was typed."""
    repeats: bool = False
    is_out: bool = False
    """Whether its visitor has to sign in first."""
    name: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _is_taken: bool = False

    async def begin(self) -> None:
        """Take it for its one answer. Raises AnsweredBefore with that answer, and Problem 409 while there is none, or none any more."""
        if self.repeats:
            return
        self.name = self._named()
        deadline = anyio.current_time() + WAIT_SECONDS
        while (sent_at := await self.kept.take(self.name)) is not None:
            if data := await self.kept.find(self.name, self.cookies.secrets_of(self.request)):
                response = unpacked(data)
                raise AnsweredBefore(see_other(self.address) if is_page(response) else response)
            if anyio.current_time() > deadline or self.kept.now() - sent_at > LONGEST_ANSWERING:
                raise fixed_problem("form_sent")
            await anyio.sleep(POLL_SECONDS)
        self._is_taken = True

    def _named(self) -> str:
        """The name of the answer: it follows from the form, so that a browser whose connection broke off finds it by sending it again."""
        text = json.dumps([self.token, self.request.url.path, self.request.url.query, sorted(self.fields.items())])
        secret = self.cookies.secret_of(self.request) or ""
        return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()[:32]

    @property
    def address(self) -> str:
        """Where its answer is shown."""
        return f"{PATH}/{self.name}"

    @property
    def action(self) -> str:
        """Where it is sent."""
        return str(self.request.url.replace(scheme="", netloc=""))

    def typed(self) -> Mapping[str, str] | None:
        """What the page of a refusal repeats; None if that is too much."""
        fields = {name: "" if name in NOT_REPEATED else text for name, text in self.fields.items()}
        return fields if sum(map(len, fields.values())) <= LONGEST_TYPED else None

    def refused(self, problem: Problem) -> Response | None:
        """The page of a refusal; None for a program, which reads the problem."""
        if page_form(self.request.headers.get("accept", "").encode("latin-1")) != "html":
            return None
        self.is_out = problem.status == 401
        return self.page(self, problem)

    async def answered(self, response: Response) -> Response:
        """The answer as it is sent: that of a page leads to where it is kept."""
        if response.status_code >= 400:
            await self.give_back()
        shows = is_page(response)
        if not (shows or self._is_taken) or (data := await packed(response, self.action)) is None:
            return response
        led = see_other(self.address)
        own = f"{self.cookies.form}=".encode()  # which _secret sets where it is missing
        led.raw_headers += [one for one in response.raw_headers if one[0] == b"set-cookie" and not one[1].startswith(own)]
        led.background = response.background
        secret = self._secret(led)
        if not await self.kept.keep(self.name, data, secret=secret, holder=self._holder()) or not shows:
            return response
        return led

    async def give_back(self) -> None:
        """It was not answered, so that it may be sent again."""
        if self._is_taken:
            self._is_taken = False
            with anyio.CancelScope(shield=True):
                await self.kept.give_back(self.name)

    def _secret(self, led: Response) -> str:
        """A session's while it lasts: what it was shown ends with it. Else the browser's own, which signing in does not change."""
        session = self.cookies.secret_of(self.request)
        credential = context_of(self.request.scope).credential
        is_out = self.is_out or (credential is not None and credential.state != "valid")
        return self.cookies.own_secret(self.request, led) if is_out or session is None else session

    def _holder(self) -> str:
        if self.cookies.owner:  # the operator, whose answers no stranger's may end
            return self.cookies.owner
        credential = context_of(self.request.scope).credential
        if credential is not None and (key := credential.valid_key) is not None:
            return key.lineage
        return f"{SENDER}{network_of(self.request.client.host if self.request.client else '')}"


async def answered(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """What a page's function returns, as it is sent. Raises the Problem that it raises, unless a form's page shows it."""
    try:
        response = await answer(request)
    except AnsweredBefore as before:
        return before.response
    except BaseException as error:
        form: PostedForm | None = request.scope.get(FORM)
        refused = form.refused(error) if form is not None and isinstance(error, Problem) else None
        if refused is None:
            if form is not None:
                await form.give_back()
            raise
        response = refused
    form = request.scope.get(FORM)
    return response if form is None else await form.answered(response)


def is_page(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/html")


async def packed(response: Response, action: str) -> bytes | None:
    """A response as it is kept; None for one that is not whole, such as a stream, or too large. Its forms without an address get one."""
    body = getattr(response, "body", None)
    if body is None or len(body) > LARGEST_PAGE:
        return None
    headers = [(name.decode("latin-1"), text.decode("latin-1")) for name, text in response.raw_headers if name not in OWN_HEADERS]
    whole = json.dumps([response.status_code, headers]).encode() + b"\n"
    whole += HERE.sub(lambda found: found[1] + b' action="' + escape(action).encode() + b'"', bytes(body))
    return zlib.compress(whole) if len(whole) <= PACKED_HERE else await anyio.to_thread.run_sync(zlib.compress, whole)


def unpacked(data: bytes, fresh: Callable[[], str] | None = None) -> Response:
    """The response that was kept; its forms have new tokens if `fresh` makes them."""
    head, _, body = zlib.decompress(data).partition(b"\n")
    status, headers = json.loads(head)
    if fresh is not None:
        body = TOKEN_INPUT.sub(lambda found: found[1] + fresh().encode(), body)
    return Response(body, status, headers=dict(headers) | {"cache-control": PRIVATE})
