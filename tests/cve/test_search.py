"""Search: the language of criteria, row by row, through both front doors and on both databases; and that watches speak it too."""

from collections.abc import AsyncIterator
from datetime import date
from functools import partial
from typing import Any

import pytest
from cve.lists import Lists
from sqlalchemy import Connection

from buildings.cve.arguments import number_of
from buildings.cve.plain_names import plain_name, plain_package
from buildings.cve.ranking.edition import Edition
from buildings.cve.search.criteria import Criteria, Days
from buildings.cve.search.queries import numbers_of
from buildings.cve.tables import CVES, DETAILS, EPSS_CHANGES, EPSS_DAYS, PRODUCTS, RANKED, WEAKNESSES
from buildings.cve.watches.matching import Matcher
from campus.storage import in_snapshot, in_transaction

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
TABLES = (RANKED, CVES, DETAILS, PRODUCTS, WEAKNESSES, EPSS_CHANGES, EPSS_DAYS)
TODAY, WEEK_BEFORE = date(2026, 8, 21), date(2026, 8, 14)

# number, score, EPSS now and a week before, KEV (added, due, ransomware), severity, CVSS, exploit page, SSVC, weaknesses, products, text
WORLD: list[tuple[Any, ...]] = [
    *[("CVE-2026-0001", 90.0, 0.9, 0.2, (date(2026, 8, 20), date(2026, 8, 23), True), "CRITICAL", 9.8, True, ("active", "yes", "total"))],
    *[("CVE-2025-0002", 40.0, 0.5, 0.5, (date(2026, 7, 1), date(2026, 7, 22), None), "HIGH", 8.1, False, ("active", "no", "partial"))],
    *[("CVE-2024-0003", 24.9, 0.996, 0.5, None, "MEDIUM", 5.0, True, ("poc", "yes", "partial"))],
    *[("CVE-2024-0004", 2.5, 0.1, None, None, "LOW", 3.1, False, (None, None, None))],
    *[("CVE-2023-0005", 0.25, 0.01, 0.02, None, None, None, None, (None, None, None))],
]
NAMES = {
    1: [("Cisco", "IOS XE"), ("Zyxel", "100% pure_thing")],
    2: [("Microsoft", "Exchange Server"), *(("Microsoft", f"Windows {number}") for number in range(40))],
    3: [("lodash", "lodash"), ("Perl", "Net::DNS")],
    4: [("cisco", "anyconnect")],
}
CWES = {1: ["CWE-78", "CWE-20"], 2: ["CWE-502"], 3: ["CWE-79"]}
TEXTS = {1: "A Deserialization of untrusted data, 100% sure", 2: "Deserialization in Exchange's back_end", 3: "Prototype pollution", 4: ""}


def rows() -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {table: [] for table in TABLES}
    for rank, (cve_id, score, epss, before, kev, severity, cvss, exploit, ssvc) in enumerate(WORLD, start=1):
        number, last = number_of(cve_id), int(cve_id[-1])
        found[RANKED].append({"number": number, "rank": rank, "score": score, "epss": epss, "percentile": 0.5})
        changes = [(WEEK_BEFORE, before), *([(TODAY, epss)] if epss != before else [])]
        found[EPSS_CHANGES] += [{"number": number, "day": day, "epss": one} for day, one in changes if one is not None]
        if last == 5:
            continue  # neither in KEV nor read of NVD
        added, due, ransomware = kev or (None, None, None)
        words = dict(zip(("exploitation", "automatable", "technical_impact"), ssvc, strict=True))
        entry = f'{{"vendor": "Of KEV", "product": "{last}", "date_added": "{added}"}}' if kev else None
        listed = {"kev_added": added, "kev_due": due, "kev_ransomware": ransomware, "kev_entry": entry}
        names = dict(zip(("vendor", "product"), NAMES[last][0], strict=True))
        rated = {"severity": severity, "cvss": cvss, "exploit_url": "https://example.com/" if exploit else None, "status": "Analyzed"}
        found[CVES].append({"number": number, "nvd_version": 1, **listed, **rated, **names, **words})
        found[DETAILS].append({"number": number, "record": "{}", "description": TEXTS[last]})
        plain = [{"plain_vendor": plain_name(vendor), "plain_product": plain_name(name)} for vendor, name in NAMES[last]]
        shown = [{"number": number, "vendor": vendor, "product": name, "of_kev": False} for vendor, name in NAMES[last]]
        found[PRODUCTS] += [one | other for one, other in zip(shown, plain, strict=True)]
        found[WEAKNESSES] += [{"number": number, "cwe": cwe} for cwe in CWES.get(last, ())]
    left_out = number_of("CVE-2022-0006")
    found[RANKED].append({"number": left_out, "rank": 0, "score": 0, "epss": 0.9, "percentile": 0.5})
    return found


