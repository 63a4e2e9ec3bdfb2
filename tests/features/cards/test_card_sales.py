"""A key bought by card, in process: what Stripe says, once, twice, late, never, in any order and of another sale."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import time
from typing import Any

import anyio
import httpx
import pytest
from features.cards.stripe_server import KEY, SECRET, StripeServer, open_stripe, signed
from pages.harbour import make_harbour

from campus.errors import ConfigError
from campus.features.payments.ledger import Accounts, Period
from campus.testing import Clock, TestCampus, open_campus
from tests import patient
from tests.postgres_server import Postgres

pytestmark = pytest.mark.anyio
ORIGIN = "http://campus.test"
WEBHOOK = "/v1/cards/webhook"
SECRETS = {"CAMPUS_CARDS_API_KEY": KEY, "CAMPUS_CARDS_WEBHOOK_SECRET": SECRET}


@dataclass
class Shop:
    campus: TestCampus
    stripe: StripeServer
    clock: Clock
    address: str = ""
    begun_here: list[str] = field(default_factory=list)

    def browser(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.campus.app, client=(self.address, 1))
        return patient.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Accept": "text/html"})

    async def begin(self, browser: httpx.AsyncClient, product: str = "harbour", *, key: str | None = None, **sent: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = await buy(browser, {"form_token": await token_of(browser), **sent}, product, headers)
        self.begun_here.extend(re.findall(r"card_\w+", answer.headers.get("location", "")))
        return answer

    async def begun(self, browser: httpx.AsyncClient) -> str:
        answer = await self.begin(browser)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].removesuffix("/pay")

    async def hook(self, event: Mapping[str, Any], **options: Any) -> int:
        body, headers = signed(event, **options)
        return (await self.campus.http.post(WEBHOOK, content=body, headers=headers)).status_code

    async def ledger(self) -> Sequence[tuple[str, str | None, int | None]]:
        entries = await Accounts(self.campus.service.core.storage).last(100, Period())
        return [(one.event, one.network, one.amount) for one in entries if one.payment_id in self.begun_here]

    async def income(self) -> int:
        """What the ledger says was earned, in millionths."""
        return sum({"settled": 1, "reversed": -1}.get(event, 0) * (amount or 0) for event, _, amount in await self.ledger())

    async def key_state(self, key: str) -> str:
        return (await self.campus.service.keys.tokens.find(key)).state


async def buy(
    browser: httpx.AsyncClient, sent: Mapping[str, str], product: str = "harbour", headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """The answer to the form: the way to Stripe, or the page of a refusal, which has an address of its own."""
    answer = await browser.post(f"/pricing/{product}/card", data=dict(sent), headers=headers)
    place = answer.headers.get("location", "")
    return await browser.get(place) if place.startswith("/answers") else answer


async def token_of(browser: httpx.AsyncClient) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', (await browser.get("/keys")).text)
    if found is None:  # signed in: any form of the page
        raise AssertionError("no form")
    return found[1]


def key_in(page: str) -> str | None:
    found = re.search(r"campus_live_[0-9A-Za-z]+", page)
    return found and found[0]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[Shop]:
    """One campus for all tests, each of which comes from an address of its own."""
    clock = Clock()
    with open_stripe() as stripe:
        stripe.now = lambda: clock().timestamp()
        tables = {"cards": {"api_url": stripe.url}}
        async with open_campus(harbour=make_harbour(), clock=clock, tables=tables, secrets=SECRETS) as campus:
            yield Shop(campus, stripe, clock)


@pytest.fixture
async def shop(opened: Shop) -> Shop:
    opened.clock.move(timedelta(minutes=2))
    opened.stripe.events.clear()
    opened.stripe.status = None
    return replace(opened, address=f"10.0.{len(opened.stripe.sessions)}.{len(opened.stripe.asked) % 250}", begun_here=[])


async def test_the_browser_that_paid_is_shown_its_key_and_no_other_is(shop: Shop) -> None:
    async with shop.browser() as buyer, shop.browser() as other:
        sale = await shop.begun(buyer)
        leading = await buyer.get(f"{sale}/pay")
        assert leading.headers["refresh"] == f"0; url={shop.stripe.last['url']}"
        assert "refresh" not in (await other.get(f"{sale}/pay")).headers
        assert shop.stripe.last["url"] not in (await other.get(sale)).text
        before = await buyer.get(sale)
        assert "not paid yet" in before.text
        assert key_in(before.text) is None
        shop.stripe.pay()
        page = await buyer.get(sale)  # no webhook came: the page asks
        key = key_in(page.text)
        assert key is not None
        assert page.headers["cache-control"] == "private, no-store"
        assert await shop.key_state(key) == "valid"
        assert key_in((await buyer.get(sale)).text) == key_in((await buyer.get(f"{sale}/pay", follow_redirects=True)).text) == key
        seen = (await other.get(sale)).text
        assert "This was sold" in seen
        assert key not in seen
        assert await shop.ledger() == [("settled", "card-test", 19_000_000)]
        signed_in = await buyer.post("/keys", data={"form_token": await token_of(buyer), "key": key})
        assert signed_in.status_code == 303
        assert key_in((await buyer.get(sale)).text) == key
        receipt = (await buyer.get("/keys/receipt")).text
        for text in ("19.00", "by card", shop.stripe.last["payment_intent"], sale.rpartition("/")[2]):
            assert text in receipt
        assert key not in receipt
        shop.clock.move(timedelta(days=1))
        await shop.campus.run("cards.reconcile_cards")
        assert key_in((await buyer.get(sale)).text) is None


async def test_a_webhook_twice_after_the_page_and_before_it_delivers_once(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        event = shop.stripe.pay()
        asked = len(shop.stripe.asked)
        assert [await shop.hook(event), await shop.hook(event)] == [200, 200]
        key = key_in((await buyer.get(sale)).text)
        assert len(shop.stripe.asked) == asked  # nobody needs to ask
        expired = {**event, "type": "checkout.session.expired", "data": {"object": {**event["data"]["object"], "status": "expired"}}}
        assert await shop.hook(expired) == 200
        assert await shop.key_state(str(key)) == "valid"
        assert await shop.ledger() == [("settled", "card-test", 19_000_000)]


@pytest.mark.parametrize("wrong", [{"secret": "whsec_other"}, {"at": time() - 600}])
async def test_a_webhook_that_stripe_did_not_sign_just_now_is_refused(shop: Shop, wrong: Mapping[str, Any]) -> None:
    async with shop.browser() as buyer:
        await shop.begun(buyer)
        assert await shop.hook(shop.stripe.pay(), **wrong) == 400
        assert (await shop.campus.http.post(WEBHOOK, content=b"\xff{")).status_code == 400
        assert await shop.ledger() == []


@pytest.mark.parametrize(
    "words",
    [
        {"amount_total": 1},
        {"currency": "eur"},
        {"livemode": True},
        {"id": "cs_test_other"},
        {"payment_status": "no_payment_required"},
        {"payment_status": "settled_later"},
        {"status": "archived"},
        {"status": "expired"},
    ],
)
async def test_words_that_do_not_fit_the_sale_deliver_nothing_and_are_noted_once(shop: Shop, words: Mapping[str, Any]) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        event = shop.stripe.pay()
        event["data"]["object"] |= words
        assert [await shop.hook(event), await shop.hook(event)] == [200, 200]
        page = (await buyer.get(sale)).text
        assert "Nobody can tell yet" in page
        assert key_in(page) is None
        assert [event for event, *_ in await shop.ledger()] == ["unknown"]
        assert await shop.income() == 0
        assert any(sale.rpartition("/")[2] in one for one in (await shop.campus.service.ask("check"))["[cards]"])


@pytest.mark.parametrize("change", [{"livemode": True}, {"type": "customer.created"}, {"type": "checkout.session.thawed"}])
async def test_an_event_of_the_other_mode_or_of_another_kind_changes_nothing(shop: Shop, change: Mapping[str, Any]) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        event = shop.stripe.pay()
        shop.stripe.last["payment_status"] = "unpaid"
        shop.stripe.last["status"] = "open"
        assert await shop.hook({**event, **change}) == 200
        assert "not paid yet" in (await buyer.get(sale)).text
        assert await shop.ledger() == []


async def test_a_session_of_another_shop_of_the_account_is_left_alone_and_a_lost_sale_is_reported(shop: Shop) -> None:
    async with shop.browser() as buyer:
        await shop.begun(buyer)
        event = shop.stripe.pay()
        session = event["data"]["object"]
        others = {**session, "id": "cs_test_other", "metadata": {"campus": "https://other.example"}}
        assert await shop.hook({**event, "data": {"object": others}}) == 200
        assert await shop.ledger() == []
        shop.begun_here.append("card_" + "0" * 16)
        lost = {**event, "data": {"object": {**session, "client_reference_id": shop.begun_here[-1]}}}
        assert [await shop.hook(lost), await shop.hook(lost)] == [200, 200]
        assert [event for event, *_ in await shop.ledger()] == ["unknown"], "there is no key to deliver, however often it is said"
        assert any(shop.begun_here[-1] in one for one in (await shop.campus.service.ask("check"))["[cards]"])


async def test_a_sale_that_began_under_another_address_of_this_campus_is_delivered(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        shop.stripe.last["metadata"]["campus"] = "https://before.example"
        assert await shop.hook(shop.stripe.pay()) == 200
        assert key_in((await buyer.get(sale)).text) is not None


async def test_an_unpaid_sale_ends_and_nothing_of_it_is_left(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        shop.clock.move(timedelta(hours=1))
        shop.stripe.status = 500
        with pytest.raises(Exception, match="Stripe does not answer"):
            await shop.campus.run("cards.reconcile_cards")
        assert "Stripe does not say" in (await buyer.get(sale)).text
        shop.stripe.status = None
        shop.stripe.last["status"] = "expired"
        await shop.campus.run("cards.reconcile_cards")
        assert (await buyer.get(sale)).status_code == 404
        assert await shop.ledger() == []


async def test_a_payment_of_which_nobody_told_is_found_by_the_job(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        shop.stripe.pay()
        shop.clock.move(timedelta(hours=1))
        await shop.campus.run("cards.reconcile_cards")
        assert len(await shop.ledger()) == 1
        assert key_in((await buyer.get(sale)).text)


async def test_a_form_that_is_sent_again_leads_to_the_same_sale_also_after_a_failure(shop: Shop) -> None:
    async with shop.browser() as buyer:
        before, sent = len(shop.stripe.sessions), {"form_token": await token_of(buyer)}
        shop.stripe.status = 500
        assert (await buy(buyer, sent)).status_code == 503
        shop.stripe.status = None
        places = {(await buy(buyer, sent)).headers["location"] for _ in range(2)}
        assert len(places) == len(shop.stripe.sessions) - before == 1
        shop.stripe.pay()
        sale = places.pop().removesuffix("/pay")
        key = key_in((await buyer.get(sale)).text)
        again = await buyer.post("/pricing/harbour/card", data=sent, follow_redirects=True)
        assert key_in(again.text) == key


async def test_strangers_begin_few_sales_and_send_no_form_of_another_site(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.browser() as buyer:
        before = len(shop.stripe.sessions)
        answers = [(await shop.begin(buyer)).status_code for _ in range(7)]
        assert answers == [303] * 6 + [429]
        shop.clock.move(timedelta(minutes=1))
        assert [(await shop.begin(buyer)).status_code for _ in range(3)] == [303, 303, 429]  # eight are open
        assert (await buy(buyer, {"form_token": "x" * 88})).status_code == 403
        assert (await shop.begin(buyer, "nothing")).status_code == 404
        assert len(shop.stripe.sessions) - before == 8
        shop.clock.move(timedelta(minutes=1))
        monkeypatch.setattr(shop.campus.service.feature("cards").stripe, "is_live", True)
        assert (await shop.begin(buyer)).status_code == 303, "what was left open with a key for tests takes no room"


async def test_who_has_many_networks_leaves_room_for_the_sales_of_others(shop: Shop) -> None:
    strangers = [replace(shop, address=f"2001:db8:7:{number}::1") for number in range(3)]
    async with strangers[0].browser() as one, strangers[1].browser() as two, strangers[2].browser() as three:
        for browser in (one, two):
            assert [(await shop.begin(browser)).status_code for _ in range(6)] == [303] * 6
        shop.clock.move(timedelta(minutes=1))
        for browser in (one, two):
            assert [(await shop.begin(browser)).status_code for _ in range(3)] == [303, 303, 429]
        assert (await shop.begin(three)).status_code == 429, "a /48 has at most twice what one network may have open"
    async with shop.browser() as buyer:
        assert (await shop.begin(buyer)).status_code == 303


@pytest.mark.parametrize("days", [0, 40], ids=["valid", "expired"])
async def test_a_renewal_prolongs_the_visitors_own_key_alone(shop: Shop, days: int) -> None:
    async with shop.browser() as buyer:
        mine, other = await shop.campus.key("harbour"), await shop.campus.key("all")
        shop.clock.move(timedelta(days=days))
        assert (await shop.begin(buyer, renew="1")).headers["location"].startswith("/keys")
        assert (await shop.begin(buyer, renew="1", key=other)).status_code == 409
        answer = await shop.begin(buyer, renew="1", key=mine)
        before = (await shop.campus.service.keys.tokens.find(mine)).key
        assert await shop.hook(shop.stripe.pay()) == 200
        assert "Your key is renewed" in (await buyer.get(answer.headers["location"].removesuffix("/pay"))).text
        after = await shop.campus.service.keys.get(before.id)  # type: ignore[union-attr]  # it is valid
        assert after.expires_at - max(before.expires_at, shop.clock()) == timedelta(days=30)  # type: ignore[union-attr]


async def test_the_holder_of_an_expired_key_renews_it_and_goes_on_where_they_were(shop: Shop) -> None:
    async with shop.browser() as buyer:
        mine = await shop.campus.key("harbour")
        shop.clock.move(timedelta(days=31))
        assert await shop.key_state(mine) == "expired"
        answer = await shop.begin(buyer, renew="1", key=mine, next="/tools/harbour/find")
        address = answer.headers["location"].replace("/pay", "")
        assert address.endswith("?next=/tools/harbour/find")
        assert shop.stripe.last["success_url"] == f"{ORIGIN}{address}"
        assert await shop.hook(shop.stripe.pay()) == 200
        assert await shop.key_state(mine) == "valid"
        sold = (await shop.begin(buyer, next="/tools/harbour/find")).headers["location"].replace("/pay", "")
        assert await shop.hook(shop.stripe.pay()) == 200
        assert '<button name="next" value="/tools/harbour/find">' in (await buyer.get(sold)).text
        assert "?next" not in (await shop.begin(buyer, next="//elsewhere.example")).headers["location"]


async def test_a_renewal_of_a_key_that_was_revoked_meanwhile_is_for_the_operator(shop: Shop) -> None:
    async with shop.browser() as buyer:
        mine = await shop.campus.key("harbour")
        await shop.begin(buyer, renew="1", key=mine)
        await shop.campus.service.keys.revoke(mine)
        assert await shop.hook(shop.stripe.pay()) == 200
        assert [event for event, *_ in await shop.ledger()] == ["unknown"]


SOLD, BACK = ("settled", "card-test", 19_000_000), ("reversed", "card-test", 19_000_000)


async def bought(shop: Shop, buyer: httpx.AsyncClient) -> tuple[str, str]:
    sale = await shop.begun(buyer)
    await shop.hook(shop.stripe.pay())
    return sale, str(key_in((await buyer.get(sale)).text))


@pytest.mark.parametrize("told_twice", [False, True])
async def test_a_dispute_ends_the_key_and_a_won_one_brings_the_money_back(shop: Shop, told_twice: bool) -> None:
    async with shop.browser() as buyer:
        sale, key = await bought(shop, buyer)
        event = shop.stripe.dispute("needs_response")
        for _ in range(1 + told_twice):
            assert await shop.hook(event) == 200
        assert await shop.key_state(key) == "revoked"
        assert "disputed" in (await buyer.get(sale)).text
        assert await shop.ledger() == [SOLD, BACK]
        won = shop.stripe.dispute("won", ended=True)
        for one in (won, event, won)[: 1 + 2 * told_twice]:
            assert await shop.hook(one) == 200
        assert await shop.ledger() == [SOLD, BACK, SOLD]
        assert "decided for the seller" in (await buyer.get(sale)).text


@pytest.mark.parametrize(("status", "state", "entries"), [
    ("warning_needs_response", "valid", [SOLD]),
    ("prevented", "valid", [SOLD]),
    ("thawed", "valid", [SOLD, ("unknown", "card-test", 19_000_000)]),
    ("lost", "revoked", [SOLD, BACK]),
])  # fmt: skip
async def test_a_dispute_takes_a_key_only_where_it_takes_the_money(shop: Shop, status: str, state: str, entries: Sequence[object]) -> None:
    async with shop.browser() as buyer:
        _, key = await bought(shop, buyer)
        event = shop.stripe.dispute(status)
        assert [await shop.hook(event), await shop.hook(event)] == [200, 200]
        assert await shop.key_state(key) == state
        assert await shop.ledger() == entries


async def test_an_inquiry_that_becomes_a_dispute_ends_the_key(shop: Shop) -> None:
    async with shop.browser() as buyer:
        _, key = await bought(shop, buyer)
        assert await shop.hook(shop.stripe.dispute("warning_needs_response")) == 200
        assert await shop.key_state(key) == "valid"
        assert await shop.hook({**shop.stripe.dispute("needs_response"), "type": "charge.dispute.updated"}) == 200
        assert (await shop.key_state(key), await shop.ledger()) == ("revoked", [SOLD, BACK])


async def test_a_dispute_that_is_heard_before_its_sale_leaves_no_key(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale = await shop.begun(buyer)
        paid = shop.stripe.pay()
        assert await shop.hook(shop.stripe.dispute("needs_response")) == 200
        assert await shop.hook(paid) == 200
        assert key_in((await buyer.get(sale)).text) is None
        assert await shop.ledger() == [SOLD, BACK]


async def test_a_refund_corrects_the_ledger_and_a_whole_one_ends_the_key(shop: Shop) -> None:
    async with shop.browser() as buyer:
        sale, key = await bought(shop, buyer)
        part, rest = shop.stripe.refund(500), shop.stripe.refund(1900)
        assert [await shop.hook(part), await shop.hook(part)] == [200, 200]
        assert await shop.key_state(key) == "valid"
        assert (await shop.income(), [event for event, *_ in await shop.ledger()]) == (14_000_000, ["settled", "reversed", "settled"])
        assert [await shop.hook(rest), await shop.hook(part)] == [200, 200]
        assert await shop.key_state(key) == "revoked"
        assert await shop.income() == 0
        assert "refunded" in (await buyer.get(sale)).text


async def test_a_refund_after_a_dispute_that_was_won_is_no_income(shop: Shop) -> None:
    async with shop.browser() as buyer:
        await bought(shop, buyer)
        for event in (shop.stripe.dispute("needs_response"), shop.stripe.dispute("won", ended=True)):
            assert await shop.hook(event) == 200
        assert await shop.income() == 19_000_000
        assert [await shop.hook(shop.stripe.refund(cents)) for cents in (500, 1900)] == [200, 200]
        assert await shop.income() == 0


async def test_two_processes_that_hear_of_one_payment_deliver_one_key(postgres: Postgres) -> None:
    name = postgres.create_database()
    with open_stripe() as stripe:
        tables = {"cards": {"api_url": stripe.url}}
        shared = partial(open_campus, storage=postgres.url(name), tables=tables, secrets=SECRETS)
        async with shared(harbour=make_harbour()) as one, shared(harbour=make_harbour()) as other:
            first, second = Shop(one, stripe, Clock(), "10.1.0.1"), Shop(other, stripe, Clock(), "10.1.0.1")
            async with first.browser() as buyer:
                sale = await first.begun(buyer)
                event = stripe.pay()
                async with anyio.create_task_group() as tasks:
                    for shop in (first, second) * 3:
                        tasks.start_soon(shop.hook, event)
                    tasks.start_soon(buyer.get, sale)
                assert key_in((await buyer.get(sale)).text)
                assert await first.ledger() == [SOLD]
                assert len(await one.service.keys.list()) == 1
    postgres.drop_database(name)


async def test_campus_check_says_what_cards_still_lack(opened: Shop) -> None:
    tables = {"cards": {"api_url": opened.stripe.url}}
    secrets = {**SECRETS, "CAMPUS_CARDS_API_KEY": "sk_test_other"}
    async with open_campus(harbour=make_harbour(), tables=tables, secrets=secrets) as campus:
        key, address = (await campus.service.ask("check"))["[cards]"]
    assert "CAMPUS_CARDS_API_KEY" in key
    assert "https" in address


@pytest.mark.parametrize(("key", "secret", "price", "why"), [
    ("", SECRET, "19", "set CAMPUS_CARDS_API_KEY"),
    ("pk_test_public", SECRET, "19", "set CAMPUS_CARDS_API_KEY"),
    (f"{KEY} ", SECRET, "19", "set CAMPUS_CARDS_API_KEY"),
    (KEY, "", "19", "http.*/v1/cards/webhook at Stripe"),
    (KEY, SECRET, "0.30", "from \\$0.50 on"),
    (KEY, SECRET, "19.005", "whole cents"),
])  # fmt: skip
async def test_what_cannot_be_sold_by_card_is_refused_at_the_start(key: str, secret: str, price: str, why: str) -> None:
    products = {"harbour": {"scope": "harbour", "price": price, "term": "30 days"}}
    secrets = {"CAMPUS_CARDS_API_KEY": key, "CAMPUS_CARDS_WEBHOOK_SECRET": secret}
    with pytest.raises(ConfigError, match=why):
        async with open_campus(harbour=make_harbour(), tables={"cards": {}, "products": products}, secrets=secrets):
            pass
