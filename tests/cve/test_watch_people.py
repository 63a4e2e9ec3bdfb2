"""Watches for people: news by confirmed e-mail and by Discord, and the page that makes, shows and deletes watches."""

import re

import httpx
import pytest
from cve.lists import CISCO, Lists
from forms import shown
from pages.hostile import ALL_AT_ONCE, harm_in
from recorder.receivers import open_mailbox

pytestmark = pytest.mark.anyio


async def test_people_are_told_by_confirmed_e_mail_and_by_discord(open_lists, receiver) -> None:
    async with open_mailbox() as mailbox:
        mail = {"mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"}}
        async with open_lists(tables=mail, settings={"discord_hosts": ["localhost"]}) as lists:
            made = await lists.watch(name="routers", vendors=["Cisco"], alert_email="me@example.com")
            assert "confirms" in made["notes"][-1]
            await lists.watch(name="chat", vendors=["Cisco"], alert_webhook=receiver.url("/api/webhooks/1/token"))
            await lists.deliver()
            assert "routers" in mailbox.messages[0].get_content()
            await lists.next_list(("CVE-2026-7001", CISCO | {"knownRansomwareCampaignUse": "Known"}))
            await lists.deliver()
            assert len(mailbox.messages) == 1, "nothing is sent before the confirmation"
            assert (await lists.campus.http.post(mailbox.link("confirm"))).status_code == 200
            assert await lists.deliver() == 1
            message = mailbox.messages[-1]
            assert message["Subject"] == "routers: 1 CVE newly fits, CVE-2026-7001"
            assert "CVE-2026-7001 Cisco IOS XE: fix today, rank 1, score 75, in KEV since 2026-08-22" in message.get_content()
            assert "used in ransomware campaigns" in message.get_content()
            embed = receiver.requests[-1].json["embeds"][0]
            assert embed["title"] == "chat: 1 CVE newly fits, CVE-2026-7001"


async def press(lists: Lists, path: str, key: str | None, **fields: str) -> httpx.Response:
    headers = {"Accept": "text/html"} | ({"Authorization": f"Bearer {key}"} if key else {})
    page = await lists.campus.http.get("/cve/watches", headers=headers)
    assert harm_in(page.text) == []
    token = re.search(r'name="form_token" value="(\w+)"', page.text)
    data = {"form_token": token[1] if token else "", **fields}
    answer = await shown(lists.campus.http, await lists.campus.http.post(path, data=data, headers=headers), headers)
    assert harm_in(answer.text) == [] or answer.has_redirect_location
    return answer


async def test_the_page_makes_shows_and_deletes_the_watches_of_its_visitors_key(open_lists, receiver) -> None:
    async with open_lists() as lists:
        name, key, other = ALL_AT_ONCE[:100], lists.key, await lists.campus.key("cve")
        fields = {"name": name, "vendors": "Cisco, Tonic", "least_score": "60", "alert_webhook": receiver.url()}
        made = await press(lists, "/cve/watches", key, **fields)
        assert made.status_code == 200, made.text
        assert "whsec_" in made.text
        refused = await press(lists, "/cve/watches", key, name="x", vendors="Much", least_score="much")
        assert (refused.status_code, 'role="alert"' in refused.text, 'value="Much"' in refused.text) == (422, True, True)
        await lists.next_list(("CVE-2026-7001", CISCO))
        page = await press(lists, "/cve/watches", key, name="")
        assert "/cve/CVE-2026-7001" in page.text
        assert "of vendor Cisco or Tonic" in page.text
        (watch,) = (await lists.call("list_watches")).data["watches"]
        assert "/cve/CVE-2026-7001" not in (await press(lists, "/cve/watches", other, name="")).text
        assert (await press(lists, f"/cve/watches/{watch['watch_id']}/delete", other)).status_code == 404
        assert (await press(lists, "/cve/watches", None, **fields)).status_code == 403
        assert (await lists.campus.http.post("/cve/watches", data=fields, headers={"Authorization": f"Bearer {key}"})).status_code == 403
        assert (await lists.campus.http.get("/cve/watches")).json()["signed_in"] is False
        deleted = await press(lists, f"/cve/watches/{watch['watch_id']}/delete", key)
        assert (deleted.status_code, deleted.headers["location"]) == (303, "/cve/watches")
        assert (await lists.call("list_watches")).data["count"] == 0
        usage = await lists.campus.http.get("/keys", headers={"Authorization": f"Bearer {key}", "Accept": "application/json"})
        assert "0 of 20 watches" in usage.text