def store(connection: Connection, model: str) -> None:
    for table, stored in rows().items():
        connection.execute(table.delete())
        if stored:
            connection.execute(table.insert(), stored)
    connection.execute(EPSS_DAYS.insert(), {"day": WEEK_BEFORE, "model": model, "next_day": None})


async def filled(lists: Lists) -> None:
    issue = lists.campus.site.state.edition.facts.issues.epss
    await in_transaction(lists.campus.site.storage, partial(store, model=issue.version))


FITTING: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5]),
    ({"vendors": ["CISCO"]}, [1, 4]),
    ({"vendors": ["cisco", "Microsoft"], "kev": True}, [1, 2]),
    ({"products": ["windows-39"]}, [2]),  # the 41st of its products
    ({"products": ["cisco:ios_xe"]}, [1]),
    ({"products": ["microsoft:ios_xe"]}, []),
    ({"products": ["Net::DNS"]}, [3]),
    ({"packages": ["pkg:npm/lodash@4.17.20"]}, [3]),
    ({"cve_ids": ["cve-2024-0004", "CVE-2022-0006"]}, [4]),
    ({"vendors": [" loda\u200bsh\n"]}, [3]),
    ({"vendors": ["lodash"], "cve_ids": ["CVE-2026-0001"]}, [1, 3]),  # names widen
    ({"vendors": ["lodash"], "cve_ids": ["CVE-2026-0001"], "kev": False}, [3]),  # all else narrows
    ({"text": "deserialization"}, [1, 2]),
    ({"text": "DESERIALIZATION exchange"}, [2]),
    ({"text": "100%"}, [1]),
    ({"text": "%%"}, []),
    ({"text": "back_end"}, [2]),
    ({"text": "back?end"}, []),
    ({"text": "d_serialization"}, []),
    ({"text": "' OR 1=1 --"}, []),
    ({"cwes": ["CWE-79", "CWE-78"]}, [1, 3]),
    ({"cwes": ["CWE-7"]}, []),
    ({"kev": True}, [1, 2]),
    ({"kev": False}, [3, 4]),
    ({"kev_days": 2}, [1]),
    ({"kev_days": 1}, []),
    ({"due_days": 2}, [1]),
    ({"due_days": 1}, []),
    ({"ransomware": True}, [1]),
    ({"ransomware": False}, [2]),
    ({"exploitation": "active", "automatable": "no"}, [2]),
    ({"technical_impact": "partial"}, [2, 3]),
    ({"least_epss": 0.5}, [1, 2, 3]),
    ({"least_rise": 0.1}, [1, 3]),
    ({"least_cvss": 8.1}, [1, 2]),
    ({"least_severity": "MEDIUM"}, [1, 2, 3]),
    ({"exploit_reference": True}, [1, 3]),
    ({"exploit_reference": False}, [2, 4]),
    ({"year": 2024}, [3, 4]),
    ({"least_score": 25}, [1, 2]),
    ({"least_score": 24.9}, [1, 2, 3]),
    ({"vendors": []}, [1, 2, 3, 4, 5]),
]


async def test_each_criterion_finds_what_it_says_and_a_watch_of_it_the_same(open_lists, storage_url) -> None:
    async with open_lists(storage=storage_url, frame="mcp" if storage_url.startswith("sqlite") else "http") as lists:
        await filled(lists)
        for criteria, found in FITTING:
            answer = await lists.call("search_cves", **criteria)
            assert answer.status == 200, (criteria, answer.data)
            assert [int(one["cve_id"][-1]) for one in answer.data["entries"]] == found, criteria
            assert (answer.data["total"], answer.data["count"], answer.data["next"]) == (len(found), len(found), None)
            assert len(answer.data["criteria"]) == len([value for value in criteria.values() if value != []])
            watched = Criteria.model_validate({"least_score": 1, **criteria})
            fitting = await in_snapshot(lists.campus.site.storage, partial(fitted, lists.campus.site.state.edition, watched))
            assert fitting[0] == fitting[1], criteria
        await in_transaction(lists.campus.site.storage, partial(store, model="another"))
        rises = (await lists.call("search_cves", sort="rise")).data
        assert (rises["total"], rises["notes"][0][:22]) == (0, "EPSS of a week before ")
        assert {one["epss_rise"] for one in (await lists.call("search_cves")).data["entries"]} == {None}, (
            "a week before is of another model"
        )


def fitted(edition: Edition, criteria: Criteria, connection: Connection) -> tuple[set[int], set[int]]:
    days = Days(TODAY, WEEK_BEFORE)
    return Matcher(connection, edition, 1).fitting(criteria), set(numbers_of(connection, criteria, days))


@pytest.fixture(scope="module")
async def lists(open_lists) -> AsyncIterator[Lists]:
    async with open_lists() as opened:
        await filled(opened)
        yield opened


