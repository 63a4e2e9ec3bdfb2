"""A step that fails, or refuses, does to a call what the contract says: alike over HTTP and MCP."""

from typing import Any

import pytest
from fastmcp import FastMCP

from campus import Building, Problem, access, free
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.testing import Frame, open_campus

pytestmark = pytest.mark.anyio


class Closed:
    """Refuses every call for good once it is known who calls, and fails when it is told of the end."""

    name = "closed"

    def __init__(self) -> None:
        self.is_closed = False
        self.seen: list[str] = []

    def identified(self, call: Any, offer: Any, context: Any) -> None:
        if self.is_closed and not offer.access.is_free:
            self.seen.append(context.credential.state)
            raise Problem(423, "closed", "It is night; nothing was done or charged.")

    def ended(self, call: Any, context: Any, outcome: str) -> None:
        raise RuntimeError("a fault of the step")


def building(step: Closed) -> Building:
    mcp = FastMCP("Dice")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=access(price="0.02"))
    def roll() -> int:
        """Roll a die."""
        return 4

    @mcp.tool(annotations={"readOnlyHint": True}, meta=free())
    def look() -> int:
        """Look at the die."""
        return 4

    return Building(mcp, steps=lambda site: [step], problems={"closed": "It is night."})


async def test_a_step_that_knows_who_calls_refuses_whoever_pays_and_one_that_fails_at_the_end_takes_no_answer(
    frame: Frame, caplog: pytest.LogCaptureFixture
) -> None:
    step, payer = Closed(), Payer(new_wallet())
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        async with open_campus(frame=frame, dice=building(step), tables={"payments": facilitator.table(new_wallet().address)}) as campus:
            token = await campus.key("dice")
            terms = (await campus.call("roll")).terms
            assert terms is not None
            paid = await campus.call("roll", payment=payer.payload(terms))
            assert (paid.status, paid.data, paid.receipt is not None) == (200, 4, True)
            assert {getattr(record, "step", None) for record in caplog.records if "step failed" in record.message} == {"closed"}
            step.is_closed = True
            assert (await campus.call("look")).status == 200
            refused = [await campus.call("roll", key=key) for key in (None, token, "campus_live_nothing")]
            refused += [await campus.call("roll", key=key, payment=payer.payload(terms)) for key in (None, token)]
            assert {(one.status, one.code) for one in refused} == {(423, "closed")}
            assert step.seen == ["absent", "valid", "unknown", "absent", "valid"]
        assert await chain.balance(payer.wallet.address) == 980_000


class Voucher:
    """Marks each answer with a header, and opens what nothing else does for who sends a voucher."""

    name = "vouchers"
    is_paid = True

    def arrived(self, call: Any, offer: Any, context: Any) -> None:
        context.headers += ((b"x-voucher", b"taken"),)

    def opens(self, call: Any, offer: Any, context: Any, refusal: Problem) -> Any:
        return self if refusal.status == 402 else None

    async def result(self, run: Any) -> Any:
        return await run()


async def test_another_step_sells_what_no_key_opens_and_its_header_stands_beside_those_of_limits_and_allowances() -> None:
    mcp = FastMCP("Dice")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=access())
    def roll() -> int:
        """Roll a die."""
        return 4

    product = {"scope": "dice", "price": "1", "term": "30 days", "calls": 1, "per": "day"}
    async with open_campus(dice=Building(mcp, steps=lambda site: [Voucher()]), tables={"products": {"dice": product}}) as campus:
        token = await campus.key("dice")
        opened, sold = await campus.call("roll", key=token), await campus.call("roll")
        assert [(one.status, one.data) for one in (opened, sold)] == [(200, 4), (200, 4)]
        assert opened.headers["x-voucher"] == "taken"
        assert "allowance" in opened.headers["ratelimit"]
        assert (await campus.call("roll", key=token)).data == 4, "a key that has used up its allowance leaves the other ways open"
