"""Addresses of the full list's feeds: who makes them, what they show, and when they end."""

import csv
import io
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from campus.testing import Clock

pytestmark = pytest.mark.anyio


async def test_the_full_list_is_read_at_an_address_until_it_is_revoked(few, open_test_campus, storage_url) -> None:
    async with open_test_campus(few.url, frame="mcp", storage=storage_url) as campus:
        await campus.run("refresh", accept=True)
        assert (await campus.call("create_feed_url")).status == 402
        key, other = await campus.key("cve"), await campus.key("cve")
        brief = (await campus.call("top_cves_today", key=key)).data
        made = (await campus.call("create_feed_url", key=key, label="reader")).data
        paths = {name: url.removeprefix("http://campus.test") for name, url in made["urls"].items()}

        feed = (await campus.http.get(paths["json_feed"])).json()
        assert feed["feed_url"] == made["urls"]["json_feed"]
        assert [item["title"].split(" ")[1].rstrip(":") for item in feed["items"]] == [entry["cve_id"] for entry in brief["entries"]]
        assert str(brief["entries"][0]["score"]) in feed["items"][0]["content_text"]
        atom = await campus.http.get(paths["atom"])
        assert len(Xml.fromstring(atom.content).findall("{http://www.w3.org/2005/Atom}entry")) == 25
        table = await campus.http.get(paths["csv"])
        rows = list(csv.DictReader(io.StringIO(table.text, newline="")))
        assert [(row["cve_id"], float(row["score"])) for row in rows] == [(entry["cve_id"], entry["score"]) for entry in brief["entries"]]
        assert table.headers["cache-control"] == "private, max-age=300"
        again = await campus.http.get(paths["csv"], headers={"If-None-Match": table.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await campus.http.post(paths["csv"])).status_code == 405

        listed = (await campus.call("list_feed_urls", key=key)).data
        [shown] = listed["feeds"]
        assert shown == {name: made[name] for name in ("feed_id", "label", "made_at")} | {"made_by": shown["made_by"], "state": "active"}
        secret = paths["csv"].split("/")[3]
        assert secret not in str(listed)
        assert (await campus.call("list_feed_urls", key=other)).data["count"] == 0
        assert (await campus.call("revoke_feed_url", key=other, feed_id=made["feed_id"])).code == "no_such_feed"
        assert (await campus.http.get(paths["csv"])).status_code == 200, "another key's owner revokes nothing"
        assert (await campus.call("revoke_feed_url", key=key, feed_id=made["feed_id"])).data == {"ok": True, "feed_id": made["feed_id"]}
        for path in paths.values():
            gone = await campus.http.get(path)
            assert (gone.status_code, gone.json()["code"]) == (404, "no_such_feed")


async def test_an_address_lasts_as_long_as_its_key_and_guesses_find_nothing(publisher, open_test_campus, tmp_path: Path) -> None:
    clock = Clock()
    async with open_test_campus(publisher.url, clock=clock, storage=f"sqlite:{tmp_path}") as campus:
        key = await campus.key("cve")
        path = (await campus.call("create_feed_url", key=key)).data["urls"]["csv"].removeprefix("http://campus.test")
        secret = path.split("/")[3]
        assert (await campus.http.get(path)).json()["code"] == "no_list_yet"
        for guess in (secret[:-1], secret.lower(), "brief", "%00", "x" * 4000):
            answer = await campus.http.get(f"/v1/feeds/{guess}/brief.csv")
            assert (answer.status_code, answer.json()["code"]) == (404, "no_such_feed"), guess[:20]
        for name in ("brief", "csv", "brief.xml", "next.csv"):
            assert (await campus.http.get(f"/v1/feeds/{secret}/{name}")).json()["code"] == "no_such_feed"
        assert secret.encode() not in contents(tmp_path), "only a digest of the secret is stored"

        for _ in range(19):
            assert (await campus.call("create_feed_url", key=key)).status == 200
        assert (await campus.call("create_feed_url", key=key)).code == "feed_limit_reached"
        clock.move(timedelta(days=29))
        assert (await campus.http.get(path)).json()["code"] == "no_list_yet"
        clock.move(timedelta(days=1))
        assert (await campus.http.get(path)).json()["code"] == "no_such_feed"


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
