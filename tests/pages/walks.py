"""Walks through the shop as people take them in a browser: they count what is clicked, and end the server between the steps."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from features.cards.stripe_server import KEY, SECRET, StripeServer
from patience import patience
from playwright.sync_api import Locator, Page, expect
from serving import Served, serving, start, wait_until_it_answers

from tests import forkserver

CONFIG = """
[storage]
url = "sqlite:data"
[web]
allowed_hosts = ["127.0.0.1"]
[products.pass]
scope = "all"
price = "29"
term = "30 days"
{pass_more}
[buildings.gateway]
path = "/"
[buildings.cve]
osv_ecosystems = []
free_reports_per_day = 50
{cve}
[buildings.recorder]
"""
SELLER = '[seller]\nname = "Harbour Ltd"\naddress = "1 Quay"\ncontact = "mailto:shop@example.org"\n'
CHECKOUT = '[buildings.checkout]\ngrants = ["keys"]\n'
SECRETS = {"CAMPUS_CARDS_API_KEY": KEY, "CAMPUS_CARDS_WEBHOOK_SECRET": SECRET}
REPORT = "CVE-2021-44228 CVE-1999-99999 CVE-2024-6387"
HOOK = "http://127.0.0.1:9/hook"
WEIGHT = "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource')).reduce((sum, one) => sum + one.{}, 0)"


def cards_at(stripe: StripeServer) -> str:
    return f'[cards]\napi_url = "{stripe.url}"\n'


@dataclass
class Shop:
    """A campus that can be killed and started again."""

    served: Served

    @property
    def url(self) -> str:
        return self.served.url

    def kill(self) -> None:
        self.served.process.send_signal(signal.SIGKILL)
        self.served.process.wait(patience(20))

    def begin(self) -> None:
        with Path(self.served.config).with_suffix(".log").open("ab") as log:
            imports = forkserver.PAYMENTS if "[payments]" in self.served.config.read_text() else ()
            self.served = replace(self.served, process=start(self.served.words, self.served.environ, log, imports=imports))
        wait_until_it_answers(self.served)

    def restart(self) -> None:
        self.kill()
        self.begin()


@contextmanager
def open_shop(
    folder: Path, *tables: str, cve: str = "sample = true", pass_more: str = "", environ: Mapping[str, str] = SECRETS
) -> Iterator[Shop]:
    text = CONFIG.format(cve=cve, pass_more=pass_more) + "".join(tables)
    with serving(folder, text, environ=environ) as served:
        shop = Shop(served)
        try:
            yield shop
        finally:
            if shop.served.process is not served.process:
                shop.served.process.send_signal(signal.SIGTERM)
                shop.served.process.wait(patience(20))


@dataclass
class Walk:
    """What a person does on one page; `keyboard`: without a mouse; `restless`: with Back, a reload and a second tab after each step."""

    page: Page
    shop: Shop
    keyboard: bool = False
    kills: bool = False
    restless: bool = False
    clicks: int = 0

    def open(self, path: str) -> None:
        self.page.goto(f"{self.shop.url}{path}")

    def arrives(self, path: str) -> None:
        """Wait for a page: a key that is pressed waits for nothing."""
        self.page.wait_for_url(lambda url: urlsplit(url).path == path)

    def press(self, target: Locator) -> None:
        """Use a link or button, by the mouse or by keys alone."""
        self.clicks += 1
        if not self.keyboard:
            target.click()
            return
        self.reach(target)
        self.page.keyboard.press("Enter")

    def reach(self, target: Locator) -> None:
        for _ in range(150):
            if target.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"no number of tabs leads to {target}")

    def type(self, label: str, text: str) -> None:
        target = self.page.get_by_label(label).first
        if self.keyboard:
            self.reach(target)
            self.page.keyboard.press("Control+A")
            self.page.keyboard.type(text)
        else:
            target.fill(text)

    def button(self, name: str) -> None:
        self.press(self.page.get_by_role("button", name=name).first)

    def link(self, name: str) -> None:
        self.press(self.page.locator("main").get_by_role("link", name=name).first)

    def go_to(self, name: str) -> None:
        self.press(self.page.get_by_role("navigation").first.get_by_role("link", name=name))

    def shows(self, *texts: str) -> None:
        """The page says these; also after a reload, after Back and Forward, in a second tab, and once the server was killed."""
        self._says(self.page, texts)
        if self.kills:
            self.shop.restart()
        if self.restless or self.kills:
            self.page.reload()
            self._says(self.page, texts)
        if self.restless:
            self.page.go_back()
            self.page.go_forward()
            self._says(self.page, texts)
            with self.page.context.new_page() as tab:
                tab.goto(self.page.url)
                self._says(tab, texts)

    def _says(self, page: Page, texts: Sequence[str]) -> None:
        for text in texts:
            expect(page.locator("main")).to_contain_text(text)

    @property
    def bytes_sent(self) -> int:
        return int(self.page.evaluate(WEIGHT.format("encodedBodySize")))


def put_in_order(walk: Walk, folder: Path, *, script: bool = True) -> None:
    """A report is chosen, and put in order at once where scripts run."""
    (report := folder / "scan.txt").write_text(REPORT)
    walk.clicks += 1
    walk.page.get_by_label("Choose your scanner's report").set_input_files(report)
    if not script:
        walk.button("Put in order")
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("3 findings.")


def goes_on_with_the_report(walk: Walk) -> None:
    """With the key that was just shown, to the report that the visitor came with."""
    walk.button("Go on where you were")
    expect(walk.page.get_by_label("A report, or CVEs")).to_have_value(REPORT)
    walk.button("Put in order")
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("3 findings.")


def sign_in(walk: Walk, key: str) -> None:
    walk.open("/keys")
    walk.type("Key", key)
    walk.button("Sign in")


def shown_key(page: Page) -> str:
    expect(page.get_by_role("heading", level=1, name="Your key")).to_be_visible()
    return page.locator("main pre code:visible").first.inner_text()


def buy_by_card(walk: Walk, stripe: StripeServer) -> str:
    """From a page with the button to the key; killed at Stripe, before the return, and after the key was shown."""
    walk.button("Buy by card")
    walk.page.wait_for_url("**/c/pay/**")
    if walk.kills:
        walk.shop.kill()
        walk.button("Pay")
        walk.page.wait_for_url("chrome-error://**")
        walk.shop.begin()
        walk.page.goto(stripe.last["success_url"])
    else:
        walk.button("Pay")
    key = shown_key(walk.page)
    walk.shows(key)
    return key


def buy_by_wallet(walk: Walk) -> str:
    walk.button("Pay with Test Wallet")
    key = shown_key(walk.page)
    if walk.kills or walk.restless:  # nothing was copied yet: the page shows it again
        if walk.kills:
            walk.shop.restart()
        walk.page.reload()
        assert shown_key(walk.page) == key
    return key


def beat_of(page: Page) -> str:
    """The address that records the beats of a monitor, on the page that shows its secret."""
    expect(page.locator("main")).to_contain_text("/beat/")
    found = re.search(r"http\S+/beat/\w+/\w+", page.inner_text("main"))
    assert found is not None
    return found[0]


def register(walk: Walk, name: str) -> str:
    """Register a monitor; the address that records its beats."""
    walk.type("Name", name)
    walk.type("Alert to this webhook", f"{HOOK}/{name.replace(' ', '-')}")
    walk.button("Register")
    walk.shows("Send a beat", "Waiting for the first beat")
    return beat_of(walk.page)
