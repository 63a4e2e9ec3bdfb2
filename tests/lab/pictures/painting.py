"""Takes the pictures: each view on a phone and on a desktop, light and dark, by one Chromium; and what axe-core says, if it is there."""

import hashlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab.pictures.views import View
from lab.pictures.visitors import Visitor
from pages.browsers import FLAGS
from playwright.async_api import Browser, Page, Route, async_playwright

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
LOOKS = [(size, scheme) for size in ("phone", "desktop") for scheme in ("light", "dark")]
TALLEST = 6_000
"""Pixels of a page that are pictured; the sheet says how tall it is."""
LARGEST = 60_000
"""Bytes of a page, compressed."""
SIDEWAYS = """() => [...document.querySelectorAll('html, main *')]
    .filter(one => one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible'
        && !['PRE', 'TEXTAREA', 'INPUT'].includes(one.tagName))
    .map(one => one.tagName.toLowerCase() + '.' + one.className).slice(0, 3)"""
AXE = """async () => (await axe.run(document, {resultTypes: ['violations']}))
    .violations.map(one => one.id + ': ' + one.nodes[0].html.slice(0, 200))"""


@dataclass(frozen=True)
class Picture:
    """A view as it was pictured; `height` is that of the page, `scrolls` what of it scrolls sideways."""

    view: View
    look: str
    file: str
    height: int
    size: int
    scrolls: Sequence[str]
    said: Sequence[str]
    """What the browser or axe-core complained of."""

    @property
    def complaints(self) -> list[str]:
        too_large = [f"{self.size} bytes compressed"] if self.size > LARGEST else []
        return [*too_large, *self.said, *([f"scrolls sideways: {', '.join(self.scrolls)}"] if self.scrolls else [])]


@asynccontextmanager
async def opened_browser() -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("there is no chromium on this machine; install Debian's package")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        await browser.close()


async def paint(browser: Browser, views: Collection[View], folder: Path, *, looks: Collection[str], axe: str | None) -> list[Picture]:
    pictures: list[Picture] = []
    for view in views:
        context = await browser.new_context(viewport=PHONE, reduced_motion="reduce", bypass_csp=True)  # the policy would block axe-core
        page = await context.new_page()
        said: list[str] = []
        page.on("pageerror", lambda error, said=said: said.append(f"script: {error}"))
        await page.route("**/*", partial(_answer, view.visitor))
        if view.html is not None:
            await page.set_content(view.html)
        else:
            await page.goto(f"{view.visitor.origin}{view.path}", wait_until="load")
        if view.visitor.is_offline or await page.locator("#wallets").count():  # until it says that there is none
            await page.wait_for_timeout(400)
        pictures += [await _picture(page, view, look, folder, said, axe) for look in looks]
        await context.close()
    return pictures


async def _picture(page: Page, view: View, look: str, folder: Path, said: Sequence[str], axe: str | None) -> Picture:
    size, _, scheme = look.partition("-")
    viewport: Any = PHONE if size == "phone" else DESKTOP
    await page.set_viewport_size(viewport)
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    height = await page.evaluate("document.documentElement.scrollHeight")
    name = f"{_slug(view.group)}--{_slug(view.name)}--{look}.png"
    clip: Any = {"x": 0, "y": 0, "width": viewport["width"], "height": min(height, TALLEST)}
    await page.screenshot(path=folder / name, full_page=True, clip=clip)
    scrolls = await page.evaluate(SIDEWAYS)
    found = list(said)
    if axe is not None and view.html is None:
        await page.evaluate(axe)
        found += await page.evaluate(AXE)
    return Picture(view, look, name, height, view.visitor.sizes.get(view.path, 0), scrolls, found)


async def _answer(visitor: Visitor, route: Route) -> None:
    request = route.request
    if not request.url.startswith(visitor.origin) or request.url.partition("?")[0].endswith("/events"):
        await route.abort()
        return
    status, headers, body = await visitor.fetch(request.method, request.url, request.headers, request.post_data_buffer)
    await route.fulfill(status=status, headers=headers, body=body)


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return slug if len(slug) < 60 else f"{slug[:50]}-{hashlib.sha256(json.dumps(text).encode()).hexdigest()[:8]}"
