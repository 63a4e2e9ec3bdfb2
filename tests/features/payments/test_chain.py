"""Asking a real chain: whether a payment was charged, and what only looks like it."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import httpx
import pytest
from eth_utils.crypto import keccak

from campus.errors import JobFailed
from campus.features.chain import Chain as LocalChain
from campus.features.chain import Wallet, new_wallet
from campus.features.payments import chain as rules
from campus.features.payments.chain import Chain, Transfer, judge, proves, uses_nonce
from campus.features.payments.node import Log, Receipt
from tests import patient

pytestmark = pytest.mark.anyio
PAY_TO = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
AMOUNT = 20_000
LONG_AFTER = datetime.now(UTC) + timedelta(days=30)
"""When every authorization is over by this machine's clock, so that the chain's alone decides."""


class Authorization:
    """A signed transfer, and the same as the chain's own question."""

    def __init__(self, chain: LocalChain, wallet: Wallet, *, valid_before: int, to: str = PAY_TO, nonce: str | None = None) -> None:
        self.fields: dict[str, Any] = {
            "from": wallet.address,
            "to": to,
            "value": str(AMOUNT),
            "validAfter": "0",
            "validBefore": str(valid_before),
            "nonce": nonce or f"0x{token_hex(32)}",
        }
        self.payment = {"payload": {"signature": wallet.sign_transfer(self.fields), "authorization": self.fields}}
        self.transfer = Transfer(chain.asset.lower(), wallet.address.lower(), PAY_TO.lower(), AMOUNT, self.fields["nonce"], valid_before)


@pytest.fixture
async def wallet(chain: LocalChain) -> Wallet:
    wallet = new_wallet()
    await chain.mint(wallet.address, 1_000_000)
    return wallet


@pytest.fixture
async def node(chain: LocalChain) -> AsyncIterator[Chain]:
    async with patient.AsyncClient() as client:
        yield Chain(client, chain.rpc_url)


async def since(chain: LocalChain) -> datetime:
    return datetime.fromtimestamp(await chain.time(), UTC)


async def test_the_events_are_named_by_their_hashes() -> None:
    assert keccak(text="AuthorizationUsed(address,bytes32)").hex() == rules.AUTHORIZATION_USED[2:]
    assert keccak(text="AuthorizationCanceled(address,bytes32)").hex() == rules.AUTHORIZATION_CANCELED[2:]
    assert keccak(text="Transfer(address,address,uint256)").hex() == rules.TRANSFER[2:]
    assert keccak(text="authorizationState(address,bytes32)").hex()[:8] == rules.STATE_SELECTOR[2:]


async def test_a_payment_that_was_made_is_found_with_its_transaction(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    assert (await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)).state == "unknown"
    transaction = await chain.transfer_with_authorization(one.payment)
    outcome = await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)
    assert (outcome.state, outcome.transaction) == ("settled", transaction)
    assert await node.doubt_of(transaction, one.transfer) is None


async def test_it_is_found_far_back_in_small_ranges(chain: LocalChain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    transaction = await chain.transfer_with_authorization(one.payment)
    await chain.mine(30)
    asked: list[int] = []
    async with patient.AsyncClient(transport=Grudging(asked, most=4)) as client:
        outcome = await Chain(client, chain.rpc_url).outcome_of(one.transfer, since=start, now=LONG_AFTER)
    assert (outcome.state, outcome.transaction) == ("settled", transaction)
    assert max(asked) <= 500
    assert len([each for each in asked if each <= 4]) >= 7


class Grudging(httpx.AsyncBaseTransport):
    """A node that refuses eth_getLogs over more than a few blocks, as some hosted ones do; all else it asks the real one."""

    def __init__(self, asked: list[int], *, most: int) -> None:
        self._asked = asked
        self._most = most
        self._real = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = json.loads(request.content)
        if call["method"] == "eth_getLogs":
            blocks = int(call["params"][0]["toBlock"], 16) - int(call["params"][0]["fromBlock"], 16) + 1
            self._asked.append(blocks)
            if blocks > self._most:
                return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "range too large"}})
        return await self._real.handle_async_request(request)

    async def aclose(self) -> None:
        await self._real.aclose()


async def test_the_search_ends_at_the_time_of_the_reservation(chain: LocalChain, wallet: Wallet) -> None:
    one = Authorization(chain, wallet, valid_before=await chain.time() + 9_000)
    await chain.advance(400)
    await chain.mine(20)
    asked: list[int] = []
    async with patient.AsyncClient(transport=Grudging(asked, most=1)) as client:
        assert (await Chain(client, chain.rpc_url).outcome_of(one.transfer, since=await since(chain), now=LONG_AFTER)).state == "unknown"
    assert 20 <= len([each for each in asked if each == 1]) <= 40


