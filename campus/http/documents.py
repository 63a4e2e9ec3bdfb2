"""Documents that follow from the configuration alone: each is made once, has an ETag, and is the same for GET and HEAD."""

import json
from collections.abc import Mapping
from functools import cached_property

from starlette.types import Receive, Scope, Send

from campus.http.response import send_problem
from campus.site import ROUTE
from twins import Answer, Problem, RouteEntry, etag_of, or_not_modified, send_answer

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
AN_HOUR = "public, max-age=3600"
FIVE_MINUTES = "public, max-age=300"


class Document:
    """One document as an ASGI app. Pages of any origin may read it: it holds nothing that not everybody may see."""

    def __init__(self, body: bytes, media_type: str, *, cache: str = AN_HOUR, headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.media_type = media_type
        self._headers = {"Cache-Control": cache, "Access-Control-Allow-Origin": "*", **(headers or {})}

    @classmethod
    def json(cls, value: object, media_type: str = "application/json", *, cache: str = AN_HOUR, **headers: str) -> "Document":
        """A JSON value."""
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return cls(body, media_type, cache=cache, headers=headers)

    @classmethod
    def text(cls, text: str, media_type: str = "text/plain; charset=utf-8") -> "Document":
        """Text."""
        return cls(text.encode(), media_type)

    @cached_property
    def _answer(self) -> Answer:
        return Answer(200, self.body).adding({"Content-Type": self.media_type, "ETag": etag_of(self.body), **self._headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, 304 to a caller that has it, or 405."""
        scope[ROUTE] = scope["path"]
        if scope["method"] in ("GET", "HEAD"):
            await send_answer(send, or_not_modified(self._answer, scope), with_body=scope["method"] == "GET")
            return
        problem = Problem(405, "method_not_allowed", "This is a document: read it with GET or HEAD.", headers={"Allow": "GET, HEAD"})
        await send_problem(send, problem, scope.get("request_id"))

    def route(self, path: str) -> RouteEntry:
        """Its route."""
        return RouteEntry(METHODS, path, self, f"the document {path}")
