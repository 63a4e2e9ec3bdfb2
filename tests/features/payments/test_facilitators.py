"""Several facilitators in order, and how campus shows each who it is: the next charges the same authorization, and nobody pays twice."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio.to_thread
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from features.payments.seller import PRICE, Clock, Seller, open_seller, settings
from patience import patience
from pydantic import SecretStr

from campus.errors import ConfigError
from campus.features.chain import Chain, Facilitator, Wallet, new_wallet, open_facilitator
from campus.features.chain.facilitator import Point
from campus.features.chain.listener import Asked
from campus.features.payments.authentication import authentication_of
from campus.features.payments.facilitator import X402Facilitator
from campus.features.payments.facilitators import Facilitators
from campus.features.payments.feature import FacilitatorTable
from campus.features.payments.setup import open_payments

pytestmark = pytest.mark.anyio
KEY_ID = "organizations/1/apiKeys/2"
LATER = "eip155:1"


@asynccontextmanager
async def two(chain: Chain, facilitator: Facilitator, wallet: Wallet, url: str) -> AsyncIterator[tuple[Seller, Facilitator]]:
    """A seller with the module's facilitator first, and a second one."""
    async with open_facilitator(chain) as second:
        around = {"pay_to": new_wallet().address, "facilitators": [facilitator.url, second.url], "prove_above": "0"}
        async with open_seller(chain, facilitator, url, wallet=wallet, **around) as seller:
            yield seller, second
            await seller.assert_the_ledger_is_the_chains()


@pytest.mark.parametrize(
    ("faults", "at_verify", "at_settle"),
    [
        ({"verify_status": 503}, ["valid"], ["settled"]),
        ({"verify_lie": {"isValid": False, "invalidReason": "unsupported_scheme"}}, ["valid"], []),
        ({"verify_lie": {"payer": "0x" + "55" * 20}}, ["valid"], ["settled"]),
        ({"garbled": ("verify",)}, ["valid"], ["settled"]),
        ({"settle_status_before": 500}, [], ["settled"]),
        ({"unsent": {"success": False, "errorReason": "out of gas", "transaction": "", "network": "eip155:8453"}}, [], ["settled"]),
        ({"unsent": {"success": False, "errorReason": "insufficient_funds", "transaction": "", "network": "eip155:8453"}}, [], ["settled"]),
        ({"unsent": {"success": True, "transaction": "0x" + "ab" * 32, "network": "eip155:8453"}}, [], ["settled"]),
        ({"unsent": {"success": True, "transaction": "0x" + "ab" * 32, "network": LATER}}, [], ["settled"]),
        ({"unsent": {"success": True, "transaction": "no hash", "network": "eip155:8453"}}, [], ["settled"]),
    ],
    ids=str,
)
async def test_what_the_first_refuses_fails_or_lies_about_the_second_does_and_one_charge_is_proven(
    chain: Chain,
    facilitator: Facilitator,
    wallet: Wallet,
    storage_url: str,
    faults: dict[str, Any],
    at_verify: list[str],
    at_settle: list[str],
) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, second):
        for name, value in faults.items():
            setattr(facilitator.faults, name, value)
        payment = seller.pay()
        sold = await seller.sell(payment)
        assert (second.outcomes("verify"), second.outcomes("settle")) == (at_verify, at_settle)
        assert (await seller.income(), len(seller.runs), (await seller.row(payment)).block is not None) == (PRICE, 1, True)
        assert sold.receipt["transaction"] == (await chain.transfers(receiver=seller.pay_to))[0].transaction
        if "verify_lie" not in faults or at_settle:
            troubles = " ".join(await seller.payments.findings())
            assert facilitator.url.removeprefix("http://") in troubles
            assert second.url.removeprefix("http://") not in troubles


async def test_one_that_failed_is_asked_last_for_a_while(chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, second):
        facilitator.faults.verify_status = 503
        await seller.sell(seller.pay())
        asked = len(facilitator.calls)
        await seller.sell(seller.pay())
        assert (len(facilitator.calls), second.outcomes("settle")) == (asked, ["settled", "settled"])


async def test_what_the_first_charged_without_saying_so_is_not_undone_by_the_seconds_denial(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str
) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, second):
        facilitator.faults.settle_status = 502  # it charges, and says that it failed
        payment = seller.pay()
        sold = await seller.sell(payment)
        assert (len(second.calls), "settled" in second.outcomes("settle")) == (1, False)
        assert (await seller.income(), sold.replayed, len(seller.runs)) == (PRICE, False, 1)
        assert (await seller.row(payment)).state == "settled"


@pytest.mark.parametrize("point", ["verify", "verified", "settle", "settled"])
async def test_one_that_hangs_or_answers_late_is_not_waited_for_and_charges_nothing_more(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str, point: Point
) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, _):
        soon = {"verify_seconds": 0.3, "settle_seconds": patience(1.0)}
        clients = [(one, client, soon if number == 0 else {}) for number, (one, client) in enumerate(seller.way.facilitators.clients)]
        seller.way.facilitators._loaded = Facilitators(
            [X402Facilitator(client, url=one.url, name=one.host, network=chain.network, **limits) for one, client, limits in clients]
        )
        with facilitator.hold(point) as hold:
            payment = seller.pay()
            sold = await seller.sell(payment)
            assert (hold.hits, await seller.income(), len(seller.runs)) == (1, PRICE, 1)
        await anyio.to_thread.run_sync(hold.release)
        assert (await seller.sell(payment)).receipt == sold.receipt
        assert await seller.income() == PRICE