class Counting(httpx.AsyncBaseTransport):
    """The real node, a week later: as many blocks were added to its chain, and none of them holds anything. It counts its calls."""

    def __init__(self, blocks: int, *, seconds_each: int) -> None:
        self.calls = 0
        self._blocks = blocks
        self._seconds = seconds_each
        self._tip: dict[str, Any] = {}
        self._real = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        call = json.loads(request.content)
        params = call["params"]
        if call["method"] == "eth_getBlockByNumber":
            if not self._tip:
                answer = await self._asked(request, params=["latest", False])
                self._tip = json.loads(answer.content)["result"]
            tip = int(self._tip["number"], 16)
            number = tip + self._blocks if params[0] == "latest" else int(params[0], 16)
            if number > tip:
                time = int(self._tip["timestamp"], 16) + (number - tip) * self._seconds
                return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {"number": hex(number), "timestamp": hex(time)}})
        if call["method"] == "eth_call":
            params = [params[0], "latest"]
        if call["method"] == "eth_getLogs":
            last = min(int(params[0]["toBlock"], 16), int(self._tip["number"], 16))
            params = [{**params[0], "toBlock": hex(last)}]
        return await self._asked(request, params=params)

    async def _asked(self, request: httpx.Request, *, params: Any) -> httpx.Response:
        call = {**json.loads(request.content), "params": params}
        answer = await self._real.handle_async_request(httpx.Request("POST", request.url, json=call))
        await answer.aread()
        return answer

    async def aclose(self) -> None:
        await self._real.aclose()


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_payment_of_last_week_is_concluded_with_few_calls(chain: LocalChain, wallet: Wallet, is_made: bool) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    if is_made:
        await chain.transfer_with_authorization(one.payment)
    node = Counting(302_400, seconds_each=2)
    async with patient.AsyncClient(transport=node) as client:
        outcome = await Chain(client, chain.rpc_url).outcome_of(one.transfer, since=start, now=LONG_AFTER)
    assert outcome.state == ("settled" if is_made else "refused")
    assert node.calls < 80


async def test_a_node_that_refuses_once_is_asked_for_whole_ranges_again(chain: LocalChain, wallet: Wallet) -> None:
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    asked: list[int] = []
    grudging = Grudging(asked, most=0)
    async with patient.AsyncClient(transport=grudging) as client:
        node = Chain(client, chain.rpc_url)
        assert (await node.outcome_of(one.transfer, since=await since(chain), now=LONG_AFTER)).state == "unknown"
        assert "refuses eth_getLogs" in (node.trouble or "")
        grudging._most = 500
        asked.clear()
        await node.outcome_of(one.transfer, since=await since(chain), now=LONG_AFTER)
    assert len(asked) == 1


async def test_the_same_nonce_spent_on_the_payer_himself_is_no_payment(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    to_himself = Authorization(chain, wallet, valid_before=await chain.time() + 300, to=wallet.address)
    transaction = await chain.transfer_with_authorization(to_himself.payment)
    early = await node.outcome_of(to_himself.transfer, since=start, now=LONG_AFTER)
    assert (early.state, transaction in early.reason) == ("unknown", True)
    assert await node.doubt_of(transaction, to_himself.transfer) == "the transaction is not this payment"
    await chain.advance(340)
    outcome = await node.outcome_of(to_himself.transfer, since=start, now=LONG_AFTER)
    assert (outcome.state, transaction in outcome.reason) == ("refused", True)


async def test_a_cancelled_authorization_is_no_payment_once_its_time_is_over(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    await chain.cancel_authorization(wallet, one.fields["nonce"])
    assert (await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)).state == "unknown"
    await chain.advance(340)
    outcome = await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)
    assert (outcome.state, "cancelled" in outcome.reason) == ("refused", True)


async def test_another_amount_recipient_or_payer_is_no_payment(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    transaction = await chain.transfer_with_authorization(one.payment)
    others = ({"amount": AMOUNT + 1}, {"pay_to": wallet.address.lower()}, {"payer": "0x" + "11" * 20})
    for changes in others:
        assert (await node.outcome_of(replace(one.transfer, **changes), since=start, now=LONG_AFTER)).state == "unknown"
        assert await node.doubt_of(transaction, replace(one.transfer, **changes)) == "the transaction is not this payment"
        assert (await node.shown(transaction, replace(one.transfer, **changes))).state == "refused"
    shown = await node.shown(transaction, one.transfer)
    assert (shown.state, shown.transaction) == ("settled", transaction)
    assert shown.block is not None


async def test_a_payment_is_given_up_only_after_its_end_by_both_clocks(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    end = datetime.fromtimestamp(one.transfer.valid_before, UTC)
    await chain.advance(340)
    for seconds, state in ((-1, "unknown"), (60, "unknown"), (61, "refused")):
        assert (await node.outcome_of(one.transfer, since=start, now=end + timedelta(seconds=seconds))).state == state


async def test_a_payment_is_not_given_up_before_its_end_by_the_chains_clock(chain: LocalChain, node: Chain, wallet: Wallet) -> None:
    start = await since(chain)
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)
    await chain.advance(310)
    assert (await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)).state == "unknown"
    await chain.advance(30)
    outcome = await node.outcome_of(one.transfer, since=start, now=LONG_AFTER)
    assert (outcome.state, "expired" in outcome.reason) == ("refused", True)


