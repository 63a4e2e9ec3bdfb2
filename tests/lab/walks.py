"""Walks through the shop as people take them, with clicks and seconds: `make walks`; two of them are in `make test`.

Each is taken in one go, with Back, reload and a second tab after each step, by keyboard alone on a phone, without scripts, and with the
server killed at each step. Every page on the way is at most 60 kB as sent, and nothing is wider than the phone; with AXE=…/axe.min.js in
the environment axe-core finds nothing on it.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from features.cards.stripe_server import StripeServer
from pages.browser_wallet import BrowserWallet
from pages.browsers import NARROW, WIDE, open_page, sideways
from pages.walks import (
    CHECKOUT,
    HOOK,
    REPORT,
    SELLER,
    Shop,
    Walk,
    buy_by_card,
    buy_by_wallet,
    cards_at,
    goes_on_with_the_report,
    open_shop,
    put_in_order,
    register,
    sign_in,
)
from playwright.sync_api import Browser, Page, expect

from tests import patient

pytest_plugins = "pages.browser_fixtures"
AXE = os.environ.get("AXE")  # Where axe.min.js of axe-core is: then its rules are checked too.
RULES = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map((one) => [one.id, one.nodes[0].html])"
HEAVIEST = 60_000  # Bytes of a page with all that it needs, as sent.
WAYS: dict[str, dict[str, Any]] = {
    "in one go": {},
    "restless": {"restless": True},
    "killed": {"kills": True},
    "keyboard": {"keyboard": True},
}


@pytest.fixture(scope="module")
def shop(payments_table: str, stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """It takes cards and wallets."""
    with open_shop(tmp_path_factory.mktemp("shop"), cards_at(stripe), payments_table, SELLER, CHECKOUT) as campus:
        yield campus


class Stopwatch:
    def __init__(self, walk: Walk) -> None:
        self.walk, self.began = walk, time.monotonic()

    def stop(self, name: str) -> None:
        print(f"\nWALK | {name} | {self.walk.clicks} clicks | {time.monotonic() - self.began:.1f} s", flush=True)


def weigh(walk: Walk) -> None:
    assert walk.bytes_sent <= HEAVIEST, (walk.page.url, walk.bytes_sent)
    assert sideways(walk.page) == 0, walk.page.url
    if AXE:
        walk.page.evaluate(Path(AXE).read_text())
        assert walk.page.evaluate(RULES) == [], walk.page.url


def options(way: str) -> dict[str, Any]:
    return {"viewport": NARROW if way == "keyboard" else WIDE, "has_touch": way == "keyboard", "bypass_csp": bool(AXE)}


def is_told(walk: Walk) -> None:
    """From the key that was shown to a watch of the report."""
    goes_on_with_the_report(walk)
    weigh(walk)
    walk.type("Name", "app")
    walk.type("Webhook", HOOK)
    walk.button("Tell me")
    walk.shows("app is watched from the next list on", "not tested yet")
    weigh(walk)
    expect(walk.page.locator(".note.good")).to_have_count(0)


@pytest.mark.parametrize("way", [*WAYS, "without scripts"])
def test_a_visitor_with_a_report_buys_by_card(browser: Browser, shop: Shop, stripe: StripeServer, tmp_path: Path, way: str) -> None:
    script = way != "without scripts"
    with open_page(browser, java_script_enabled=script, **options(way)) as page:
        walk = Walk(page, shop, **WAYS.get(way, {}))
        watch = Stopwatch(walk)
        walk.open("/")
        put_in_order(walk, tmp_path, script=script)
        walk.shows("CVE-2021-44228", "Be told when this changes", "By card or USDC.", "Harbour Ltd")
        if script:
            weigh(walk)
        walk.link("Buy pass")
        if script:
            walk.arrives("/pricing/pass")
            weigh(walk)
        buy_by_card(walk, stripe)
        if script:
            weigh(walk)
        watch.stop(f"report to a key by card, {way}")
        if script:
            is_told(walk)
        watch.stop(f"report to told by card, {way}")


@pytest.mark.parametrize("way", WAYS)
def test_a_visitor_with_a_report_buys_by_wallet(browser: Browser, shop: Shop, wallet: BrowserWallet, tmp_path: Path, way: str) -> None:
    wallet.fund(30)
    with open_page(browser, **options(way)) as page:
        wallet.open_in(page)
        walk = Walk(page, shop, **WAYS[way])
        watch = Stopwatch(walk)
        walk.open("/")
        put_in_order(walk, tmp_path)
        walk.link("Buy pass")
        walk.arrives("/pricing/pass")
        weigh(walk)
        buy_by_wallet(walk)
        weigh(walk)
        assert wallet.dollars == 1
        watch.stop(f"report to a key by wallet, {way}")
        is_told(walk)
        watch.stop(f"report to told by wallet, {way}")


@pytest.mark.parametrize("way", WAYS)
def test_an_agents_developer_comes_from_the_first_monitor_to_a_capsule(browser: Browser, shop: Shop, way: str) -> None:
    with open_page(browser, **options(way)) as page:
        walk = Walk(page, shop, **WAYS[way])
        watch = Stopwatch(walk)
        walk.open("/")
        walk.link("Watch your agent")
        walk.arrives("/recorder")
        weigh(walk)
        patient.get(register(walk, f"first {way}")).raise_for_status()
        walk.shows("We heard you")
        weigh(walk)
        watch.stop(f"start page to heard, {way}")
        sign_in(walk, shop.served.key("pass"))
        walk.go_to("Agent monitors")
        beat = register(walk, f"second {way}")
        patient.post(beat, json={"capsule": {"goal": "count the berths"}}).raise_for_status()
        walk.shows("We heard you", "a capsule of")
        walk.link("See the monitor")
        walk.shows("count the berths", "alive")
        weigh(walk)
        watch.stop(f"signing in to a capsule, {way}")


def test_a_first_visitor_of_the_first_day_finds_nothing_false(browser: Browser, tmp_path: Path) -> None:
    with open_shop(tmp_path, cve="sample = false", environ={}) as bare, open_page(browser, viewport=NARROW, bypass_csp=bool(AXE)) as page:
        walk = Walk(page, bare)
        paths = ("/", "/cve", "/cve/report", "/cve/watches", "/recorder", "/pricing", "/pricing/pass", "/keys", "/status", "/connect")
        for path in paths:
            walk.open(path)
            weigh(walk)
            print(f"\nFIRST DAY {path}: {page.inner_text('main')[:1500]}")
            assert page.get_by_role("button", name="Buy by card").count() == 0
            assert page.locator(".note.good").count() == 0


@pytest.mark.parametrize("script", [True, False])
def test_the_holder_of_an_ending_or_expired_key_renews_it(browser: Browser, stripe: StripeServer, tmp_path: Path, script: bool) -> None:
    with open_shop(tmp_path, cards_at(stripe), SELLER) as campus, open_page(browser, java_script_enabled=script) as page:
        key = campus.served.key("pass")
        for state in ("valid", "expired"):
            if state == "expired":
                end_all_keys(campus)
                page.context.clear_cookies()
            walk = Walk(page, campus)
            watch = Stopwatch(walk)
            sign_in(walk, key)
            walk.link("Renew it")
            walk.button("Renew by card")
            walk.button("Pay")
            walk.shows("Your key is renewed")
            walk.link("See your key")
            walk.shows("valid")
            watch.stop(f"{state} key renewed by card, {script=}")


def end_all_keys(campus: Shop) -> None:
    campus.kill()
    with sqlite3.connect(campus.served.config.parent / "data" / "campus.db") as database:
        database.execute("UPDATE keys SET expires_at = datetime('now', '-1 day')")
    campus.begin()


def test_the_holder_of_a_key_that_is_used_up_goes_on_after_a_renewal(browser: Browser, stripe: StripeServer, tmp_path: Path) -> None:
    credits = 'credits = "0.04"'  # two calls of top_cves_today
    with open_shop(tmp_path, cards_at(stripe), SELLER, pass_more=credits) as campus, open_page(browser) as page:
        key = campus.served.key("pass")

        def called() -> int:
            return patient.get(f"{campus.url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"}).status_code

        assert [called() for _ in range(3)] == [200, 200, 402]
        walk = Walk(page, campus)
        watch = Stopwatch(walk)
        sign_in(walk, key)
        walk.shows("no calls left", "$0.00 left")
        walk.link("top_cves_today")
        walk.button("Call")
        walk.link("Renew your key")
        walk.link("Renew it")
        walk.button("Renew by card")
        walk.button("Pay")
        walk.shows("Your key is renewed")
        assert called() == 200
        watch.stop("used up, renewed by card")


def test_without_scripts_all_but_the_wallet_and_stripes_page_work(browser: Browser, shop: Shop) -> None:
    with open_page(browser, java_script_enabled=False, viewport=NARROW) as page:
        walk = Walk(page, shop)
        watch = Stopwatch(walk)
        sign_in(walk, shop.served.key("pass"))
        is_told_without_scripts(walk, page)
        walk.go_to("Agent monitors")
        patient.get(register(walk, "plain")).raise_for_status()
        with page.context.expect_page() as opened:  # another tab, since this one shows the secret
            walk.link("Look again")
        expect(opened.value.locator("main")).to_contain_text("We heard you")
        watch.stop("signed in to told and heard, without scripts")


def is_told_without_scripts(walk: Walk, page: Page) -> None:
    walk.open("/cve/report")
    walk.press(page.get_by_text("Or paste it, or CVEs").first)
    page.get_by_label("A report, or CVEs").fill(REPORT)
    walk.button("Put in order")
    walk.shows("3 findings")
    walk.type("Name", "pasted")
    walk.button("Tell me")
    walk.shows("pasted is watched from the next list on")
