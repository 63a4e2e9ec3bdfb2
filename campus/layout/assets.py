"""The static files of the layout, each at an address that contains a digest of its content, so that browsers keep it for ever.

They are compressed once, when they are read; pages are not, which a proxy may do.
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twins import RouteEntry

FOLDER = Path(__file__).parent / "static"
PREFIX = "/static"
MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png"}
ICON = (("icon.png", "image/png", "128x128"), ("icon.svg", "image/svg+xml", "any"))
"""The service's icon: files, media types and sizes."""
GZIP = re.compile(r"\bgzip\s*(?!\s*;\s*q=0(\.0*)?\s*(,|$))")
FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    path: str
    body: bytes
    media_type: str
    compressed: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"Cache-Control": FOR_EVER, "Content-Type": self.media_type, "Vary": "Accept-Encoding"}
        if GZIP.search(Headers(scope=scope).get("accept-encoding", "")):
            response = Response(self.compressed, headers=headers | {"Content-Encoding": "gzip"})
        else:
            response = Response(self.body, headers=headers)
        await response(scope, receive, send)

    @property
    def route(self) -> RouteEntry:
        return RouteEntry(("GET", "HEAD"), self.path, self, f"the static file {self.path}")


@cache
def read_assets(folder: Path = FOLDER) -> Mapping[str, Asset]:
    return {path.name: asset_of(path) for path in sorted(folder.iterdir()) if path.suffix in MEDIA_TYPES}


@cache
def icons_of(logo: Path | None) -> Sequence[tuple[str, str, str]]:
    """Path, media type and size ("" if unknown) of the icon: the logo, or campus's own in each format, the one for catalogs first."""
    if logo is not None:
        asset = asset_of(logo)
        return [(asset.path, asset.media_type, "any" if logo.suffix == ".svg" else "")]
    return [(read_assets()[name].path, media_type, size) for name, media_type, size in ICON]


def asset_of(path: Path) -> Asset:
    return made_asset(path.name, path.read_bytes())


def made_asset(name: str, body: bytes) -> Asset:
    stem, dot, suffix = name.rpartition(".")
    address = f"{PREFIX}/{stem}.{sha256(body).hexdigest()[:12]}.{suffix}"
    return Asset(address, body, MEDIA_TYPES[dot + suffix], gzip.compress(body, mtime=0))
