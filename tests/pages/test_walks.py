"""Two walks from the start page to what is worth money, in a real browser, with the server killed after each step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from features.cards.stripe_server import StripeServer
from pages.browsers import NARROW, open_page
from pages.walks import HOOK, SELLER, Shop, Walk, buy_by_card, cards_at, goes_on_with_the_report, open_shop, put_in_order, register
from playwright.sync_api import Browser, expect

from tests import patient

pytest_plugins = "pages.browser_fixtures"


@pytest.fixture(scope="module")
def shop(browser: Browser, stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop"), cards_at(stripe), SELLER) as opened:
        yield opened


def test_a_visitor_with_a_report_has_a_key_by_card_and_is_told_of_changes_though_the_server_is_killed_at_each_step(
    browser: Browser, shop: Shop, stripe: StripeServer, tmp_path: Path
) -> None:
    with open_page(browser, viewport=NARROW) as page:
        walk = Walk(page, shop, kills=True)
        walk.open("/")
        put_in_order(walk, tmp_path)
        walk.shows("CVE-2021-44228", "Be told when this changes", "By card.", "Harbour Ltd")
        walk.link("Buy pass")
        key = buy_by_card(walk, stripe)
        goes_on_with_the_report(walk)
        walk.type("Name", "app")
        walk.type("Webhook", HOOK)
        walk.button("Tell me")
        walk.shows("app is watched from the next list on", "not tested yet")
        expect(page.locator(".note.good")).to_have_count(0)  # nobody knows yet whether a message would arrive
        assert walk.clicks == 7
        assert len(stripe.sessions) == 1
        assert patient.get(f"{shop.url}/v1/brief/today", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_an_agents_developer_is_heard_without_a_key_though_the_server_is_killed_at_each_step(browser: Browser, shop: Shop) -> None:
    with open_page(browser) as page:
        walk = Walk(page, shop, kills=True)
        walk.open("/")
        walk.link("Watch your agent")
        beat = register(walk, "nightly")
        patient.get(beat).raise_for_status()
        walk.shows("We heard you")
        assert walk.clicks == 2
