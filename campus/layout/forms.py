"""HTML forms and their tokens: a form without its visitor's token is refused, as another site would send it.

A token is a random text and a digest of it under a secret in a cookie that no other site can read: the session's after sign-in, before
that the browser's own. No token is stored.
"""

import hmac
import re
import secrets
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio
from starlette.datastructures import FormData, Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.problems import fixed_problem
from twins import Problem

FIELD = "form_token"
LOCAL_PATH = re.compile(r"/(?:[A-Za-z0-9_.~-][A-Za-z0-9_.~/-]*)?")
NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
FORM_TYPE, FILES_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"
SECRET_LENGTH = 32
MAX_FIELDS, MAX_FILES = 200, 4
LONGEST_TYPE = 200  # The characters of a form's Content-Type; a parser of quoted parameters is slow where there are many.
PART_HEADERS = 16 * 1024
"""The bytes of the headers of all parts of a form together, for the same reason: browsers write some fifty for each field."""
READ_HERE = 64 * 1024  # The bytes of the largest form that is decoded in the loop; larger ones are in a thread.
NONCE_LENGTH = 24
PRIVATE = "private, no-store"
NOT_STORED = {"Cache-Control": PRIVATE}


@dataclass(frozen=True)
class Cookies:
    """The names and attributes of the two cookies; `secure` when visitors reach the service by https.

    With https the prefix __Host- makes browsers refuse such a cookie from any other host, subdomains included. `owner` keeps the
    operator's apart, also those of several processes of one host: browsers send a host's cookies to all its ports.
    """

    secure: bool
    owner: str = ""

    @property
    def session(self) -> str:
        return self._named("session")

    @property
    def form(self) -> str:
        """The cookie of the browser's own secret, from which the tokens of forms are derived where there is no session."""
        return self._named("form")

    def _named(self, name: str) -> str:
        return f"{'__Host-' if self.secure else ''}campus_{self.owner}{name}"

    def put(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        """Set one of the two: out of reach of scripts, never sent with requests that other sites make."""
        response.set_cookie(name, value, max_age=seconds, path="/", secure=self.secure, httponly=True, samesite="lax")

    def remove(self, response: Response, name: str) -> None:
        response.delete_cookie(name, path="/", secure=self.secure, httponly=True, samesite="lax")

    def secrets_of(self, request: Request) -> Sequence[str]:
        """The secrets that the browser of a request has: its session's and its own, of those that it sent."""
        found = (self.sent(request, name) or "" for name in (self.session, self.form))
        return [value for value in found if SECRET_LENGTH <= len(value) <= 2 * SECRET_LENGTH]

    def own_secret(self, request: Request, response: Response) -> str:
        """The browser's own, which stays when its visitor signs in or out; it is set with the response if there is none."""
        own = self.sent(request, self.form) or ""
        if not SECRET_LENGTH <= len(own) <= 2 * SECRET_LENGTH:
            self.put(response, self.form, own := new_secret())
        return own

    @staticmethod
    def sent(request: Request, name: str) -> str | None:
        """The cookie of this name that the request carries, the last of several; None without one.

        The two have no quotes. Python's own parser, behind `request.cookies`, takes a second for 30 KB of them before 3.11.10 and 3.12.6.
        """
        found = re.findall(rf"(?:^|;) *{re.escape(name)}=([^;]*)", ";".join(request.headers.getlist("cookie")))
        return found[-1].strip() if found else None

    def secret_of(self, request: Request) -> str | None:
        """The secret that the tokens of a request are derived from: the session's if there is one.

        Then no other counts: without https a page at another port of the host can set the cookie of forms, and so knows its token.
        """
        return next(iter(self.secrets_of(request)), None)


def new_secret() -> str:
    return secrets.token_urlsafe(24)


def new_token(secret: str) -> str:
    """A token for one form, which belongs to a cookie's secret; the secret cannot be computed from it."""
    nonce = secrets.token_hex(NONCE_LENGTH // 2)
    return nonce + _digest_of(nonce, secret)


def _digest_of(nonce: str, secret: str) -> str:
    return hmac.new(secret.encode(), f"campus form token {nonce}".encode(), "sha256").hexdigest()


async def read_fields(request: Request) -> dict[str, str]:
    """The fields of an HTML form, the last of each name; a file is its text.

    Problem 403 if another site sent it. Problem 422 for too many fields, before any is read, for the character NUL, which no database
    stores, and as read_form.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise fixed_problem("form_expired")
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (FORM_TYPE, FILES_TYPE) or len(content_type) > LONGEST_TYPE:
        raise fixed_problem("form_expired")
    body = await request.body()
    if kind == FILES_TYPE:
        fields = await _read_files(request.headers, body)
    elif body.count(b"&") >= MAX_FIELDS:
        raise Problem(422, "invalid_request", f"The form has more than {MAX_FIELDS} fields; send it from its page.")
    else:
        fields = read_form(body) if len(body) <= READ_HERE else await anyio.to_thread.run_sync(read_form, body)
    if any("\0" in text for field in fields.items() for text in field):
        raise Problem(422, "invalid_request", "The form contains the character NUL; leave it out.")
    request._form = FormData(fields)  # for pages that await request.form(), which would decode it again
    return fields


def is_token_of(secret: str | None, token: str) -> bool:
    nonce, digest = token[:NONCE_LENGTH], token[NONCE_LENGTH:]
    return secret is not None and hmac.compare_digest(_digest_of(nonce, secret).encode(), digest.encode())


def is_from_here(request: Request) -> bool:
    """Whether the browser says that a page of this service sent it; not where it does not say."""
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    return request.headers.get("origin") == f"{request.url.scheme}://{request.url.netloc}"


class FilesParser(MultiPartParser):
    _left = PART_HEADERS

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._left -= end - start
        if self._left < 0:
            raise MultiPartException(f"the headers of its parts have more than {PART_HEADERS:,} bytes")
        super().on_header_value(data, start, end)


async def _read_files(headers: Headers, body: bytes) -> dict[str, str]:
    """The fields of a form with files, which stay in memory: the edge bounds the body. Problem 422 for what no browser sends."""

    async def sent() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        async with aclosing(sent()) as parts:
            found = await FilesParser(headers, parts, max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=len(body)).parse()
    except (MultiPartException, ValueError, KeyError) as error:
        raise Problem(422, "invalid_request", f"The form cannot be read: {error}; send it from its page.") from None
    fields: dict[str, str] = {}
    for name, value in found.multi_items():
        fields[name] = value if isinstance(value, str) else decoded_text(await value.read())
    await found.close()
    return fields


def decoded_text(file: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 as PowerShell writes it; what is neither is replaced."""
    encoding = "utf-16" if file.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    return file.decode(encoding, errors="replace").replace("\0", "")


def read_form(body: bytes) -> dict[str, str]:
    """The fields of an encoded form, the last of each name. Problem 422 for a percent sign that begins no escape, which no browser sends.

    Python's own functions decode a megabyte of escapes in a third of a second, for which every other call would wait.
    """
    pairs = (pair.partition(b"=") for pair in body.split(b"&") if pair)
    return {_decoded(name): _decoded(value) for name, _, value in pairs}


def _decoded(text: bytes) -> str:
    text = text.replace(b"+", b" ")
    if b"%" in text:
        if NO_ESCAPE.search(text):
            raise Problem(422, "invalid_request", "The form is not encoded: write a percent sign as %25.")
        # as a Python literal, whose escapes are decoded in C
        text = text.replace(b"\\", b"%5c").replace(b"%", b"\\x").decode("unicode_escape").encode("latin-1")
    return text.decode(errors="replace")


def see_other(path: str) -> Response:
    """Leads a browser on with GET, as after a form; no cache stores that."""
    return RedirectResponse(path, status_code=303, headers=NOT_STORED)


def local_path(path: str) -> str:
    """A path of this service to return to after signing in; anything else, such as another site, is empty."""
    return path if LOCAL_PATH.fullmatch(path) and ".." not in path else ""
