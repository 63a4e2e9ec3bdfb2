"""A person buys a key by card in a real Chromium: Back, reload, a second tab, another browser, and a server killed before the return."""

import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from features.cards.stripe_server import KEY, SECRET, StripeServer, open_stripe
from pages.browsers import NARROW, open_browser, open_page, sideways
from patience import patience
from playwright.sync_api import Browser, Page, expect
from serving import Served, serving, start, wait_until_it_answers

from tests import patient

CONFIG = """
[storage]
url = "sqlite:data"
[cards]
api_url = "{stripe}"
[seller]
name = "Harbour Ltd"
address = "1 Quay"
contact = "mailto:shop@example.org"
[products.everything]
title = "Everything & more"
scope = "all"
price = "29"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
"""
SECRETS = {"CAMPUS_CARDS_API_KEY": KEY, "CAMPUS_CARDS_WEBHOOK_SECRET": SECRET}


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeServer]:
    with open_stripe() as opened:
        yield opened


@pytest.fixture(scope="module")
def served(stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("shop"), CONFIG.format(stripe=stripe.url), environ=SECRETS) as campus:
        yield campus


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def to_stripe(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/pricing")
    page.get_by_role("button", name="Buy by card").click()
    expect(page.get_by_role("heading", name="Everything & more")).to_be_visible()
    expect(page.get_by_text("$29.00")).to_be_visible()


def shown_key(page: Page) -> str:
    expect(page.get_by_role("heading", level=1, name="Your key")).to_be_visible()
    return page.locator("main pre code").first.inner_text()


def test_two_clicks_and_a_card_buy_a_key_that_this_browser_alone_is_shown_again(
    browser: Browser, served: Served, stripe: StripeServer
) -> None:
    stripe.hook = f"{served.url}/v1/cards/webhook"
    with open_page(browser, viewport=NARROW) as page, open_page(browser) as other:
        to_stripe(page, served)
        page.go_back()
        expect(page).to_have_url(f"{served.url}/pricing")  # Back leads to the shop, not to a page that leads on
        page.get_by_role("button", name="Buy by card").click()
        page.get_by_role("button", name="Pay").click()
        key = shown_key(page)
        assert len(stripe.sessions) <= 2
        assert key not in page.url
        assert sideways(page) == 0
        headers = {"Authorization": f"Bearer {key}"}
        assert patient.get(f"{served.url}/v1/brief/today", headers=headers).status_code == 200
        page.reload()
        assert shown_key(page) == key
        page.go_back()
        page.go_forward()
        assert shown_key(page) == key
        with page.context.new_page() as tab:
            tab.goto(page.url)
            assert shown_key(tab) == key
        other.goto(page.url)
        expect(other.get_by_role("heading", level=1)).to_have_text("This was sold")
        assert key not in other.content()
        page.get_by_role("button", name="Receipt").click()
        for text in ("$29.00", "by card", "Harbour Ltd", str(stripe.last["payment_intent"])):
            expect(page.locator(".receipt")).to_contain_text(text)
    assert "card-test: $29 by 1 payments" in served.command("ledger", "sum").stdout
    stripe.hook = None


def test_a_server_that_was_killed_before_the_buyer_came_back_shows_the_key_then(served: Served, stripe: StripeServer) -> None:
    with patient.Client(base_url=served.url, headers={"Accept": "text/html"}) as buyer:
        form = re.search(r'name="form_token" value="([^"]+)"', buyer.get("/keys").text)
        assert form is not None
        begun = buyer.post("/pricing/everything/card", data={"form_token": form[1]})
        assert begun.status_code == 303
        served.process.send_signal(signal.SIGKILL)
        served.process.wait(patience(20))
        stripe.pay()
        with Path(served.config).with_suffix(".log").open("ab") as log:
            again = start(served.words, served.environ, log)
        try:
            wait_until_it_answers(replace(served, process=again))
            assert "campus_live_" in buyer.get(begun.headers["location"].removesuffix("/pay")).text
        finally:
            again.send_signal(signal.SIGTERM)
            again.wait(patience(20))
