"""Questions to mailboxes: one record for the whole campus says who may be asked, whatever spelling, key or building is used."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from itertools import pairwise
from typing import Any, Literal

import anyio
import pytest
from recorder.receivers import Mailbox, open_mailbox
from sqlalchemy import delete

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from campus.features.alerts.mailboxes import MAILBOXES
from campus.storage import in_transaction
from campus.testing import Clock, Reply, TestCampus, open_campus

pytestmark = pytest.mark.anyio
ME = "ann.lee@gmail.com"
SELLER = {"name": "Example & Sons", "address": "1 Example Street\nExample City", "contact": "mailto:ada@shop.example"}
OWNED = (
    ("recorder", "fleet_status", "monitors", "delete_monitor", "monitor_id"),
    ("cve", "list_watches", "watches", "delete_watch", "watch_id"),
)
"""What a caller has: the building, the tool that lists it, as what, and the tool that deletes one, by which argument."""
SPELLINGS = (ME, "Ann.Lee@GMAIL.com", "annlee+shop@gmail.com", "a.n.n.l.e.e@googlemail.com")


@dataclass
class Askers:
    """A campus with recorder and cve, and a key of each caller of one test who names mailboxes."""

    campus: TestCampus
    clock: Clock
    mailbox: Mailbox
    keys: dict[str, str] = field(default_factory=dict)

    async def names(self, address: str, *, by: str, building: str = "recorder", name: str = "mine") -> Reply:
        made = await self.keeps(address, by=by, building=building, name=name)
        if made.status == 200:
            tool, called = ("delete_monitor", "monitor_id") if building == "recorder" else ("delete_watch", "watch_id")
            await self.campus.call(tool, building=building, key=self.keys[by], **{called: made.data[called]})
        return made

    async def keeps(self, address: str, *, by: str, building: str = "recorder", name: str = "mine") -> Reply:
        if by not in self.keys:
            self.keys[by] = await self.campus.key("all")
        tool, about = ("register_monitor", {}) if building == "recorder" else ("create_watch", {"vendors": ["Cisco"]})
        made = await self.campus.call(tool, building=building, key=self.keys[by], name=name, alert_email=address, **about)
        await self.deliver()
        return made

    async def deliver(self) -> None:
        sites = self.campus.service.sites
        await sites["recorder"].state.dispatcher.deliver_due()
        await sites["cve"].state.watching.dispatcher.deliver_due()

    async def pass_time(self, **span: float) -> None:
        self.clock.move(timedelta(**span))
        await self.deliver()

    async def target(self, by: str, building: str = "recorder") -> Any:
        tool, called = ("fleet_status", "monitors") if building == "recorder" else ("list_watches", "watches")
        (found,) = (await self.campus.call(tool, building=building, key=self.keys[by])).data[called]
        return found["targets"][0]

    async def forget(self) -> None:
        for key in self.keys.values():
            for building, lists, listed, deletes, called in OWNED:
                for each in (await self.campus.call(lists, building=building, key=key)).data.get(listed, ()):  # none if the key ended
                    await self.campus.call(deletes, building=building, key=key, **{called: each[called]})

    async def press(self, purpose: str, data: str = "List-Unsubscribe=One-Click") -> str:
        answer = await self.campus.http.post(self.mailbox.link(purpose), content=data)
        assert answer.status_code == 200, answer.text
        return answer.text


@asynccontextmanager
async def open_askers(storage: str | None = None, **tables: Any) -> AsyncIterator[Askers]:
    clock = Clock(datetime(2026, 8, 21, 12, 0, tzinfo=UTC))
    async with open_mailbox() as mailbox:
        mail = {"mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"}}
        settings = {"registrations_per_minute": 10_000}
        async with open_campus(clock=clock, storage=storage, tables=mail | tables, settings=settings, recorder=recorder, cve=cve) as campus:
            yield Askers(campus, clock, mailbox)


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[Askers]:
    async with open_askers(seller=SELLER) as opened:
        yield opened


@pytest.fixture
async def askers(opened: Askers) -> AsyncIterator[Askers]:
    """The campus of all tests, in which nobody has a target, and whose mailboxes forgot what they were asked."""
    opened.mailbox.messages.clear()
    opened.mailbox.htmls.clear()
    askers = replace(opened, keys={})
    yield askers
    await askers.forget()
    await in_transaction(opened.campus.service.core.storage, lambda connection: connection.execute(delete(MAILBOXES)))


@pytest.mark.both_databases
async def test_a_mailbox_is_asked_once_a_day_and_thrice_in_all_however_it_is_spelled_and_whoever_names_it(storage_url: str) -> None:
    async with open_askers(storage_url) as askers:
        for day in range(4):
            for number, building in ((day, "recorder"), ((day + 1) % 4, "cve")):
                assert (await askers.names(SPELLINGS[number], by=f"caller {number}", building=building)).status == 200
            assert len(askers.mailbox.messages) == min(day + 1, 3)
            await askers.pass_time(days=1)
        await askers.keeps("annlee@gmail.com", by="caller 0")
        shown = await askers.target("caller 0")
        assert (shown["state"], "left 3 unanswered; the link in an earlier one allows" in shown["reason"]) == ("disabled", True)


async def test_a_mailbox_that_refuses_is_never_asked_again_until_its_holder_allows_it(askers: Askers) -> None:
    await askers.names(ME, by="bully")
    link = askers.mailbox.link("questions")
    assert askers.mailbox.messages[0]["List-Unsubscribe"] == f"<http://campus.test{link}>"
    assert "Never ask again" in (await askers.campus.http.get(link)).text
    await askers.names(ME, by="bully")
    await askers.press("questions")
    for number in range(5):
        await askers.pass_time(days=30)
        await askers.names(SPELLINGS[number % 4], by=f"other {number}", building=("recorder", "cve")[number % 2])
    assert len(askers.mailbox.messages) == 1
    assert "Allow questions again" in (await askers.campus.http.get(link)).text
    await askers.press("questions", "answer=allow")
    await askers.names(ME, by="friend")
    assert len(askers.mailbox.messages) == 2
    assert (await askers.campus.http.post(link[:-1] + "!")).status_code == 404


async def test_who_unsubscribes_is_asked_by_nobody_and_can_allow_it_on_that_page(askers: Askers) -> None:
    await askers.keeps(ME, by="friend")
    await askers.press("confirm")
    monitor = (await askers.campus.call("fleet_status", key=askers.keys["friend"])).data["monitors"][0]
    await askers.campus.call("send_test_alert", key=askers.keys["friend"], monitor_id=monitor["monitor_id"])
    await askers.deliver()
    page = await askers.press("unsubscribe")
    assert f'action="{askers.mailbox.link("questions")}"' in page
    await askers.pass_time(days=2)
    await askers.keeps(ME, by="friend")
    await askers.names(ME, by="other", building="cve")
    assert len(askers.mailbox.messages) == 2
    await askers.press("questions", "answer=allow")
    await askers.names(ME, by="other", building="cve")
    assert len(askers.mailbox.messages) == 3


async def test_who_agreed_gets_all_alerts_of_that_key_without_another_question_and_those_of_others_after_one(askers: Askers) -> None:
    await askers.keeps(ME, by="friend")
    await askers.keeps(ME, by="friend", building="cve")
    assert "asked within the last day" in (await askers.target("friend", "cve"))["reason"]
    await askers.press("confirm")
    await askers.pass_time(minutes=1)
    assert [(await askers.target("friend", one))["state"] for one in ("recorder", "cve")] == ["ready", "untested"]
    await askers.names(ME, by="friend")
    await askers.campus.call("delete_watch", building="cve", key=askers.keys["friend"], watch_id=await only_watch(askers))
    await askers.keeps(ME.upper(), by="friend", building="cve")
    assert (await askers.target("friend", "cve"))["state"] == "untested", "confirmed, and nothing was sent there yet"
    assert len(askers.mailbox.messages) == 1
    await askers.pass_time(days=1)
    await askers.keeps(ME, by="stranger")
    assert ((await askers.target("stranger"))["state"], len(askers.mailbox.messages)) == ("unconfirmed", 2)


async def only_watch(askers: Askers) -> str:
    (watch,) = (await askers.campus.call("list_watches", building="cve", key=askers.keys["friend"])).data["watches"]
    found: str = watch["watch_id"]
    return found


async def test_a_key_has_twenty_mailboxes_asked_a_day_in_all_buildings_and_the_others_when_there_is_room(askers: Askers) -> None:
    for number in range(11):
        for building in ("recorder", "cve"):
            await askers.keeps(f"{building}{number}@example.com", by="bully", building=building, name=f"{number}")
    assert len(askers.mailbox.messages) == 20
    await askers.pass_time(days=1)
    await askers.pass_time(days=1)
    assert len({message["To"] for message in askers.mailbox.messages}) == len(askers.mailbox.messages) == 22


async def test_a_process_that_ends_while_it_sends_a_question_sends_no_second_one_that_day(askers: Askers) -> None:
    askers.mailbox.answers = anyio.Event()
    with anyio.move_on_after(60) as ended:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: askers.keeps(ME, by="friend"))
            while not askers.mailbox.messages:  # noqa: ASYNC110  # a mailbox rings no bell
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    assert not ended.cancelled_caught
    askers.mailbox.answers.set()
    await askers.pass_time(hours=1)
    await askers.names(ME, by="other", building="cve")
    assert len(askers.mailbox.messages) == 1
    await askers.pass_time(hours=23)
    assert len(askers.mailbox.messages) == 2, await askers.target("friend")


async def test_a_question_that_the_mail_server_did_not_take_is_sent_when_it_does(askers: Askers) -> None:
    askers.mailbox.refusal = "451 try later"
    await askers.keeps(ME, by="friend")
    askers.mailbox.refusal = None
    await askers.pass_time(minutes=1)
    assert [message["To"] for message in askers.mailbox.messages] == [ME]


async def test_a_host_in_any_script_is_taken_as_mail_servers_name_it(askers: Askers) -> None:
    await askers.keeps("me@bücher.example", by="friend")
    assert [message["To"] for message in askers.mailbox.messages] == ["me@xn--bcher-kva.example"]
    refused = await askers.keeps("me@bü cher.example", by="friend")
    assert (refused.status, refused.code) == (422, "invalid_request")


OWN_LINKS = ("http://campus.test/v1/", "http://campus.test/recorder/mon_", "mailto:ada@shop.example", "ada@shop.example")
LINKED = "https://1249763844/login evil%2eexample www\u2024evil\u2024example evil\u3002example \uff57ww.e.example a@e.example //e.example"


async def test_nothing_that_a_caller_wrote_becomes_a_link_in_an_e_mail(askers: Askers) -> None:
    await askers.keeps(ME, by="bully", name=LINKED[:100])
    await askers.press("confirm")
    monitor = (await askers.campus.call("fleet_status", key=askers.keys["bully"])).data["monitors"][0]
    await askers.campus.call("send_test_alert", key=askers.keys["bully"], monitor_id=monitor["monitor_id"])
    await askers.deliver()
    question, alert = askers.mailbox.messages
    for message, html in zip((question, alert), askers.mailbox.htmls, strict=True):
        assert foreign_links(message) == []
        assert all(url.startswith(("http://campus.test", SELLER["contact"])) for url in re.findall(r'(?:href|src)="([^"]*)', html))
        assert foreign_words(re.sub("<style>.*</style>|<[^>]*>", " ", html, flags=re.DOTALL)) == []
    assert f"Monitor: {monitor['monitor_id']}" in alert.get_content()
    assert "Last beat: none yet" in alert.get_content()


async def test_the_html_of_a_mail_escapes_what_a_caller_wrote_loads_nothing_and_ends_with_the_seller(askers: Askers) -> None:
    await askers.keeps(ME, by="friend", name="<img src=//e> & 'x'")
    await askers.press("confirm")
    monitor = (await askers.campus.call("fleet_status", key=askers.keys["friend"])).data["monitors"][0]
    await askers.campus.call("send_test_alert", key=askers.keys["friend"], monitor_id=monitor["monitor_id"])
    await askers.deliver()
    for message, html in zip(askers.mailbox.messages, askers.mailbox.htmls, strict=True):
        assert "&lt;img src=/ / e&gt; &amp; &#39;x&#39;" in html
        assert not re.search("<(img|script|link|iframe|form)|url\\(|@import", html)
        assert "Example &amp; Sons<br>1 Example Street<br>Example City<br>" in html
        assert message.get_content().endswith("\nExample & Sons\n1 Example Street\nExample City\nmailto:ada@shop.example\n")
    assert f'<a href="http://campus.test/recorder/{monitor["monitor_id"]}">Its page, for its owner</a>' in askers.mailbox.htmls[1]
    assert f'<a href="http://campus.test{askers.mailbox.link("unsubscribe")}">Unsubscribe</a>' in askers.mailbox.htmls[1]


def foreign_links(message: EmailMessage) -> list[str]:
    return foreign_words(f"{message['Subject']} {message.get_content()}")


def foreign_words(text: str) -> list[str]:
    words = text.split()
    joined = [word for word in words if any(a in ".:/@%\u2024\u3002\uff0e" and b.isalnum() for a, b in pairwise(word))]
    return [word for word in joined if not word.startswith(OWN_LINKS)]