async def test_the_order_the_pages_and_the_formats_of_what_is_found(lists: Lists) -> None:
    async def ids(**arguments: Any) -> list[int]:
        return [int(one["cve_id"][-1]) for one in (await lists.call("search_cves", **arguments)).data["entries"]]

    assert await ids(sort="rise") == [1, 3]
    assert await ids(sort="due") == [2, 1]
    first = (await lists.call("search_cves", limit=2)).data
    assert (first["total"], first["count"], first["next"]) == (5, 2, 2)
    assert await ids(limit=2, offset=4) == [5]
    past = (await lists.call("search_cves", offset=7)).data
    assert (past["total"], past["count"], past["next"]) == (5, 0, None)
    assert first["entries"][0] == {
        **{"rank": 1, "cve_id": "CVE-2026-0001", "score": 90.0, "kev": True, "kev_date_added": "2026-08-20"},
        **{"kev_due_date": "2026-08-23", "ransomware": True, "epss": 0.9, "epss_rise": 0.7, "severity": "CRITICAL", "cvss": 9.8},
        **{"vendor": "Of KEV", "product": "1"},
    }
    headers = {"authorization": f"Bearer {lists.key}", "accept": "text/csv"}
    csv = await lists.campus.http.get("/v1/cves?kev=true&limit=2000", headers=headers)
    assert csv.text.splitlines()[1] == "1,CVE-2026-0001,90.0,yes,2026-08-20,2026-08-23,yes,0.9,0.7,CRITICAL,9.8,Of KEV,1"
    markdown = await lists.campus.http.get("/v1/cves?text=100%25", headers=headers | {"accept": "text/markdown"})
    assert "# 1 of 1 CVEs on 2026-08-21" in markdown.text
    assert "- described with 100%" in markdown.text


REFUSED: list[dict[str, Any]] = [
    *({"limit": 0}, {"limit": 2001}, {"offset": -1}, {"sort": "score"}, {"text": "a"}, {"text": "a " * 11}, {"text": "  "}),
    *({"cwes": ["79"]}, {"cwes": ["CWE-79'"]}, {"kev_days": 0}, {"due_days": -1}, {"exploitation": "maybe"}, {"least_epss": 1.1}),
    *({"least_severity": "NONE"}, {"year": 99}, {"vendors": ["a"] * 51}, {"vendors": [" "]}, {"least_rise": 0}),
]


async def test_what_cannot_be_searched_is_refused_and_words_that_no_cve_has_are_named(lists: Lists) -> None:
    for arguments in REFUSED:
        refused = await lists.call("search_cves", **arguments)
        assert (refused.status, refused.code) == (422, "invalid_request"), arguments
    assert (await lists.campus.call("search_cves")).status == 402
    words = {"vendors": ["Acme Corp", "acmee", "Cisco"], "products": ["acme:anvl"], "packages": ["nosuch"], "cwes": ["CWE-9999"]}
    notes = (await lists.call("search_cves", **words, cve_ids=["CVE-2022-0006", "CVE-2026-0001"])).data["notes"]
    assert notes[:6] == [
        "No CVE is of the vendor 'Acme Corp' so far. Did you mean 'Acme'?",
        "No CVE is of the vendor 'acmee' so far. Did you mean 'Acme'?",
        "No CVE is of the product 'acme:anvl' so far. Did you mean 'Acme:Anvil'?",
        "No CVE is of the package 'nosuch' so far.",
        "No CVE is of the weakness 'CWE-9999' so far.",
        "Not ranked: CVE-2022-0006. cve_facts says why.",
    ]


async def test_before_the_first_list_a_search_says_that_there_is_none(open_test_campus) -> None:
    async with open_test_campus(settings={"sample": True}) as campus:
        answer = await campus.call("search_cves", key="cve", kev=True)
        assert (answer.status, answer.data["sample"], answer.data["total"]) == (200, True, 0)
        assert "the search begins with the first list" in answer.data["notes"][0]


@pytest.mark.parametrize("name", ["Log4j_2", " log4j  2", "LOG4J-2", "ｌｏｇ４ｊ 2"])
def test_names_are_compared_without_case_punctuation_and_width(name: str) -> None:
    assert plain_name(name) == "log4j2"
    assert len({plain_name(one) for one in ("C", "C++", "C#", "::", "—")}) == 5, "what makes a name another one stays"


PACKAGES = {
    **{"pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1?type=jar": "log4jcore", "org.springframework:spring-web": "springweb"},
    **{"@angular/core": "core", "github.com/gin-gonic/gin@v1.9": "gin", "Django": "django", "libssl3": "libssl3"},
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_compared_by_the_last_part_of_its_name(package: str) -> None:
    assert plain_package(package) == PACKAGES[package]
