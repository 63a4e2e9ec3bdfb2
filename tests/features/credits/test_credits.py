"""Keys that pay for their calls: an allowance of calls a day or month, then credits, through both front doors."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import anyio
import pytest
from commands import Command, command_of
from features.credits.dice import Dice
from serving import free_port, write_config

from campus.config import config_of
from campus.errors import ConfigError
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.features.credits import holds
from campus.features.credits.accounts import Accounts
from campus.testing import Clock, Frame, TestCampus, open_campus

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 8, 31, 12, tzinfo=UTC)
DAILY = {"scope": "dice", "price": "19", "term": "90 days", "calls": 3, "per": "day"}
PREPAID = {"scope": "dice", "price": "5", "term": "90 days", "credits": "0.10"}


@pytest.fixture
def frame(storage_url: str) -> Frame:
    """Each database over a frame of its own: what the frame changes does not depend on the database."""
    return "http" if storage_url.startswith("sqlite") else "mcp"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys)


def products(**tables: Mapping[str, Any]) -> dict[str, Any]:
    return {"products": {**tables, "all": {"scope": "all", "price": "29", "term": "30 days"}}}


async def statuses(campus: TestCampus, tool: str, times: int, key: str, **arguments: Any) -> dict[int, int]:
    return Counter([(await campus.call(tool, key=key, **arguments)).status for _ in range(times)])


async def balance(campus: TestCampus, token: str) -> Mapping[str, Any]:
    page = await campus.http.get("/keys", headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    return {name: page.json()[name] for name in ("credits", "allowance")}


def accounts(campus: TestCampus) -> Accounts:
    found: Accounts = campus.service.feature("credits")
    return found


@pytest.mark.both_databases
async def test_credits_pay_for_each_call_that_is_delivered_and_are_used_up_with_a_402(frame: Frame, storage_url: str) -> None:
    tables = products(dice=PREPAID)
    async with open_campus(frame=frame, dice=Dice().server(), clock=Clock(NOON), storage=storage_url, tables=tables) as campus:
        key, token = await campus.service.keys.issue("dice")
        assert await statuses(campus, "look", 3, token) == {200: 3}, "a free tool stays free"
        assert await statuses(campus, "own", 3, token) == {200: 3}, "the key opens a tool without a price, which costs nothing"
        assert (await campus.call("roll", key=token, sides="six")).code == "invalid_request"
        assert await statuses(campus, "roll", 2, token, fails=True) == {400: 2}
        assert await balance(campus, token) == {"credits": "0.10", "allowance": None}, "what fails costs nothing"
        assert await statuses(campus, "roll", 7, token) == {200: 5, 402: 2}
        refused = await campus.call("roll", key=token)
        assert (refused.code, refused.data["balance"]) == ("credits_used_up", "0.00")
        assert [one.get("credits") for one in refused.data["unlock"]] == ["0.10", None]
        assert "$0.00 left, and this call costs $0.02; whoever renews it adds credits" in refused.data["detail"]
        assert "dice ($5, 90 days, $0.10 of credits)" in refused.data["detail"]
        _, rotated = await campus.service.keys.rotate(key.id)
        assert await statuses(campus, "roll", 1, rotated) == {402: 1}, "a rotated key goes on with what is left"
        await campus.service.keys.renew(rotated)
        assert await statuses(campus, "roll", 6, rotated) == {200: 5, 402: 1}, "a renewal adds"
        assert await statuses(campus, "roll", 1, await campus.key("all")) == {200: 1}, "a product without credits has no bound"
        entries = await accounts(campus).statement(key.lineage)
        assert [(one.what, one.tool, one.calls, one.usd) for one in entries] == [
            ("issued", "", 0, "0.10"),
            ("renewed", "", 0, "0.10"),
            ("calls", "roll", 10, "-0.20"),
        ]
        assert await accounts(campus).findings() == []


@pytest.mark.both_databases
async def test_an_allowance_opens_so_many_calls_and_none_until_the_next_period(frame: Frame, storage_url: str) -> None:
    clock = Clock(NOON)
    async with open_campus(frame=frame, dice=Dice().server(), clock=clock, storage=storage_url, tables=products(dice=DAILY)) as campus:
        key, token = await campus.service.keys.issue("dice")
        assert await statuses(campus, "roll", 2, token, fails=True) == {400: 2}
        assert await statuses(campus, "own", 1, token) == {200: 1}, "without credits each call that the key opens is one of the allowance"
        assert await statuses(campus, "roll", 4, token) == {200: 2, 402: 2}
        refused = await campus.call("roll", key=token)
        assert refused.data["limit"] == {"name": "allowance", "calls": 3, "per": "day", "left": 0, "ends_at": "2026-09-01T00:00:00Z"}
        assert "3 calls a day" in refused.data["detail"]
        _, rotated = await campus.service.keys.rotate(key.id)
        await campus.service.keys.renew(rotated)
        assert await statuses(campus, "roll", 1, rotated) == {402: 1}, "a renewal adds time, not calls"
        assert await statuses(campus, "look", 1, token) == {200: 1}
        clock.move(timedelta(hours=12))
        assert await statuses(campus, "roll", 4, rotated) == {200: 3, 402: 1}
        await campus.service.feature("usage").flush()
        called = await campus.service.feature("usage").read(days=2, lineage=key.lineage)
        assert sum(one.calls for one in called if one.tool == "roll") == 7, "refused calls are not counted, failed ones are"


async def test_credits_pay_once_the_allowance_is_used_and_every_answer_says_what_is_left(storage_url: str) -> None:
    tables = products(dice={**PREPAID, "calls": 2, "per": "month"})
    async with open_campus(dice=Dice().server(), clock=Clock(NOON), storage=storage_url, tables=tables) as campus:
        token = await campus.key("dice")
        headers = {"Authorization": f"Bearer {token}"}
        answers = [await campus.http.get(f"/v1/dice/roll?fails={fails}", headers=headers) for fails in ("no", "yes", "no", "no", "yes")]
        assert [one.status_code for one in answers] == [200, 400, 200, 200, 400]
        assert [one.headers["campus-credits"] for one in answers] == ["0.10", "0.10", "0.10", "0.08", "0.08"]
        assert {one.headers["ratelimit-policy"] for one in answers} == {f'"keyed";q=6000;w=60, "allowance";q=2;w={31 * 86_400}'}
        assert [one.headers["ratelimit"].split(", ")[1] for one in answers] == [f'"allowance";r={left};t=43200' for left in (1, 1, 0, 0, 0)]
        async with campus.mcp("dice", headers=headers) as client:
            told = (await client.call_tool("roll")).meta or {}
        ends_at = "2026-09-01T00:00:00Z"
        assert told["campus/credits"] == {
            "balance": "0.06",
            "allowance": {"calls": 2, "per": "month", "left": 0, "ends_at": ends_at},
        }
        assert (await balance(campus, token))["allowance"] == {"calls": 2, "per": "month", "left": 0, "ends_at": ends_at}
        text = (await campus.http.get("/keys", headers={**headers, "Accept": "text/html"})).text
        assert "2 calls a month, 0 left until" in text
        assert "$0.06 left" in text
        statement = await campus.http.get("/keys/statement.csv", headers=headers)
        assert (
            statement.text.splitlines()[-1] == f"2026-08-31,{(await campus.service.keys.named(token)).lineage},calls,dice,roll,4,2,-0.04,,"
        )
        assert (await campus.http.get("/keys/statement.csv")).status_code == 403


@pytest.mark.both_databases
async def test_a_payment_or_another_key_opens_a_call_whose_key_has_used_up_its_credits(frame: Frame) -> None:
    payer, payee = Payer(new_wallet()), new_wallet().address
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        tables = {**products(dice={**PREPAID, "credits": "0.02"}), "payments": facilitator.table(payee)}
        async with open_campus(frame=frame, dice=Dice().server(), clock=Clock(), tables=tables) as campus:
            token = await campus.key("dice")
            assert await statuses(campus, "roll", 1, token) == {200: 1}
            refused = await campus.call("roll", key=token)
            assert (refused.status, refused.code) == (402, "credits_used_up")
            assert refused.terms is not None, "the refusal is the terms of the call"
            assert [one.get("product", "per call") for one in refused.data["unlock"]] == ["dice", "all", "per call"]
            paid = await campus.call("roll", key=token, payment=payer.payload(refused.terms))
            assert (paid.status, paid.receipt and paid.receipt["success"]) == (200, True)
            assert await chain.balance(payee) == 20_000
            await campus.service.feature("usage").flush()
            assert [one.calls for one in await campus.service.feature("usage").read(days=1)] == [1], "a paid call is none of the key's"


async def test_a_call_that_is_cancelled_costs_nothing(storage_url: str) -> None:
    dice = Dice()
    async with open_campus(dice=dice.server(), storage=storage_url, tables=products(dice=PREPAID)) as campus:
        token = await campus.key("dice")
        async with anyio.create_task_group() as tasks:

            async def spin() -> None:
                await campus.call("spin", key=token)

            tasks.start_soon(spin)
            await dice.is_called.wait()
            (held,) = await accounts(campus).all()
            assert (held.balance, held.held, held.is_right) == (80_000, 20_000, True)
            tasks.cancel_scope.cancel()
        (after,) = await accounts(campus).all()
        assert (after.balance, after.held, after.spent) == (100_000, 0, 0)


def asked(campus: TestCampus, token: str, secret: str) -> Callable[..., Any]:
    """A call of roll with an Idempotency-Key; returns its status, and what it says."""

    async def over_http(**arguments: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": secret}
        answer = await campus.http.get("/v1/dice/roll", params=arguments, headers=headers)
        return answer.status_code, answer.json().get("result") or answer.json()["code"]

    async def over_mcp(**arguments: Any) -> tuple[int, Any]:
        async with campus.mcp("dice", headers={"Authorization": f"Bearer {token}"}) as client:
            result = await client.call_tool("roll", arguments, meta={"idempotency-key": secret}, raise_on_error=False)
        found = result.structured_content or {}
        return found.get("status", 200), found.get("result") or found["code"]

    return over_http if campus.frame == "http" else over_mcp


@pytest.mark.both_databases
async def test_the_same_idempotency_key_is_answered_again_and_charged_once(frame: Frame, storage_url: str) -> None:
    clock = Clock(NOON)
    async with open_campus(frame=frame, dice=Dice().server(), clock=clock, storage=storage_url, tables=products(dice=PREPAID)) as campus:
        token = await campus.key("dice")
        roll = asked(campus, token, token_urlsafe(24))
        assert await roll(fails=True) == (400, "tool_error")
        assert await roll() == (200, "roll 2"), "a failed call leaves nothing behind, whatever its arguments"
        assert await roll() == (200, "roll 2")
        assert await roll(fails=True) == (422, "idempotency_key_reused")
        assert await asked(campus, token, "retry-1")() == (400, "weak_idempotency_key")
        assert await asked(campus, await campus.key("dice"), token_urlsafe(24))() == (200, "roll 3")
        assert (await balance(campus, token))["credits"] == "0.08"
        for wrong in (timedelta(days=400), timedelta(days=-400)):
            clock.step(wrong)
            await campus.run("credits.delete_answers")
        assert await roll() == (200, "roll 2"), "a clock that is wrong for a while deletes no answer"
        clock.move(timedelta(hours=24))
        await campus.run("credits.delete_answers")
        assert await roll() == (200, "roll 4"), "answers are kept for 24 hours"
        assert (await balance(campus, token))["credits"] == "0.06"


@pytest.mark.both_databases
async def test_the_answers_that_are_kept_for_a_key_are_bounded_and_the_oldest_end_early(
    frame: Frame, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "OF_ONE_LINEAGE", 2 * holds.LEAST_COUNTED)
    clock = Clock(NOON)
    async with open_campus(frame=frame, dice=Dice().server(), clock=clock, storage=storage_url, tables=products(dice=PREPAID)) as campus:
        token = await campus.key("dice")
        first, second, third = (asked(campus, token, token_urlsafe(24)) for _ in range(3))
        for number, roll in enumerate((first, second, third), start=1):
            assert await roll() == (200, f"roll {number}")
            clock.move(timedelta(seconds=1))
        assert [await third(), await second()] == [(200, "roll 3"), (200, "roll 2")]
        assert await asked(campus, await campus.key("dice"), token_urlsafe(24))() == (200, "roll 4"), "another key has a share of its own"
        assert await first() == (200, "roll 5"), "its answer ended early: the call is made, and charged, again"
        monkeypatch.setattr(holds, "LARGEST_ANSWER", 10)
        large = asked(campus, token, token_urlsafe(24))
        assert await large() == (200, "roll 6")
        assert await large() == (409, "answer_not_kept")
        assert (await balance(campus, token))["credits"] == "0.00"


@pytest.mark.both_databases
async def test_keys_of_a_product_that_is_gone_spend_what_credits_they_have(frame: Frame, storage_url: str) -> None:
    dice = Dice()
    gone = {"spent": {**PREPAID, "credits": "0.02"}, "counted": DAILY, "free": {**DAILY, "calls": None, "per": None}}
    tables = products(**{name: {k: v for k, v in table.items() if v is not None} for name, table in gone.items()}, dice=PREPAID)
    async with open_campus(frame=frame, dice=dice.server(), clock=Clock(NOON), storage=storage_url, tables=tables) as campus:
        tokens = {name: await campus.key(name) for name in ("dice", *gone)}
        for name in ("spent", "counted"):
            assert await statuses(campus, "roll", 1, tokens[name]) == {200: 1}
    async with open_campus(frame=frame, dice=dice.server(), clock=Clock(NOON), storage=storage_url, tables=products()) as campus:
        assert await statuses(campus, "roll", 7, tokens["dice"]) == {200: 5, 402: 2}
        refused = await campus.call("roll", key=tokens["spent"])
        assert (refused.status, refused.data["balance"]) == (402, "0.00")
        assert "its product is sold no more" in refused.data["detail"]
        assert (await balance(campus, tokens["dice"]))["credits"] == "0.00"
        await campus.service.keys.correct(tokens["dice"], 20_000, why="an outage")
        assert await statuses(campus, "roll", 2, tokens["dice"]) == {200: 1, 402: 1}
        for name in ("counted", "free", "all"):
            token = tokens.get(name) or await campus.key(name)
            assert await statuses(campus, "roll", 4, token) == {200: 4}, name
        await campus.service.feature("usage").flush()
        assert sum(one.calls for one in await campus.service.feature("usage").read(days=1)) == 24, "each is counted once"


@pytest.mark.both_databases
async def test_a_hold_whose_process_is_gone_is_released_once_and_its_answer_is_delivered_only_if_it_can_be_paid(storage_url: str) -> None:
    clock = Clock(NOON)
    dice = Dice()
    tables = products(dice={**PREPAID, "credits": "0.02"})
    async with open_campus(dice=dice.server(), clock=clock, storage=storage_url, tables=tables) as campus:
        token = await campus.key("dice")
        found: list[int] = []

        async def spin() -> None:
            found.append((await campus.call("spin", key=token)).status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spin)
            await dice.is_called.wait()
            clock.move(timedelta(seconds=9))
            await accounts(campus).holds.keep()
            clock.move(timedelta(seconds=9))
            assert await accounts(campus).holds.release_lapsed() == 0, "the lease was renewed"
            clock.move(timedelta(seconds=2))
            assert await accounts(campus).holds.release_lapsed() == 1, "as of a process that hangs"
            assert await accounts(campus).holds.release_lapsed() == 0
            assert await statuses(campus, "roll", 2, token) == {200: 1, 402: 1}
            dice.waits.set()
        assert found == [409], "what it held was spent by another call"
        assert await accounts(campus).findings() == []


@pytest.mark.both_databases
async def test_n_calls_worth_of_credits_open_exactly_n_of_three_times_as_many_in_two_processes(storage_url: str) -> None:
    found: Counter[int] = Counter()
    tables = products(dice={**PREPAID, "credits": "0.20", "calls": 4, "per": "month"})
    async with (
        open_campus(dice=Dice().server(), clock=Clock(NOON), storage=storage_url, tables=tables) as campus,
        open_campus(dice=Dice().server(), clock=Clock(NOON), storage=storage_url, tables=tables) as other,
    ):
        token = await campus.key("dice")

        async def call(served: TestCampus) -> None:
            found[(await served.call("roll", key=token)).status] += 1

        async with anyio.create_task_group() as tasks:
            for number in range(42):
                tasks.start_soon(call, (campus, other)[number % 2])
        assert found == {200: 14, 402: 28}
        (account,) = await accounts(campus).all()
        assert (account.balance, account.held, account.spent) == (0, 0, 200_000)
        assert await accounts(campus).findings() == []


@pytest.mark.both_databases
async def test_the_audit_names_each_account_that_is_not_the_sum_of_what_happened(storage_url: str) -> None:
    async with open_campus(dice=Dice().server(), clock=Clock(NOON), storage=storage_url, tables=products(dice=PREPAID)) as campus:
        key, token = await campus.service.keys.issue("dice")
        await campus.service.keys.correct(key.id, 50_000, why="an hour of outage")
        assert await statuses(campus, "roll", 1, token) == {200: 1}
        assert (await campus.service.ask("audit"))["credits"] == []
        async with campus.service.core.storage.write() as session:
            connection = await session.connection()
            await connection.exec_driver_sql("UPDATE credit_accounts SET balance = balance + 1000000")
        assert (await campus.service.ask("audit"))["credits"] == [
            f"the credits of {key.lineage} are wrong: $0.15 were bought and corrected, $0.02 of calls were delivered, $0.00 are held by"
            " calls that run, and the balance is $1.13"
        ]


async def test_the_operator_reads_and_corrects_what_keys_have_left(run: Command, tmp_path: Path, storage_url: str) -> None:
    product = '[products.dice]\nscope = "all"\nprice = "5"\nterm = "30 days"\ncredits = "5.00"\n'
    plain = '[products.plain]\nscope = "all"\nprice = "5"\nterm = "30 days"\n'
    config = str(write_config(tmp_path, f'[storage]\nurl = "{storage_url}"\n{product}{plain}', port=free_port()))

    def asked(*words: str) -> Any:
        ran = run(*words, "--config", config, "--json")
        return json.loads(ran.out) if ran.code == 0 else ran.err

    def play() -> None:
        (key,) = asked("key", "issue", "dice")
        assert asked("credits", "correct", key["id"], "2.50", "--why", "an outage")[0]["balance"] == "7.50"
        assert asked("credits", "correct", key["id"], "-0.000001", "--why", "=a mistake")[0]["balance"] == "7.499999"
        assert "and $8 cannot be taken from it" in asked("credits", "correct", key["id"], "-8", "--why", "no")
        assert "is not an amount" in asked("credits", "correct", key["id"], "-0", "--why", "no")
        (other,) = asked("key", "issue", "plain")
        assert "whose calls cost no credits" in asked("credits", "correct", other["id"], "1", "--why", "no")
        assert [(one["key"], one["balance"], one["added"]) for one in asked("credits", "list")] == [(key["id"], "7.499999", "7.499999")]
        table = run("credits", "statement", key["id"], "--csv", "--config", config).out.splitlines()
        assert [line.split(",", 2)[2] for line in table[1:]] == [
            'issued,,,0,0,5.00,operator,"dice for 30 days, $5 of credits"',
            "corrected,,,0,0,2.50,operator,an outage",
            "corrected,,,0,0,-0.000001,operator,'=a mistake",
        ]

    await anyio.to_thread.run_sync(play)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"calls": 0}, "greater than or equal to 1"),
        ({"calls": "3"}, "whole number"),
        ({"per": "week"}, "'day' or 'month'"),
        ({"calls": None}, 'per = "day" is the period of calls; add calls = 10000, or remove per'),
        ({"credits": "free"}, "'free' is not a price"),
        ({"credits": "0"}, "not above zero"),
    ],
)
def test_an_allowance_or_credits_that_mean_nothing_are_refused(changes: dict[str, Any], sentence: str, tmp_path: Any) -> None:
    table = {name: value for name, value in {**DAILY, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=sentence):
        config_of({"products": {"dice": table}}, tmp_path / "campus.toml", {})
