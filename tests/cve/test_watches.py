"""Watches: what is news to them, told once by webhook and polling; whose they are; and what ends them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from cve.lists import CISCO, Lists
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from standardwebhooks import Webhook

from buildings.cve.feeds.download import FetchLimits
from buildings.cve.refresh import renew
from buildings.cve.tables import TARGETS, WATCH_NEWS, WATCHES
from buildings.cve.watches.matching import pack_known, unpack_known
from campus.storage import in_snapshot
from campus.testing import ORIGIN

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
NVD = "/rest/json/cves/2.0"


async def test_what_newly_fits_is_told_once_by_signed_webhook_and_by_polling(open_lists, receiver, storage_url) -> None:
    async with open_lists(storage=storage_url, frame="http" if storage_url.startswith("sqlite") else "mcp") as lists:
        made = await lists.watch(name="routers", vendors=["CISCO"], alert_webhook=receiver.url("/hook?token=1"))
        assert made["targets"][0]["address"] == f"https://localhost:{receiver.port}/…"
        await lists.watch(name="products", products=["cisco:ios_xe", "Rocket"])
        await lists.watch(name="numbers", cve_ids=["cve-2026-7002", "CVE-2026-1099"])
        await lists.watch(name="urgent", least_score=60)
        await lists.watch(name="old", vendors=["Acme"])
        assert await lists.news() == []

        await lists.next_list(("CVE-2026-7001", CISCO), ("CVE-2026-7002", {"vendorProject": "Tonic", "product": "Water"}))
        assert await lists.deliver() == 1
        (message,) = receiver.requests
        sent_at = datetime.fromtimestamp(int(message.headers["webhook-timestamp"]), UTC)
        signed = Webhook(made["webhook_secret"]).sign(message.headers["webhook-id"], sent_at, message.body.decode())
        assert message.headers["webhook-signature"] == signed
        body = message.json
        assert (body["type"], body["watch"], body["count"]) == ("watch.news", {"id": made["watch_id"], "name": "routers"}, 1)
        (entry,) = body["entries"]
        assert (entry["cve_id"], entry["fits"], entry["kev_date_added"]) == ("CVE-2026-7001", ["vendor CISCO"], "2026-08-22")
        verdict = (await lists.call("cve_verdict", cve_id="CVE-2026-7001")).data
        del verdict["deadlines"]["in_words"]
        assert {name: value for name, value in entry.items() if name != "fits"} == {name: verdict[name] for name in entry if name != "fits"}
        told = dict(await lists.news())
        assert told == {
            "routers": ["CVE-2026-7001"],
            "products": ["CVE-2026-7001"],
            "numbers": ["CVE-2026-7002"],
            "urgent": ["CVE-2026-7002", "CVE-2026-7001"],
        }
        polled = (await lists.call("watch_news", watch_id=made["watch_id"])).data
        assert polled["news"][0]["entries"] == body["entries"]
        number = polled["news"][0]["number"]
        assert body["news_url"] == f"{ORIGIN}/v1/watches/news?since={number - 1}&watch_id={made['watch_id']}"

        lists.publish(("CVE-2026-7001", CISCO | {"dueDate": "2026-08-30"}), ("CVE-2026-7002", {}))
        await lists.campus.run("refresh", accept=True)
        brief = (await lists.call("top_cves_today")).data
        assert brief["edition"] == 2, "a corrected list"
        await lists.next_list(days=1)
        await lists.next_list(("CVE-2026-7003", CISCO), ("CVE-2026-7001", CISCO), days=3)
        news = (await lists.call("watch_news", since=polled["next"], watch_id=made["watch_id"])).data
        assert [[entry["cve_id"] for entry in item["entries"]] for item in news["news"]] == [["CVE-2026-7003"]]
        assert (await lists.call("watch_news", since=news["next"], watch_id=made["watch_id"])).data["news"] == []
        assert await lists.deliver() == 1
        assert [one.json["entries"][0]["cve_id"] for one in receiver.requests] == ["CVE-2026-7001", "CVE-2026-7003"]
        (shown,) = (one for one in (await lists.call("list_watches")).data["watches"] if one["name"] == "routers")
        assert (shown["told"], shown["targets"][0]["undelivered"]) == (2, 0)


async def test_a_list_made_by_two_processes_and_one_that_was_not_stored_bring_the_same_news_once(open_lists, storage_url) -> None:
    async with open_lists(storage=storage_url) as lists, open_lists(lists.publisher, storage=storage_url) as others:
        await lists.watch(vendors=["Cisco"])
        for one in (lists, others):
            one.clock.move(timedelta(days=1))
        lists.publish(("CVE-2026-7001", CISCO))

        def fails(*_: object) -> None:
            raise OSError("the process ends here")

        lists.campus.site.state.show, real = fails, lists.campus.site.state.show
        async with anyio.create_task_group() as tasks:
            for one in (others, others, others):
                tasks.start_soon(lambda site: renew(site, accept=True, limits=FetchLimits()), one.campus.site)
        with pytest.raises(OSError, match="ends here"):
            await renew(lists.campus.site, accept=True, limits=FetchLimits())
        lists.campus.site.state.show = real
        await renew(lists.campus.site, accept=True, limits=FetchLimits())
        assert await lists.news() == [("mine", ["CVE-2026-7001"])]


def acme_record(make, cve_id: str, vendor: str) -> Any:
    cpe = {"vulnerable": True, "criteria": f"cpe:2.3:a:{vendor}:tps_reports:1:*:*:*:*:*:*:*"}
    return make.nvd_record(cve_id, configurations=[{"nodes": [{"cpeMatch": [cpe]}]}])


async def test_a_late_record_is_news_but_what_nvds_first_reading_names_is_not(open_lists, make) -> None:
    async with open_lists() as lists:
        await lists.watch(name="early", vendors=["Initech"], least_score=20)
        lists.publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-1000"), acme_record(make, "CVE-2026-1095", "initech")]))
        await lists.campus.run("nvd")
        await lists.next_list(("CVE-2026-7001", {"vendorProject": "Initech"}))
        assert await lists.news() == [("early", ["CVE-2026-7001"])], "1095 reached the score before NVD was read"
        records = [acme_record(make, cve_id, "initech") for cve_id in ("CVE-2026-1096", "CVE-2026-1050")]
        lists.publisher.put(NVD, make.nvd_page(records))
        lists.clock.move(timedelta(hours=2))
        await lists.campus.run("nvd")
        await lists.next_list(("CVE-2026-7001", {"vendorProject": "Initech"}))
        assert (await lists.news())[1:] == [("early", ["CVE-2026-1096"])], "its name came late; 1050 has too low a score"


async def test_names_fit_however_kev_and_nvd_write_them_and_25_is_reached_in_kev_only(open_lists, make) -> None:
    async with open_lists() as lists:
        records = [acme_record(make, "CVE-2026-1097", "paloaltonetworks"), acme_record(make, "CVE-2026-1098", "dlink")]
        lists.publisher.put(NVD, make.nvd_page(records))
        await lists.campus.run("nvd")
        lists.publisher.put("/epss.csv.gz", make.epss_file({f"CVE-2026-{1000 + n}": 0.01 + n / 10**6 for n in range(100)}))
        await lists.next_list()
        await lists.watch(name="vendor", vendors=["Palo Alto Networks"], least_score=20)
        await lists.watch(name="product", products=["D-Link:TPS-Reports", "Net::DNS"], least_score=20)
        await lists.watch(name="in KEV", cve_ids=["CVE-2026-1099", "CVE-2026-7001"])
        await lists.watch(name="likely", cve_ids=["CVE-2026-1099"], least_score=24.999)
        likely = make.many_scores(100) | {"CVE-2026-1099": 0.99999}
        lists.publisher.put("/epss.csv.gz", make.epss_file(likely, scored="2026-08-23T12:00:00Z"))
        await lists.next_list(("CVE-2026-7001", {"vendorProject": "Perl", "product": "Net::DNS"}))
        assert dict(await lists.news()) == {
            "vendor": ["CVE-2026-1097"],
            "product": ["CVE-2026-7001", "CVE-2026-1098"],
            "in KEV": ["CVE-2026-7001"],
            "likely": ["CVE-2026-1099"],
        }


@pytest.fixture(scope="module")
async def shared(open_lists) -> AsyncIterator[Lists]:
    async with open_lists() as lists:
        yield lists


@pytest.fixture
async def lists(shared: Lists) -> Lists:
    return await shared.with_own_key()


async def test_a_changed_watch_tells_what_newly_fits_from_then_on(lists: Lists, receiver) -> None:
    made = await lists.watch(vendors=["Cisco"], least_score=60, alert_webhook=receiver.url())
    again = await lists.watch(vendors=["Cisco"], least_score=60, alert_webhook=receiver.url())
    assert (again["watch_id"], again["webhook_secret"]) == (made["watch_id"], made["webhook_secret"]), "the same watch again"
    changed = await lists.call("update_watch", watch_id=made["watch_id"], vendors=["Acme", "Cisco"], least_score=1, alert_webhook="")
    assert changed.data | {"notes": (), "vendors": ["Acme", "Cisco"], "least_score": 1, "targets": []} == changed.data | {"notes": ()}
    here = select(TARGETS).where(TARGETS.c.address == receiver.url())
    assert (await in_snapshot(lists.campus.site.storage, lambda connection: connection.execute(here).all())) == []
    await lists.next_list(("CVE-2026-7001", CISCO))
    assert await lists.news() == [("mine", ["CVE-2026-7001"])], "the 40 of Acme fitted already"
    renamed = (await lists.call("update_watch", watch_id=made["watch_id"], name="other")).data
    assert (renamed["name"], renamed["vendors"], renamed["least_score"]) == ("other", ["Acme", "Cisco"], 1)
    refused = await lists.call("update_watch", watch_id=made["watch_id"], vendors=[])
    assert (refused.status, refused.code) == (422, "invalid_request")


async def test_another_key_sees_and_changes_nothing_and_a_key_has_twenty(lists: Lists) -> None:
    made, other = await lists.watch(vendors=["Cisco"]), await lists.campus.key("all")
    await lists.next_list(("CVE-2026-7008", CISCO))
    for tool, arguments in (("update_watch", {"name": "x"}), ("delete_watch", {}), ("watch_news", {})):
        refused = await lists.call(tool, key=other, watch_id=made["watch_id"], **arguments)
        assert (refused.status, refused.code) == (404, "no_such_watch"), tool
    assert (await lists.call("list_watches", key=other)).data["watches"] == []
    assert (await lists.call("watch_news", key=other)).data["news"] == []
    for number in range(19):
        lists.clock.move(timedelta(seconds=2))
        await lists.watch(name=f"watch {number}", vendors=["Cisco"])
    assert (await lists.call("create_watch", name="one more", vendors=["Cisco"])).code == "watch_limit_reached"
    for tool in ("create_watch", "list_watches", "watch_news"):
        arguments = {"name": "x", "least_score": 50} if tool == "create_watch" else {}
        assert (await lists.campus.call(tool, **arguments)).status == 402
        assert (await lists.campus.call(tool, key="all", **arguments)).status == 200
    assert (await lists.call("delete_watch", watch_id=made["watch_id"])).data == {"ok": True, "watch_id": made["watch_id"]}
    assert await lists.news() == [], "its news are deleted with it"
    await lists.watch(name="one more", vendors=["Cisco"])
    await lists.next_list(("CVE-2026-7009", CISCO))
    numbers = [item["number"] for item in (await lists.call("watch_news")).data["news"]]
    assert min(numbers) > 1, "no number is used twice: callers ask for what came after one"


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "invalid_request"),
    ({"vendors": [], "products": []}, 422, "invalid_request"),
    ({"vendors": [" "]}, 422, "invalid_request"),
    ({"vendors": ["a"] * 51}, 422, "invalid_request"),
    ({"vendors": "Cisco"}, 422, "invalid_request"),
    ({"products": ["a" * 201]}, 422, "invalid_request"),
    ({"cve_ids": ["CVE-2026-1000"] * 1001}, 422, "invalid_request"),
    ({"cve_ids": ["CVE-26-1"]}, 400, "invalid_cve_id"),
    ({"least_score": 0}, 422, "invalid_request"),
    ({"least_score": True}, 422, "invalid_request"),
    ({"least_score": 101}, 422, "invalid_request"),
    ({"name": "", "vendors": ["a"]}, 422, "invalid_request"),
    ({"vendors": ["a"], "alert_webhook": "http://example.com/x"}, 422, "target_refused"),
    ({"vendors": ["a"], "alert_webhook": "https://169.254.169.254/x"}, 422, "target_refused"),
    ({"vendors": ["a"], "alert_webhook": ORIGIN.replace("http:", "https:") + "/v1/watches"}, 422, "target_refused"),
    ({"vendors": ["a"], "alert_email": "me@example.com"}, 422, "no_mail_here"),
]


async def test_a_watch_that_cannot_be_made_is_refused_and_what_is_odd_is_pointed_out(lists: Lists) -> None:
    for arguments, status, code in REFUSED:
        refused = await lists.call("create_watch", **{"name": "mine", **arguments})
        assert (refused.status, refused.code) == (status, code), (arguments, refused.data)
    for since in (-1, 2**31, "all"):
        assert (await lists.call("watch_news", since=since)).code == "invalid_request"
    assert (await lists.call("list_watches")).data["count"] == 0
    made = await lists.watch(vendors=["ACME", "Acme Inc"], products=["acme:anvil", "hammer", "Acme Inc:anvil"])
    unknown = ["vendor 'Acme Inc'", "product 'hammer'", "product 'Acme Inc:anvil'"]
    assert [note.partition(" so far.")[0] for note in made["notes"][:3]] == [f"No CVE is of the {name}" for name in unknown]
    assert made["notes"][0].endswith("Did you mean 'Acme'?")
    assert "watch_news" in made["notes"][3]
    for _ in range(30):
        refused = await lists.call("update_watch", watch_id=made["watch_id"], name="again")
    assert (refused.status, refused.code) == (429, "too_many_registrations")


async def test_the_watches_of_a_key_that_ended_pause_and_say_so_and_catch_up_when_it_is_renewed(open_lists, receiver) -> None:
    async with open_lists() as lists:
        for name in ("one", "two"):
            await lists.watch(name=name, vendors=["Cisco"], alert_webhook=receiver.url())
        await lists.next_list(("CVE-2026-7001", CISCO), days=29)
        await lists.campus.run("pause_watches")
        assert await lists.deliver() == 2
        lists.clock.move(timedelta(days=1))
        for _ in range(2):
            await lists.campus.run("pause_watches")
            await lists.deliver()
        assert [one.json["type"] for one in receiver.requests] == ["watch.news", "watch.news", "watch.paused"], "told once to each target"
        assert "Renew it" in receiver.requests[-1].json["notice"]
        await lists.next_list(("CVE-2026-7001", CISCO), ("CVE-2026-7002", CISCO))
        assert await lists.deliver() == 0
        await lists.campus.service.keys.renew(lists.key[:24])
        await lists.next_list(("CVE-2026-7001", CISCO), ("CVE-2026-7002", CISCO))
        told = [(name, [cve_id]) for cve_id in ("CVE-2026-7001", "CVE-2026-7002") for name in ("one", "two")]
        assert sorted(await lists.news()) == sorted(told)
        assert {one["state"] for one in (await lists.call("list_watches")).data["watches"]} == {"active"}


async def test_more_news_than_a_list_may_bring_follow_with_the_next_one_and_old_news_are_deleted(open_lists, receiver, make) -> None:
    async with open_lists() as lists:
        await lists.watch(name="all", least_score=60, alert_webhook=receiver.url())
        many = [(f"CVE-2025-{number}", CISCO) for number in range(1000, 2150)]
        await lists.next_list(*many)
        await lists.next_list(*many)
        assert [len(ids) for _, ids in await lists.news()] == [1000, 150]
        first = (await lists.call("watch_news")).data
        assert (len(first["news"]), first["more"]) == (1, True)
        assert await lists.deliver() == 2
        assert [(one.json["count"], len(one.json["entries"])) for one in receiver.requests] == [(1000, 50), (150, 50)]
        await lists.next_list(days=100)
        news = await in_snapshot(lists.campus.site.storage, lambda connection: connection.execute(select(WATCH_NEWS.c.number)).all())
        known = await in_snapshot(
            lists.campus.site.storage, lambda connection: connection.scalar(select(WATCHES.c.known).where(WATCHES.c.name == "all"))
        )
        assert (len(news), len(unpack_known(known)) >= 1150) == (0, True)


SOME_NUMBERS = st.sets(st.integers(min_value=0, max_value=9999 * 10**12))


@given(numbers=SOME_NUMBERS)
async def test_packed_numbers_are_the_same_numbers(numbers: set[int]) -> None:
    assert unpack_known(pack_known(numbers)) == numbers
