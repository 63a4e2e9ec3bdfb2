"""Two people's walks through the pages in a headless Chromium, in clicks and seconds: one buys a key with a wallet, one serves a tool."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal
from pages.browser_wallet import BrowserWallet
from pages.browsers import open_browser, open_page
from patience import patience
from playwright.sync_api import Browser, Page, expect
from serving import CAMPUS, free_port, serving

from campus.testing.payments import open_chain, open_facilitator
from tests import patient

CONFIG = """
[storage]
url = "sqlite:data"
[payments]
{payments}
[products.everything]
scope = "all"
price = "29"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
[buildings.recorder]
[buildings.checkout]
grants = ["keys"]
"""
PAY_TO = "0x" + "11" * 20
CONFIRMED = {"eth_requestAccounts", "wallet_switchEthereumChain", "eth_signTypedData_v4"}
"""What a wallet asks its owner about, with a button."""
MOST_CLICKS = 6
"""From the start page to the key, with those in the wallet."""
COUNT = "addEventListener('click', event => { if (event.isTrusted) window.countClick(event.target.textContent.trim()); }, true)"


def walk(folder: Path) -> list[str]:
    """Walk both ways and print what they took; what is wrong, in sentences."""
    (folder / "shop").mkdir(parents=True)
    with (
        open_browser() as browser,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_chain()) as chain,
        portal.wrap_async_context_manager(open_facilitator(chain)) as opened,
    ):
        lines = "\n".join(f'{name} = "{value}"' for name, value in opened.table(PAY_TO).items())
        with serving(folder / "shop", CONFIG.format(payments=lines), fresh=True) as campus:
            clicks = buy(browser, campus.url, BrowserWallet(chain, portal, network=1))
            write_a_tool(browser, campus.url, folder / "author")
    return [f"walks: a key takes {clicks} clicks, and may take {MOST_CLICKS}"] if clicks > MOST_CLICKS else []


def buy(browser: Browser, url: str, wallet: BrowserWallet) -> int:
    """From the start page to a key on the screen, with a wallet that is on another network; returns the clicks."""
    wallet.fund(30)
    with open_page(browser) as page:
        clicks = counted(page)
        wallet.open_in(page)
        started = time.monotonic()
        page.goto(url)
        page.get_by_role("navigation").get_by_role("link", name="Pricing").click()
        page.locator("#everything").get_by_role("link", name="Buy").click()
        page.get_by_role("button", name="Pay with Test Wallet").click()
        expect(page.get_by_role("heading", level=1, name="Your key")).to_be_visible(timeout=patience(60) * 1000)
        seconds = time.monotonic() - started
        key = page.locator("#bought pre code").first.inner_text()
    patient.get(f"{url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"}).raise_for_status()
    confirmed = [one for one in wallet.asked if one in CONFIRMED]
    clicked = f"{len(clicks)} clicks ({', '.join(clicks)}) and {len(confirmed)} in the wallet"
    print(f"buyer: {clicked}, {seconds:.1f} s to a key that opens the list")
    return len(clicks) + len(confirmed)


def write_a_tool(browser: Browser, url: str, folder: Path) -> None:
    """From the start page to an answer of the tool in the tutorial, which is copied from there and served by the command there."""
    folder.mkdir()
    with open_page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        clicks = counted(page)
        started = time.monotonic()
        page.goto(url)
        page.get_by_role("link", name="Add your own").click()
        page.get_by_role("button", name="Copy: dice.py").first.click()
        (folder / "dice.py").write_text(page.evaluate("navigator.clipboard.readText()"))
        command = re.search(r"\$ campus (dev dice\.py)", page.inner_text("main"))
        assert command is not None
        read = time.monotonic() - started
        with developing(folder, command[1].split()) as served:
            page.goto(served)
            page.get_by_role("link", name="roll").click()
            page.get_by_role("button", name="Call").click()
            expect(page.locator("#answer")).to_contain_text('"result"')
            seconds = time.monotonic() - started
    print(f"author: {len(clicks)} clicks ({', '.join(clicks)}), {read:.1f} s to the code and the command, {seconds:.1f} s to an answer")


def counted(page: Page) -> list[str]:
    """The texts of what is clicked on the page from now on."""
    clicks: list[str] = []
    page.expose_function("countClick", lambda text: clicks.append(text))
    page.add_init_script(COUNT)
    return clicks


@contextmanager
def developing(folder: Path, words: list[str]) -> Iterator[str]:
    """Run `campus dev` in a folder until the block ends; its address."""
    port = free_port()
    process = subprocess.Popen([CAMPUS, *words, "--port", str(port)], cwd=folder, env={**os.environ, "PYTHONPATH": ""})
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + patience(60)
        while time.monotonic() < deadline:
            try:
                patient.get(f"{url}/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(patience(20))
