"""KEV releases: their quirks, and what is refused."""

import json
import tarfile
from datetime import date
from pathlib import Path

import pytest

from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.kev import parse_kev

ADDED = date(2026, 8, 1)


def test_a_listing_is_read_with_its_blanks_stripped(make) -> None:
    entry = make.kev_entry("CVE-2026-1000", ADDED, vendorProject=" Acme ", product="\tAnvil\n", knownRansomwareCampaignUse="Known")
    catalog = parse_kev(make.kev_catalog([entry]))
    read = catalog.entries["CVE-2026-1000"]
    assert (read.vendor, read.product, read.date_added, read.due_date) == ("Acme", "Anvil", ADDED, date(2026, 8, 15))
    assert read.ransomware
    assert not read.end_of_life
    assert str(catalog.issue) == "2026.08.21 of 2026-08-21"


def test_members_that_old_releases_lack_are_not_asked_for(make) -> None:
    entry = make.kev_entry("CVE-2026-1000", ADDED)
    del entry["knownRansomwareCampaignUse"], entry["cwes"], entry["notes"]
    assert not parse_kev(make.kev_catalog([entry])).entries["CVE-2026-1000"].ransomware


def test_of_a_cve_that_is_listed_twice_the_earlier_listing_counts(make) -> None:
    twice = [make.kev_entry("CVE-2019-1069", date(2022, 3, 15)), make.kev_entry("CVE-2019-1069", date(2024, 9, 18))]
    for entries in (twice, twice[::-1]):
        assert parse_kev(make.kev_catalog(entries)).entries["CVE-2019-1069"].date_added == date(2022, 3, 15)


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"", "an empty answer"),
        (b"<!DOCTYPE html><html><title>Access Denied</title>", "an HTML page of 49 bytes"),
        (b'{"title": "Catalog", "vulnerab', 'an answer of 30 bytes that begins with \'{"title"'),
        (b"[]", "an answer of 2 bytes"),
        (b"\xff\xfe\x00garbage", "an answer of 10 bytes"),
    ],
)
def test_what_is_no_catalog_is_refused_with_what_was_seen(body: bytes, seen: str) -> None:
    with pytest.raises(FeedRefused) as refusal:
        parse_kev(body)
    assert seen in str(refusal.value)


@pytest.mark.parametrize("member", [{"cveID": "CVE-26-1"}, {"dateAdded": "yesterday"}, {"dateAdded": ""}, {"product": None}])
def test_a_release_with_one_bad_listing_is_refused_whole(make, member) -> None:
    with pytest.raises(FeedRefused, match=r"vulnerabilities\.1\."):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), make.kev_entry("CVE-2026-1001", ADDED, **member)]))


def test_a_release_that_lost_listings_on_its_way_is_refused(make) -> None:
    with pytest.raises(FeedRefused, match="announces 3 entries and holds 1"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED)], count=3))


def test_every_tenth_of_the_real_releases_is_read(real_feeds: Path) -> None:
    with tarfile.open(real_feeds / "kev_releases_2023-04-10_2026-08-21.tar.xz") as releases:
        for place, member in enumerate(releases):
            if place % 10:
                continue
            body = releases.extractfile(member).read()
            catalog = parse_kev(body)
            assert catalog.released_at.date().isoformat() == member.name[4:14]
            assert len(catalog.entries) == len({one["cveID"] for one in json.loads(body)["vulnerabilities"]})