async def test_a_node_that_is_down_or_answers_nonsense_leaves_a_payment_unknown(chain: LocalChain, wallet: Wallet) -> None:
    one = Authorization(chain, wallet, valid_before=1)
    answers: list[Any] = ["", "[]", '{"result": "0x"}', '{"result": {"number": "x", "timestamp": "y"}}', '{"error": "no"}']
    answers += [json.dumps({"result": {"number": number, "timestamp": "0x1"}}) for number in (None, [], {}, 1.5, True)]
    answers.append('{"result": {"number": 1e999, "timestamp": 1}}')
    for text in answers:
        async with patient.AsyncClient(transport=httpx.MockTransport(lambda _, text=text: httpx.Response(200, text=text))) as client:
            node = Chain(client, "https://user:secret@node.example/path-with-key")
            assert (await node.outcome_of(one.transfer, since=datetime.now(UTC), now=LONG_AFTER)).state == "unknown"
            assert "node.example" in (node.trouble or "")
            assert "secret" not in (node.trouble or "")
            assert "with-key" not in (node.trouble or "")
    async with patient.AsyncClient() as client:
        node = Chain(client, "http://127.0.0.1:9")
        assert (await node.outcome_of(one.transfer, since=datetime.now(UTC), now=LONG_AFTER)).state == "unknown"
        with pytest.raises(JobFailed, match="cannot be asked"):
            await node.doubt_of("0x" + "00" * 32, one.transfer)


LOG = {
    "address": "0x" + "12" * 20,
    "topics": [rules.AUTHORIZATION_CANCELED],
    "data": "0x",
    "logIndex": "0x0",
    "transactionHash": "0x" + "34" * 32,
    "blockNumber": "0x1",
}


@pytest.mark.parametrize(
    "changes", [{}, {"topics": []}, {"topics": None}, {"logIndex": None}, {"logIndex": 1e300}, {"address": None}, {"removed": "?"}], ids=str
)
async def test_logs_that_were_not_asked_for_or_cannot_be_read_leave_a_payment_unknown(
    chain: LocalChain, wallet: Wallet, changes: dict[str, Any]
) -> None:
    one = Authorization(chain, wallet, valid_before=await chain.time() + 300)

    def answer(request: httpx.Request) -> httpx.Response:
        call = json.loads(request.content)
        block = {"number": "0x10", "timestamp": hex(one.transfer.valid_before - 300)}
        return httpx.Response(200, json={"result": [LOG | changes] if call["method"] == "eth_getLogs" else block})

    async with patient.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        assert (
            await Chain(client, "https://node.example").outcome_of(one.transfer, since=await since(chain), now=LONG_AFTER)
        ).state == "unknown"


def transferring(*moves: tuple[str, str, str]) -> Receipt:
    logs: list[Log] = []
    for nonce, payer, to in moves:
        used = [rules.AUTHORIZATION_USED, rules.topic_of(payer), nonce]
        moved = [rules.TRANSFER, rules.topic_of(payer), rules.topic_of(to)]
        for topics, data in ((used, "0x"), (moved, f"0x{AMOUNT:064x}")):
            logs.append(Log(address="0xa", topics=topics, data=data, logIndex=len(logs), transactionHash="0x1", blockNumber=1))
    return Receipt(status=1, logs=logs, blockNumber=1)


def test_one_transfer_does_not_prove_two_payments_of_one_transaction() -> None:
    payer, seller = "0x" + "12" * 20, "0x" + "34" * 20
    first, second = "0x" + "01" * 32, "0x" + "02" * 32
    receipt = transferring((first, payer, payer), (second, payer, seller))
    spent, paid = (Transfer("0xa", payer, seller, AMOUNT, nonce, 0) for nonce in (first, second))
    assert judge(receipt.logs[0], receipt, spent).state == "refused"
    assert judge(receipt.logs[2], receipt, paid).state == "settled"
    assert judge(receipt.logs[2], receipt.model_copy(update={"status": 0}), paid).state == "unknown"


@pytest.mark.parametrize("number", [0, 1], ids=["used", "transfer"])
@pytest.mark.parametrize("changes", [{"removed": True}, {"address": "0xb"}], ids=["removed", "another token's"])
def test_events_that_were_removed_or_are_another_contracts_prove_nothing(number: int, changes: dict[str, Any]) -> None:
    payer, seller, nonce = "0x" + "12" * 20, "0x" + "34" * 20, "0x" + "01" * 32
    receipt, payment = transferring((nonce, payer, seller)), Transfer("0xa", payer, seller, AMOUNT, nonce, 0)
    assert proves(receipt, payment)
    assert uses_nonce(receipt.logs[0], payment)
    logs = [log.model_copy(update=changes) if index == number else log for index, log in enumerate(receipt.logs)]
    assert not proves(receipt.model_copy(update={"logs": logs}), payment)
    assert uses_nonce(logs[0], payment) == (number == 1)


def test_a_transaction_that_failed_proves_nothing() -> None:
    payer, seller, nonce = "0x" + "12" * 20, "0x" + "34" * 20, "0x" + "01" * 32
    receipt = transferring((nonce, payer, seller))
    assert not proves(receipt.model_copy(update={"status": 0}), Transfer("0xa", payer, seller, AMOUNT, nonce, 0))
