"""The picture of a page that social networks and chats show with its address: 1,200 × 630 pixels, as PNG. Needs Pillow.

Pillow's own font has no letters beyond ASCII, so that one of the system's is used where there is one.
"""

import re
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from html import unescape
from io import BytesIO
from unicodedata import normalize

from anyio import CapacityLimiter, to_thread
from PIL import Image, ImageDraw, ImageFont
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from campus.addresses import network_of
from campus.shares import TokenBuckets

WIDTH, HEIGHT, EDGE = 1200, 630, 80
BACKGROUND, TEXT, MUTED, ACCENT = "#fafaf8", "#1c2126", "#555e68", "#0b5cad"
TITLE, ABOUT, NAME = 62, 34, 34
"""The sizes of the three texts in pixels; the first two have at most three lines each."""
LINES = 3
LONGEST_TEXT, LONGEST_WORD = 300, 24
STORED_PICTURES = 64
PICTURES_PER_MINUTE = 30
"""For one address: each costs 40 ms of CPU."""
FONTS = (("DejaVuSans", "DejaVuSans-Bold"), ("LiberationSans-Regular", "LiberationSans-Bold"), ("Arial", "Arial Bold"))
"""The files of fonts that systems have, plain and bold."""
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class Pictures:
    """Draws pictures, one at a time and in a thread. `name` and `host` are those of the service."""

    def __init__(self, name: str, host: str) -> None:
        self._of_service = name, host
        self._thread = CapacityLimiter(1)
        self._asked = TokenBuckets(PICTURES_PER_MINUTE)

    def response(self, page: str, headers: Mapping[str, str]) -> "PictureResponse":
        """The picture of a page, by its HTML, with these headers."""
        return PictureResponse(self, (_said(page, "title"), _said(page, "description")), headers)

    async def draw(self, texts: tuple[str, str], caller: str) -> bytes | None:
        """The picture with this title and description; None if the address asked for too many in the last minute."""
        if self._asked.spend(network_of(caller), time.monotonic()) < 0:
            return None
        return await to_thread.run_sync(draw_picture, *texts, *self._of_service, limiter=self._thread)


class PictureResponse(Response):
    """A picture that is drawn when it is sent, or 429."""

    def __init__(self, pictures: Pictures, texts: tuple[str, str], headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, media_type="image/png")
        self._pictures = pictures
        self._texts = texts
        self._given = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Draw it and send it."""
        body = await self._pictures.draw(self._texts, (scope.get("client") or ("",))[0])
        retry = Response(status_code=429, headers={"Retry-After": "60", "Cache-Control": "no-store"})
        await (retry if body is None else Response(body, headers=self._given, media_type="image/png"))(scope, receive, send)


def _said(page: str, name: str) -> str:
    found = re.search(rf'<meta property="og:{name}" content="([^"]*)">', page)
    return unescape(found[1]) if found else ""


@lru_cache(maxsize=STORED_PICTURES)
def draw_picture(title: str, about: str, name: str, host: str) -> bytes:
    """The picture of a page with this title and description, of the service `name` at `host`."""
    image = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, WIDTH, 14), fill=ACCENT)
    y = _write(draw, title, EDGE - 10, TITLE, TEXT, bold=True)
    _write(draw, about, y + 24, ABOUT, MUTED)
    draw.text((EDGE, HEIGHT - EDGE + 20), _drawable(name), font=_font(NAME, bold=True), fill=ACCENT, anchor="ls")
    draw.text((WIDTH - EDGE, HEIGHT - EDGE + 20), _drawable(host), font=_font(NAME), fill=MUTED, anchor="rs")
    file = BytesIO()
    image.save(file, "PNG", compress_level=6)
    return file.getvalue()


def _write(draw: ImageDraw.ImageDraw, text: str, y: float, size: int, colour: str, *, bold: bool = False) -> float:
    """Write a text in lines from `y` downwards; returns where the last one ends."""
    font = _font(size, bold=bold)
    lines = [""]
    for word in re.sub(rf"(\S{{{LONGEST_WORD}}})(?=\S)", r"\1 ", _drawable(text)).split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer, font=font) <= WIDTH - 2 * EDGE:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > LINES:
        lines[LINES - 1] += " …" if _system_font(bold=bold) else " ..."
    for line in lines[:LINES]:
        draw.text((EDGE, y), line, font=font, fill=colour)
        y += size * 1.3
    return y


def _drawable(text: str) -> str:
    """The text with the letters that the font has."""
    text = text[:LONGEST_TEXT]
    return text if _system_font() else normalize("NFKD", text).encode("ascii", "ignore").decode()


@cache
def _font(size: int, *, bold: bool = False) -> Font:
    file = _system_font(bold=bold)
    return ImageFont.truetype(file, size) if file else ImageFont.load_default(size)


@cache
def _system_font(*, bold: bool = False) -> str | None:
    """The first of the fonts that this system has."""
    for names in FONTS:
        try:
            ImageFont.truetype(f"{names[bold]}.ttf")
        except OSError:
            continue
        return f"{names[bold]}.ttf"
    return None
