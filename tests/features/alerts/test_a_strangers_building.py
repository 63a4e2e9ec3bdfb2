"""A stranger's building raises alerts through campus's front door, in its own transaction, and sends them through its own channel."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from features.alerts.floods import OUTBOX, Floods, Pager, Tables, building
from patience import patience
from sqlalchemy import Connection, Engine, event, insert

from campus.features.alerts import Outcome
from campus.features.alerts.message import Lane
from campus.features.alerts.outbox import DeliveryState
from campus.features.alerts.turns import MOST_CHOSEN
from campus.storage import in_snapshot, in_transaction
from campus.storage.alembic_runner import drift
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def floods(storage_url: str, clock: Clock) -> AsyncIterator[TestCampus]:
    """The building with one subscribed pager."""
    async with open_campus(storage=storage_url, clock=clock, floods=building) as campus:
        assert (await campus.call("subscribe", address="pager:123")).status == 200
        yield campus


def state_of(campus: TestCampus) -> Floods:
    state = campus.site.state
    assert isinstance(state, Floods)
    return state


@pytest.mark.both_databases
async def test_a_warning_is_stored_with_the_change_or_not_at_all_and_sent_through_the_buildings_own_channel(floods: TestCampus) -> None:
    await floods.call("report", port="brest", metres=6)
    await floods.call("report", port="nantes", metres=2)
    assert (await floods.call("report", port="nantes", metres=6)).status == 500, "each port has one level: it is rolled back"
    assert await state_of(floods).dispatcher.deliver_due() == 1
    assert [(address, subject) for _, address, subject in state_of(floods).pager.sent] == [("pager:123", "Flood at brest")]


async def test_a_message_that_fails_is_sent_again_under_its_id_and_many_become_a_digest(floods: TestCampus, clock: Clock) -> None:
    state = state_of(floods)
    state.pager.outcomes = [Outcome("retry", "no signal")]
    for number in range(6):
        await floods.call("report", port=f"port {number}", metres=6)
    assert await state.dispatcher.deliver_due() == 1
    clock.move(timedelta(seconds=7))
    assert await state.dispatcher.deliver_due() == 1
    (first, _, subject), (second, _, _) = state.pager.sent
    assert (first, subject) == (second, "6 floods")


@pytest.mark.both_databases
async def test_all_but_one_of_a_hundred_alerts_wait_for_a_target_before_a_message_begins_and_its_message_says_how_many_were_left_out(
    floods: TestCampus, clock: Clock
) -> None:
    for number in range(105):
        await floods.call("report", port=f"port {number}", metres=6)
    assert (await OUTBOX.state(floods.site.storage)).waiting == 99, "the news after that message have a place too"
    assert await state_of(floods).dispatcher.deliver_due() == 1
    ((_, _, subject),) = state_of(floods).pager.sent
    assert subject == "99 floods after 6 more"


@pytest.mark.both_databases
async def test_a_target_that_is_due_keeps_its_turn_when_more_alerts_are_raised_for_it(floods: TestCampus, clock: Clock) -> None:
    await floods.call("report", port="brest", metres=6)
    clock.move(timedelta(seconds=1))
    await floods.call("subscribe", address="pager:2")
    due = (await OUTBOX.state(floods.site.storage)).due_since
    await floods.call("report", port="nantes", metres=6)
    assert (await OUTBOX.state(floods.site.storage)).due_since == due == clock() - timedelta(seconds=1)


async def test_messages_that_are_due_together_begin_in_different_turns_of_the_event_loop(
    floods: TestCampus, monkeypatch: pytest.MonkeyPatch
) -> None:
    pagers = 8
    for number in range(1, pagers):
        await floods.call("subscribe", address=f"pager:{number}")
    turn = 0
    begun_in: list[int] = []

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    async def send(*_: object) -> Outcome:
        begun_in.append(turn)
        return Outcome("delivered")

    monkeypatch.setattr(state_of(floods).pager, "send", send)
    async with floods.services(), anyio.create_task_group() as tasks:
        await floods.call("report", port="brest", metres=6)
        tasks.start_soon(count_turns)
        with anyio.fail_after(patience(20)):
            while len(begun_in) < pagers:  # noqa: ASYNC110  # a pager rings no bell
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert len(set(begun_in)) == pagers, begun_in


@pytest.mark.both_databases
async def test_no_target_of_a_doubted_sender_is_chosen_while_more_of_others_wait_than_are_chosen_at_one_time(
    floods: TestCampus, clock: Clock
) -> None:
    def fill(connection: Connection) -> None:
        for number in range(2 * MOST_CHOSEN):
            name = f"doubted{number}" if number % 2 else f"honest{number}"
            target = {"id": name, "kind": "pager", "address": f"pager:{name}", "identity": name.encode(), "secret": b"", "attempts": 0}
            due = {"burst": 0, "verified_at": clock(), "next_try_at": clock(), "health": "new", "host": f"{name}.dev"}
            connection.execute(insert(OUTBOX.targets).values(**target, **due, sender=name if number % 2 == 0 else f"net:{number}"))
            connection.execute(insert(OUTBOX.alerts).values(target_id=name, kind="flood", at=clock(), port="brest", metres=6))

    dispatcher = state_of(floods).dispatcher
    for number in range(1, 2 * MOST_CHOSEN, 2):
        failed = Lane(f"gone{number}", "new", f"net:{number}", "gone.dev", keyed=False, answered=False, attempts=0)
        dispatcher.turns.pace.note(failed, clock(), taken=False)
    await in_transaction(floods.site.storage, fill)
    first = [message.target_id for message in await dispatcher.claim()]
    assert sorted(first) == sorted(f"honest{number}" for number in range(0, 2 * MOST_CHOSEN, 2)), "all of the others, and no more"


async def test_a_tool_takes_webhooks_and_its_refusal_names_its_own_argument(floods: TestCampus) -> None:
    assert (await floods.call("send_warnings", webhook="https://hooks.slack.com/floods")).status == 402
    taken = await floods.call("send_warnings", key="floods", webhook="https://hooks.slack.com/floods")
    assert taken.data.startswith("whsec_")
    refused = await floods.call("send_warnings", key="floods", webhook="https://receiver.example/floods")
    assert refused.data["detail"].startswith("webhook cannot be used: Names that end in example are not public")


async def test_a_result_that_no_database_stores_ends_no_delivery(floods: TestCampus, caplog: pytest.LogCaptureFixture) -> None:
    state_of(floods).pager.outcomes = [Outcome("retry", cast("Any", object()))]
    async with floods.services():
        await floods.call("report", port="brest", metres=6)
        with anyio.fail_after(patience(20)):
            while not (noted := [one for one in caplog.records if one.msg in ("delivery not noted", "service failed")]):  # noqa: ASYNC110  # nor does a log
                await anyio.sleep(0.02)
    assert [one.msg for one in noted] == ["delivery not noted"]
    assert floods.service.services.findings() == {}


@pytest.mark.both_databases
async def test_the_outboxs_tables_are_the_buildings_own(floods: TestCampus) -> None:
    assert await drift(floods.site.storage, Tables, "floods") == []


def test_a_channel_that_confirms_its_targets_and_cannot_ask_them_is_refused_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match="Letters sets confirms = True and has no method `ask`; add one that sends the question"):

        class Letters(Pager):
            confirms = True


@pytest.mark.both_databases
async def test_an_operator_sees_who_is_not_reached_without_all_targets_being_read(
    floods: TestCampus, clock: Clock, storage_url: str
) -> None:
    def fill(connection: Connection) -> None:
        """Three that fail, two that are disabled, one that is not confirmed; the subscribed one is well."""
        long_ago, lately = clock() - timedelta(days=2), clock() - timedelta(hours=1)
        troubles: dict[str, dict[str, object]] = {
            "lately": {"failing_since": lately, "last_error": "it answered 503"},
            "longest": {"failing_since": long_ago},
            "longer": {"failing_since": long_ago + timedelta(hours=1)},
            "off": {"disabled_at": long_ago, "disabled_because": "it is gone", "failing_since": long_ago},
            "latest off": {"disabled_at": lately},
            "unasked": {"verified_at": None},
        }
        for name, trouble in troubles.items():
            fixed = {"id": name, "kind": "pager", "address": f"pager:{name}", "identity": name.encode(), "secret": b"", "attempts": 0}
            connection.execute(insert(OUTBOX.targets).values(**{**fixed, "burst": 0, "verified_at": clock(), **trouble}))

    storage = floods.site.storage
    await in_transaction(storage, fill)
    read: list[tuple[str, object]] = []
    event.listen(Engine, "before_cursor_execute", note := lambda *about: read.append(about[2:4]))
    try:
        found = [one.id for one in await OUTBOX.troubled_targets(storage)]
        first = [(one.id, one.reason) for one in await OUTBOX.troubled_targets(storage, limit=4)]
        state = await OUTBOX.state(storage)
        failing = await OUTBOX.targets_are_reached(floods.site)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert found == ["longest", "longer", "lately", "latest off", "off"]
    assert first == [("longest", ""), ("longer", ""), ("lately", "it answered 503"), ("latest off", "")]
    assert failing == ["alerts cannot be delivered to 3 targets; they are retried for 5 days"]
    assert state == DeliveryState(7, 3, 2, 1, 0, None)

    def plans(connection: Connection) -> list[str]:
        asked = [(statement, values) for statement, values in read if "target" in statement]
        return [row[3] for statement, values in asked for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]

    if storage_url.startswith("sqlite"):
        steps = await in_snapshot(storage, plans)
        assert [step for step in steps if step.startswith(("SCAN target", "USE TEMP")) and "INDEX" not in step] == []