async def test_a_payment_that_no_facilitator_would_ever_settle_is_not_shown_to_the_next(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str
) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, second):
        assert (await seller.refusal(seller.pay(by=new_wallet()))).code == "payment_refused"
        assert second.calls == []


async def test_in_doubt_the_reconciler_goes_on_with_the_next_one(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str
) -> None:
    async with two(chain, facilitator, wallet, storage_url) as (seller, second):
        for each in (facilitator, second):
            each.faults.settle_status_before = 500
        payment = seller.pay()
        assert (await seller.refusal(payment)).code == "payment_in_flight"
        second.faults.clear()
        assert (await seller.row(payment)).submissions > 0
        await seller.assert_the_ledger_is_the_chains()
        assert (await seller.income(), (await seller.row(payment)).state) == (PRICE, "settled")


def keys_of(kind: str) -> tuple[str, Any, str]:
    """A key as the platform shows it, the public key that verifies it, and the algorithm."""
    if kind == "ES256":
        key = generate_private_key(SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
        return pem.replace("\n", "\\n"), key.public_key(), kind
    own = Ed25519PrivateKey.generate()
    public = own.public_key()
    raw = own.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()) + public.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return b64encode(raw).decode(), public, kind


@pytest.mark.parametrize("kind", ["ES256", "EdDSA"])
async def test_coinbases_platform_gets_a_new_jwt_for_each_request_that_names_it(seller: Seller, chain: Chain, kind: str) -> None:
    secret, public, algorithm = keys_of(kind)
    nonces: list[str] = []

    def admits(asked: Asked) -> bool:
        token = (asked.authorization or "").removeprefix("Bearer ")
        claims = jwt.decode(token, public, [algorithm], options={"require": ["exp", "nbf", "sub", "iss"]}, issuer="cdp")
        nonces.append(jwt.get_unverified_header(token)["nonce"])
        method = "GET" if asked.body is None else "POST"
        return (
            claims["uris"] == [f"{method} {guarded.url.removeprefix('http://')}{asked.path}"]
            and claims["sub"] == jwt.get_unverified_header(token)["kid"] == KEY_ID
            and claims["exp"] - claims["nbf"] == 120
        )

    async with open_facilitator(chain, token=admits) as guarded:
        around = settings(chain, {"url": guarded.url, "auth": "cdp", "name": "coinbase"}, pay_to=seller.pay_to)
        secrets = {"CAMPUS_PAYMENTS_COINBASE_KEY_ID": KEY_ID, "CAMPUS_PAYMENTS_COINBASE_KEY_SECRET": secret}
        hidden = {name: SecretStr(value) for name, value in secrets.items()}
        async with open_payments(around, seller.storage, seller.bought, now=Clock(), secrets=hidden) as payments:
            assert await payments.check() == []
            sold = await replace(seller, payments=payments).sell(seller.pay())
            assert sold.receipt["success"] is True
        assert len(set(nonces)) == len(nonces) == 3


@pytest.mark.parametrize(
    ("written", "secrets", "sentence"),
    [
        ({"auth": "oauth"}, {}, "'oauth' is not installed; there are: bearer, cdp, none"),
        ({"auth": "bearer"}, {}, "facilitator.example has auth = 'bearer', which needs CAMPUS_PAYMENTS_FACILITATOR_TOKEN"),
        ({"auth": "bearer", "name": "second"}, {"FACILITATOR_TOKEN": "x"}, "needs CAMPUS_PAYMENTS_SECOND_TOKEN"),
        ({"auth": "bearer"}, {"FACILITATOR_TOKEN": "hunter2\nand more"}, "the TOKEN of facilitator cannot be sent"),
        ({"auth": "cdp"}, {"FACILITATOR_KEY_ID": "x"}, "needs CAMPUS_PAYMENTS_FACILITATOR_KEY_SECRET"),
        ({"auth": "cdp"}, {"FACILITATOR_KEY_ID": "x", "FACILITATOR_KEY_SECRET": "hunter2"}, "neither a key of P-256 in PEM nor"),
    ],
    ids=str,
)
def test_an_authentication_that_cannot_work_is_refused_with_what_is_missing_and_no_secret(
    written: dict[str, str], secrets: dict[str, str], sentence: str
) -> None:
    facilitator = FacilitatorTable(url="https://facilitator.example/secret-path", **written)
    with pytest.raises(ConfigError, match=sentence) as refused:
        authentication_of(facilitator, {f"CAMPUS_PAYMENTS_{name}": SecretStr(value) for name, value in secrets.items()})
    assert not any(secret in str(refused.value) for secret in ("hunter2", "secret-path"))
