"""Fixtures of tests in a browser, a plugin of pytest: Chromium, Stripe, and what wallets pay on. One of each for a module."""

import json
from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from features.cards.stripe_server import StripeServer, open_stripe
from pages.browser_wallet import BrowserWallet
from pages.browsers import open_browser
from playwright.sync_api import Browser

from campus.features.chain import Chain, open_chain, open_facilitator

PAY_TO = "0x" + "11" * 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeServer]:
    with open_stripe() as opened:
        yield opened


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """Another thread's event loop: Playwright has that of the test's."""
    with start_blocking_portal() as opened:
        yield opened


@pytest.fixture(scope="module")
def wallets_chain(portal: BlockingPortal) -> Iterator[Chain]:
    with portal.wrap_async_context_manager(open_chain()) as opened:
        yield opened


@pytest.fixture(scope="module")
def payments_table(portal: BlockingPortal, wallets_chain: Chain) -> Iterator[str]:
    """[payments] of a campus.toml, with a facilitator of that chain."""
    with portal.wrap_async_context_manager(open_facilitator(wallets_chain)) as facilitator:
        lines = [f"{name} = {json.dumps(value)}" for name, value in facilitator.table(PAY_TO).items()]
        yield "\n".join(["[payments]", *lines, "chain_wait_seconds = 5", ""])


@pytest.fixture
def wallet(wallets_chain: Chain, portal: BlockingPortal) -> BrowserWallet:
    return BrowserWallet(wallets_chain, portal)
