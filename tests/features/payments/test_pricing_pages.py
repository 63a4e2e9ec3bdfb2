"""A person buys a key in a real Chromium, with a wallet on a real local chain: the prices, the purchase, its failures, and the receipt."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pages.browser_wallet import BrowserWallet
from pages.browsers import NARROW, open_browser, open_page, sideways
from playwright.sync_api import Browser, Page, Route, expect
from serving import Served, serving

from buildings.cve.building import building as cve
from campus.features.chain import Chain, Facilitator, open_chain, open_facilitator
from campus.testing import open_campus
from tests import patient

CONFIG = """
[storage]
url = "sqlite:data"
[payments]
{payments}
chain_wait_seconds = 5
[products.everything]
title = "Everything & more"
description = "For a <b>team</b>."
scope = "all"
price = "29"
term = "30 days"
calls = 10000
recommended = true
[products.shop]
scope = "cve"
price = "19"
term = "30 days"
url = "https://shop.example/cve"
[seller]
name = "Ada Ltd."
contact = "mailto:ada@shop.example"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
[buildings.recorder]
[buildings.checkout]
grants = ["keys"]
"""
PAY_TO = "0x" + "11" * 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as opened:
        yield opened


@pytest.fixture(scope="module")
def chain(portal: BlockingPortal) -> Iterator[Chain]:
    with portal.wrap_async_context_manager(open_chain()) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(portal: BlockingPortal, chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    opened: Facilitator
    with portal.wrap_async_context_manager(open_facilitator(chain)) as opened:
        lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in opened.table(PAY_TO).items())
        with serving(tmp_path_factory.mktemp("shop"), CONFIG.format(payments=lines)) as campus:
            yield campus


@pytest.fixture
def wallet(chain: Chain, portal: BlockingPortal) -> BrowserWallet:
    return BrowserWallet(chain, portal)


def bought_key(page: Page) -> str:
    expect(page.get_by_role("heading", level=1, name="Your key")).to_be_focused()
    key = page.locator("#bought pre code").first.inner_text()
    assert key.startswith("campus_live_")
    return key


def opens(served: Served, key: str) -> int:
    return patient.get(f"{served.url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_buyer_has_a_key_after_six_clicks_and_a_receipt_without_a_secret(browser: Browser, served: Served, wallet: BrowserWallet) -> None:
    wallet.fund(30)
    wallet.network = 1
    with open_page(browser, viewport=NARROW, permissions=["clipboard-read", "clipboard-write"]) as page:
        wallet.open_in(page)
        page.goto(served.url)
        page.get_by_role("navigation").get_by_role("link", name="Pricing").click()
        card = page.locator("#everything")
        expect(card.get_by_role("heading")).to_have_text("Everything & more")
        for text in ("Recommended", "For a <b>team</b>.", "20 monitors", "10,000 calls a month", "Seller: Ada Ltd.; sales are final."):
            expect(card).to_contain_text(text)
        before = card.locator(".terms").bounding_box(), card.get_by_role("link", name="Buy").bounding_box()
        assert before[0] is not None
        assert before[1] is not None
        assert before[0]["y"] < before[1]["y"], "who sells, and that it is final, is read before the button"
        expect(page.locator(".prices > li").first).to_contain_text("Feeds of what attackers newly use")
        assert "POST " not in page.inner_text("main")
        expect(page.locator("#shop").get_by_role("link", name="Buy")).to_have_attribute("href", "https://shop.example/cve")
        assert sideways(page) == 0
        card.get_by_role("link", name="Buy").click()
        page.get_by_role("button", name="Pay with Test Wallet").click()
        key = bought_key(page)
        confirmed_in_the_wallet = ["eth_requestAccounts", "wallet_switchEthereumChain", "eth_signTypedData_v4"]
        assert [one for one in wallet.asked if one in confirmed_in_the_wallet] == confirmed_in_the_wallet
        assert (opens(served, key), wallet.dollars) == (200, 1)
        assert sideways(page) == 0
        assert key not in page.url
        page.get_by_role("button", name="Copy: Everything & more").click()
        assert page.evaluate("navigator.clipboard.readText()") == key
        assert page.evaluate("sessionStorage.getItem('campus purchase everything')") is None
        page.get_by_role("button", name="Receipt").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Receipt")
        for text in (
            "$29.00 paid in USDC",
            "Ada Ltd.",
            "Receipt number",
            "29.00 US dollars",
            "Base",
            wallet.wallet.address.lower(),
            "key_",
        ):
            expect(page.locator(".receipt")).to_contain_text(text)
        assert key not in page.content()
        assert sideways(page) == 0
        transaction = page.locator(".receipt").inner_text().split("Transaction")[1].split()[0]
        receipt = wallet.portal.call(wallet.chain.rpc, "eth_getTransactionReceipt", transaction)
        assert int(receipt["status"], 16) == 1
    assert patient.get(f"{served.url}/keys/receipt").headers["location"] == "/keys?next=/keys/receipt"
    told = patient.get(f"{served.url}/keys/receipt", headers={"Authorization": f"Bearer {served.key('everything')}"})
    assert (transaction in told.text, told.headers["cache-control"]) == (False, "private, no-store")


def test_an_answer_that_is_lost_after_the_payment_is_the_same_key_after_a_reload(
    browser: Browser, served: Served, wallet: BrowserWallet
) -> None:
    wallet.fund(100)
    answers: list[dict[str, Any]] = []

    def lose(route: Route) -> None:
        if "payment-signature" not in route.request.headers:
            route.continue_()
            return
        answers.append(route.fetch().json())
        route.abort()

    with open_page(browser) as page:
        wallet.open_in(page)
        page.goto(f"{served.url}/pricing/everything")
        page.route("**/v1/checkout/keys", lose)
        page.get_by_role("button", name="Pay with Test Wallet").click()
        expect(page.get_by_role("status")).to_contain_text("The answer did not arrive.")
        expect(page.get_by_role("button", name="Ask again for the key")).to_be_focused()
        page.unroute("**/v1/checkout/keys")
        page.reload()
        assert bought_key(page) == answers[0]["key"]
        page.reload()  # a person who closed nothing and copied nothing has lost nothing
        assert bought_key(page) == answers[0]["key"]
    assert wallet.dollars == 71


def test_the_owner_of_a_key_renews_it_by_a_wallet_and_no_link_makes_anybody_renew_anothers(
    browser: Browser, served: Served, wallet: BrowserWallet
) -> None:
    wallet.fund(30)
    key = served.key("everything")
    stranger = patient.get(f"{served.url}/pricing/everything?renew=key_of_another", headers={"Accept": "text/html"})
    assert (stranger.status_code, stranger.headers["location"]) == (303, "/keys?next=/keys")
    other = patient.get(f"{served.url}/pricing/shop?renew", headers={"Authorization": f"Bearer {key}", "Accept": "text/html"})
    assert (other.status_code, "only everything renews it; to have shop, buy it as a new key" in other.text) == (409, True)
    with open_page(browser, viewport=NARROW) as page:
        wallet.open_in(page)
        page.goto(f"{served.url}/keys")
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Renew as Everything & more").click()
        expect(page.locator("#pay")).to_contain_text(re.compile(r"key_\w+, which stays as it is"))
        assert sideways(page) == 0
        page.get_by_role("button", name="Pay with Test Wallet").click()
        expect(page.get_by_role("heading", level=1, name="Your key is renewed")).to_be_focused()
        page.get_by_role("link", name="See your key").click()
        expect(page.locator("main")).to_contain_text("60 days left")
        assert sideways(page) == 0
    assert (opens(served, key), wallet.dollars) == (200, 1)


def refuse(wallet: BrowserWallet) -> None:
    wallet.fund(27)
    wallet.refuses = True


def be_elsewhere(wallet: BrowserWallet) -> None:
    wallet.refuses = False
    wallet.network, wallet.knows = 1, {1}


def be_busy(wallet: BrowserWallet) -> None:
    wallet.is_busy = True


def be_poor(wallet: BrowserWallet) -> None:
    wallet.fund(3)


FAILURES: tuple[tuple[Callable[[BrowserWallet], None], str], ...] = (
    (be_poor, "This wallet has $3.00 in USDC on Base, which is too little. Nothing was charged."),
    (refuse, "You refused in your wallet. Nothing was charged."),
    (be_elsewhere, "Your wallet does not know Base. Add that network to it, and try again. Nothing was charged."),
    (be_busy, "Your wallet has a question open already: answer it there, and try again. Nothing was charged."),
)


def test_a_purchase_that_fails_says_why_and_charges_nothing(browser: Browser, served: Served, wallet: BrowserWallet) -> None:
    with open_page(browser) as page:
        page.goto(f"{served.url}/pricing/everything")
        expect(page.get_by_role("status")).to_contain_text("There is no wallet in this browser.")
        wallet.open_in(page)
        for prepare, told in FAILURES:
            prepare(wallet)
            before = wallet.dollars
            page.goto(f"{served.url}/pricing/everything")
            pay = page.get_by_role("button", name="Pay with Test Wallet")
            pay.focus()
            page.keyboard.press("Enter")
            expect(page.get_by_role("status")).to_have_text(told)
            expect(pay).to_be_focused()
            assert page.evaluate("sessionStorage.getItem('campus purchase everything')") == "null"
            assert wallet.dollars == before


async def the_card_says_whom_to_ask() -> None:
    tables = {"seller": {"contact": "mailto:ada@campus.example"}, "products": {"pass": {"scope": "all", "price": "29", "term": "30 days"}}}
    async with open_campus(tables=tables, settings={"sample": True}, cve=cve) as campus:

        async def page(path: str) -> str:
            return (await campus.http.get(path, headers={"Accept": "text/html"})).text

        pricing, product, refused = [await page(path) for path in ("/pricing", "/pricing/pass", "/v1/brief/today")]
        for text in (pricing, product):
            assert '<a class="button" href="mailto:ada@campus.example" rel="noreferrer">Ask for it' in text
        assert "sales are final." in product
        assert "wallet.js" not in product
        primary, second = re.findall(r'<a class="button[^"]*" href="([^"]*)"[^>]*>([^<]+)<', refused.partition("<main")[2])[:2]
        assert (primary[0].startswith("/pricing/pass"), primary[1]) == (True, "Get Pass: $29 for 30 days")
        assert second[1] == "Sign in with your key"
        assert (await campus.http.get("/pricing/nothing")).status_code == 404
        unlock = (await campus.http.get("/v1/brief/today")).json()["unlock"]
        assert unlock[0]["get"] == "from the operator of this service: mailto:ada@campus.example"


def test_without_a_shop_and_without_payments_the_card_says_whom_to_ask(portal: BlockingPortal) -> None:
    portal.call(the_card_says_whom_to_ask)
