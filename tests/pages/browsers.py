"""A headless Chromium for tests. Without one they are skipped with the reason; one that is installed and does not start fails them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from patience import patience
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
NARROW, WIDE = {"width": 360, "height": 800}, {"width": 1280, "height": 800}


@contextmanager
def open_browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium on this machine; install Debian's package")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Browser, **options: Any) -> Iterator[Page]:
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(patience(15) * 1000)
    expect.set_options(timeout=patience(15) * 1000)
    page = context.new_page()
    reported: list[str] = []
    page.on("pageerror", lambda error: reported.append(str(error)))
    page.on("console", lambda message: reported.append(message.text) if "Content Security Policy" in message.text else None)
    page.on("dialog", lambda dialog: reported.append(f"dialog: {dialog.message}"))
    yield page
    page.goto("about:blank")  # a context whose page still navigates may never close
    context.close()
    assert reported == []


def sideways(page: Page) -> int:
    shown = "[document.documentElement, ...document.querySelectorAll('.stacked')]"
    found: int = page.evaluate(f"Math.max(...{shown}.map(one => one.scrollWidth - one.clientWidth))")
    return max(found, 0)
