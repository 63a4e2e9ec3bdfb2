"""Feeds for readers: they are JSON Feed 1.1 and Atom, change only with the list, and give away nothing that is sold."""

import json
from datetime import date, datetime
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from buildings.gateway import building as gateway

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
ATOM = "{http://www.w3.org/2005/Atom}"


def checked_json_feed(body: bytes) -> dict[str, Any]:
    """The feed, if it has what https://jsonfeed.org/version/1.1 requires, and nothing of another type than it says."""
    feed: dict[str, Any] = json.loads(body)
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert isinstance(feed["title"], str)
    assert isinstance(feed["items"], list)
    for name in ("home_page_url", "feed_url"):
        assert feed[name].startswith("http")
    known = {"id", "url", "title", "content_text", "date_published", "tags"}
    for item in feed["items"]:
        assert item.keys() <= known
        assert isinstance(item["id"], str)
        assert item["content_text"]
        assert datetime.fromisoformat(item["date_published"]).tzinfo
    assert len({item["id"] for item in feed["items"]}) == len(feed["items"])
    return feed


def checked_atom(body: bytes) -> Xml.Element:
    """The feed, if it has what RFC 4287 requires of a feed and of each entry (sections 4.1.1 and 4.1.2)."""
    feed = Xml.fromstring(body)
    assert feed.tag == f"{ATOM}feed"
    for element in (feed, *feed.findall(f"{ATOM}entry")):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1, name
            assert element.findtext(f"{ATOM}{name}")
        assert datetime.fromisoformat(element.findtext(f"{ATOM}updated") or "").tzinfo
        assert [link for link in element.findall(f"{ATOM}link") if link.get("rel") == "alternate"]
    assert feed.find(f"{ATOM}author/{ATOM}name") is not None
    assert [link.get("href") for link in feed.findall(f"{ATOM}link") if link.get("rel") == "self"] == [feed.findtext(f"{ATOM}id")]
    ids = [entry.findtext(f"{ATOM}id") for entry in feed.findall(f"{ATOM}entry")]
    assert len(set(ids)) == len(ids)
    return feed


@pytest.fixture
def feeds(publisher, make):
    """Listings whose names would break XML, HTML or a line."""
    odd = make.kev_entry(
        "CVE-2026-7001", date(2026, 8, 20), vendorProject="A&B <i>\x0b\ufffe", product='"]]>', knownRansomwareCampaignUse="Known"
    )
    publisher.put(KEV, make.kev_catalog([odd, make.kev_entry("CVE-2026-7002", date(2026, 7, 22)), *make.listings(40)]))
    publisher.put(EPSS, make.epss_file(make.many_scores(100) | {"CVE-2026-7001": 0.912, "CVE-2026-7002": 0.513}))
    return publisher


async def test_the_free_feeds_are_valid_give_away_nothing_that_is_sold_and_are_sent_again_when_the_list_changes(
    feeds, open_test_campus, make
) -> None:
    async with open_test_campus(feeds.url) as campus:
        assert (await campus.http.get("/v1/feeds/teaser.json")).json()["code"] == "no_list_yet"
        await campus.run("refresh", accept=True)
        teaser = (await campus.call("brief_teaser")).data
        brief = (await campus.call("top_cves_today", key="cve")).data
        bodies = {}
        for name, media_type in [
            ("teaser.json", "application/feed+json"),
            ("kev.json", "application/feed+json"),
            ("teaser.atom", "application/atom+xml; charset=utf-8"),
            ("kev.atom", "application/atom+xml; charset=utf-8"),
        ]:
            answer = await campus.http.get(f"/v1/feeds/{name}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
            assert "max-age=300" in answer.headers["cache-control"]
            bodies[name] = answer.content
            (checked_json_feed if name.endswith("json") else checked_atom)(answer.content)

        items = json.loads(bodies["teaser.json"])["items"]
        assert [item["title"].partition(":")[0] for item in items] == [one["cve_id"] for one in teaser["teaser"]]
        added = [item["title"].partition(":")[0] for item in json.loads(bodies["kev.json"])["items"]]
        assert added[0] == "CVE-2026-7001"
        assert "CVE-2026-7002" not in added, "it was added 31 days ago"
        entries = checked_atom(bodies["kev.atom"]).findall(f"{ATOM}entry")
        assert [(entry.findtext(f"{ATOM}title") or "").partition(":")[0] for entry in entries] == added
        assert "A&B <i>" in (entries[0].findtext(f"{ATOM}title") or "")
        everything = b"".join(bodies.values()).decode()
        for entry in brief["entries"]:
            assert str(entry["score"]) not in everything, "scores are sold"
            assert str(entry["epss"]) not in everything

        first = await campus.http.get("/v1/feeds/kev.atom")
        etag = first.headers["etag"]
        for held in (etag, f'W/{etag}, "x"', "*"):
            again = await campus.http.get("/v1/feeds/kev.atom", headers={"If-None-Match": held})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        newer = make.kev_entry("CVE-2026-7003", date(2026, 8, 21))
        feeds.put(KEV, make.kev_catalog([newer, *make.listings(40)], released="2026-08-21T18:00:00.000Z"))
        await campus.run("refresh", accept=True)
        changed = await campus.http.get("/v1/feeds/kev.atom", headers={"If-None-Match": etag})
        assert (changed.status_code, b"CVE-2026-7003" in changed.content) == (200, True)
        head = await campus.http.head("/v1/feeds/kev.atom")
        assert head.headers["etag"] == changed.headers["etag"]
        for name in ("brief.json", "teaser", "teaser.xml", "teaser.csv", ".json", "kev.json/", "%2e%2e"):
            missing = await campus.http.get(f"/v1/feeds/{name}")
            assert (missing.status_code, missing.json()["code"] in ("no_such_feed", "not_found")) == (404, True), name


async def test_what_the_operator_sells_is_on_no_page_and_in_no_feed(feeds, open_test_campus) -> None:
    tools = {"brief_teaser": {"price": "0.01"}, "cve_facts": {"price": "0.01"}, "top_cves_today": {"scope": "gold"}}
    async with open_test_campus(feeds.url, tools=tools, gateway=gateway) as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        names = [one["cve_id"] for one in (await campus.call("brief_teaser", key=key)).data["teaser"]]
        made = (await campus.call("create_feed_url", key=key)).data["urls"]["csv"].removeprefix("http://campus.test")
        refused = {"/v1/feeds/teaser.json": 404, "/v1/feeds/teaser.atom": 404, made: 404, "/cve": 402, f"/cve/{names[0]}": 402, "/": 200}
        for path, status in refused.items():
            answer = await campus.http.get(path, headers={"Accept": "text/html"})
            assert (answer.status_code, [name for name in names[1:] if name in answer.text]) == (status, []), path
        assert names[0] in (await campus.http.get("/cve", headers={"Authorization": f"Bearer {key}"})).text
