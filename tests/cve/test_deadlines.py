"""By when to fix a CVE: the directive's sixteen rows, what is unknown, the dates, and the groups that follow."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from buildings.cve.arguments import Exposure
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.ranking.deadlines import ROWS, Deadline, When, deadlines_of, exposure_at, urgency_of
from buildings.cve.ranking.enrichment import Ssvc
from buildings.cve.ranking.methodology import DEADLINE_COUNTS

TODAY = date(2026, 8, 21)
LONG_AGO = date(2022, 3, 1)

# KEV, automatable, technical impact: days and triage if exposed, days and triage if not, as CERT/CC's table has them; 0: on upgrade.
TABLE = [
    ("no", "no", "partial", 60, False, 0, False, 8, 16),
    ("yes", "no", "partial", 14, False, 14, False, 4, 12),
    ("no", "yes", "partial", 14, False, 60, False, 6, 14),
    ("no", "no", "total", 14, False, 0, False, 7, 15),
    ("yes", "yes", "partial", 3, False, 14, False, 2, 10),
    ("yes", "no", "total", 3, True, 14, False, 3, 11),
    ("no", "yes", "total", 3, False, 60, False, 5, 13),
    ("yes", "yes", "total", 3, True, 3, True, 1, 9),
]


def listing(added: date = LONG_AGO, **changes: object) -> KevEntry:
    values = {"vendor": "Acme", "product": "Rocket", "due_date": added + timedelta(days=14), "ransomware": False, "end_of_life": False}
    return KevEntry(cve_id="CVE-2026-7001", date_added=added, **(values | changes))


def points(automatable: str | None, impact: str | None, exploitation: str = "none") -> Ssvc:
    return Ssvc(exploitation, automatable, impact)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " ".join(row[:3]))
@pytest.mark.parametrize("exposed", ["yes", "no", "unknown"])
def test_each_row_gives_its_days_and_triage(row, exposed: Exposure) -> None:
    kev, automatable, impact, days, triage, days_inside, triage_inside, number, number_inside = row
    entry = listing() if kev == "yes" else None
    found = deadlines_of(entry, points(automatable.upper(), f" {impact}"), exposed=exposed, today=TODAY)
    outside, inside = found.if_exposed, found.if_not_exposed
    assert (outside is None, inside is None) == (exposed == "no", exposed == "yes"), "an answer for each exposure that is possible"
    for answer, expected in ((outside, (number, days, triage)), (inside, (number_inside, days_inside, triage_inside))):
        if answer:
            assert (answer.rows, answer.days or 0, answer.forensic_triage) == ((expected[0],), *expected[1:])
            assert answer.days_at_most == answer.days
            assert answer.due == (LONG_AGO + timedelta(days=expected[1]) if entry else None), "the days begin with the listing"
            assert answer.days_left == ((answer.due - TODAY).days if answer.due else None)
    assert found.unknown == ()
    assert (found.counts_from, found.start) == ((LONG_AGO, "kev_date_added") if entry else (None, "found"))


# KEV, automatable, technical impact, and when to fix it: exposed, not exposed, exposure unknown, and then if it is exposed.
GROUPS = [
    ("no", "no", "partial", "later", "later", "later", None),
    ("yes", "no", "partial", "this_week", "this_week", "this_week", None),
    ("no", "yes", "partial", "this_week", "later", "later", "this_week"),
    ("no", "no", "total", "this_week", "later", "later", "this_week"),
    ("yes", "yes", "partial", "today", "this_week", "today", None),
    ("yes", "no", "total", "today", "this_week", "today", None),
    ("no", "yes", "total", "today", "later", "later", "today"),
    ("yes", "yes", "total", "today", "today", "today", None),
]


@pytest.mark.parametrize("row", GROUPS, ids=lambda row: " ".join(row[:3]))
def test_the_groups_follow_from_the_rows(row) -> None:
    kev, automatable, impact, *expected = row
    entry = listing() if kev == "yes" else None
    found = {
        exposed: urgency_of(entry, points(automatable, impact), epss=0.02, exposed=exposed, today=TODAY)
        for exposed in ("yes", "no", "unknown")
    }
    assert [one.when for one in found.values()] + [found["unknown"].when_if_exposed] == expected
    assert found["yes"].when_if_exposed is found["no"].when_if_exposed is None
    if expected[-1]:
        assert f"Fix {expected[-1].replace('_', ' ')} if it is exposed" in found["unknown"].why, "a later date never hides the other"


@pytest.mark.parametrize(
    ("entry", "ssvc", "epss", "when", "reason"),
    [
        (None, points("no", "partial"), 0.1, "this_week", "EPSS"),
        (None, points("no", "partial"), 0.0999, "later", "not in KEV"),
        (None, points("no", "partial"), None, "later", "not in KEV"),
        (None, points("no", "partial", "Active"), 0.02, "this_week", "CISA calls it exploited"),
        (listing(ransomware=True), points("no", "partial"), 0.02, "today", "ransomware"),
        (listing(ransomware=None), points("no", "partial"), 0.99, "this_week", "exploited and gives it 14 days"),
        (listing(date(2026, 8, 8), due_date=date(2026, 8, 22)), points("no", "partial"), 0.02, "today", "due date in KEV is 2026-08-22"),
        (listing(date(2026, 8, 9), due_date=date(2026, 8, 23)), points("no", "partial"), 0.02, "this_week", "14 days"),
        (listing(date(2026, 6, 11), due_date=date(2026, 6, 25)), points("no", "partial"), 0.02, "today", "due date in KEV is 2026-06-25"),
        (listing(date(2026, 6, 9), due_date=date(2026, 6, 30)), points("no", "partial"), 0.02, "this_week", "14 days"),
    ],
)
def test_epss_ransomware_and_dates_of_the_directive_make_it_more_urgent(entry, ssvc, epss, when: When, reason: str) -> None:
    found = urgency_of(entry, ssvc, epss=epss, exposed="unknown", today=TODAY)
    assert (found.when, reason in found.reason) == (when, True), found.reason


def test_the_documents_and_the_page_have_the_same_table_and_figures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deadlines.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    words, impacts = ("no", "yes"), ("partial", "total")
    assert table == [
        f"| {row.number} | {words[row.exposed]} | {words[row.kev]} | {words[row.automatable]} | {impacts[row.total]} | {row.time} |"
        for row in ROWS
    ]
    for _, number, _, *groups in DEADLINE_COUNTS:
        assert " | ".join(f"{count:,}" for count in groups) in page
        assert sum(groups) == number


def answers(found: Deadline | None) -> tuple[object, ...]:
    assert found
    return found.rows, found.days, found.days_at_most, found.forensic_triage


@pytest.mark.parametrize("said", [None, points(None, None), points("maybe", "severe"), points("", " ")])
def test_what_cisa_does_not_say_in_a_known_word_is_a_range(said: Ssvc | None) -> None:
    found = deadlines_of(None, said, exposed="unknown", today=TODAY)
    assert found.unknown == ("automatable", "technical_impact")
    assert answers(found.if_exposed) == ((5, 6, 7, 8), 3, 60, False)
    assert answers(found.if_not_exposed) == ((13, 14, 15, 16), 60, None, False)
    assert "3 to 60 days" in found.sentence
    assert "automatable and technical impact" in found.sentence
    listed = urgency_of(listing(), said, epss=0.02, exposed="no", today=TODAY)
    assert answers(listed.deadlines.strictest) == ((9, 10, 11, 12), 3, 14, None)
    assert listed.when == "today", "of what is in KEV the strictest row counts"


def test_one_unknown_point_leaves_two_rows() -> None:
    found = urgency_of(None, points("yes", "unheard of"), epss=0.02, exposed="yes", today=TODAY)
    assert (answers(found.deadlines.if_exposed), found.deadlines.unknown) == (((5, 6), 3, 14, False), ("technical_impact",))
    assert (found.when, "3 to 14 days" in found.reason) == ("this_week", True)


def test_forensic_triage_is_kevs_word_and_a_row_that_differs_is_said() -> None:
    for said, wording in ((True, "KEV wants"), (False, "the row wants")):
        entry = listing(forensic_triage=said)
        found = deadlines_of(entry, points("no", "total"), exposed="unknown", today=TODAY)
        assert found.if_exposed
        assert found.if_not_exposed
        assert (found.if_exposed.forensic_triage, found.if_not_exposed.forensic_triage) == (said, said)
        differing = (found.if_exposed if not said else found.if_not_exposed).row_forensic_triage
        assert (differing, wording in found.sentence) == (not said, True)


def test_the_days_begin_with_the_first_release_where_the_date_cannot_be_read() -> None:
    entry = replace(listing(), date_added=None, first_release=date(2026, 8, 19))
    found = deadlines_of(entry, points("yes", "total"), exposed="yes", today=TODAY)
    assert (found.counts_from, found.start, found.strictest.due) == (date(2026, 8, 19), "kev_first_release", date(2026, 8, 22))


def test_a_host_that_a_pattern_names_is_exposed() -> None:
    places = ["web-*", "registry.example/shop:*"]
    assert exposure_at("WEB-03", "no", places) == exposure_at("registry.example/shop:1.2", "unknown", places) == "yes"
    assert (exposure_at("db-01", "no", places), exposure_at("", "unknown", places)) == ("no", "unknown")


@pytest.mark.anyio
async def test_callers_say_whether_their_systems_are_exposed(publisher, make, open_test_campus) -> None:
    options = [{"exploitation": "none"}, {"automatable": "yes"}, {"technicalImpact": "total"}]
    ssvc = {"ssvcV203": [{"source": "134c704f-9b21-4f2e-91b3-4a467353bcc0", "ssvcData": {"options": options}}]}
    publisher.put("/kev.json", make.kev_catalog([make.kev_entry("CVE-2026-7001", date(2026, 8, 20)), *make.listings(120)]))
    publisher.put("/epss.csv.gz", make.epss_file(make.many_scores(200) | {"CVE-2026-7001": 0.9, "CVE-2025-5555": 0.01}))
    records = [make.nvd_record("CVE-2025-5555", metrics=ssvc), make.nvd_record("CVE-2026-7001", metrics=ssvc)]
    publisher.put("/rest/json/cves/2.0", make.nvd_page(records))
    async with open_test_campus(publisher.url) as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        asked: list[tuple[dict[str, str], str, str | None, set[str]]] = [
            ({}, "later", "today", {"if_exposed", "if_not_exposed"}),
            ({"exposed": "yes"}, "today", None, {"if_exposed"}),
            ({"exposed": "no"}, "later", None, {"if_not_exposed"}),
        ]
        for sent, when, when_if_exposed, answers_given in asked:
            one = (await campus.call("cve_verdict", key=key, cve_id="CVE-2025-5555", **sent)).data
            many = (await campus.call("cve_verdicts", key=key, cve_ids=["CVE-2025-5555"], **sent)).data["verdicts"][0]
            facts = (await campus.call("cve_facts", cve_id="CVE-2025-5555", **sent)).data
            for answer in (one, many):
                assert (answer["when"], answer.get("when_if_exposed")) == (when, when_if_exposed)
                assert answer["deadlines"].keys() & {"if_exposed", "if_not_exposed"} == answers_given
            assert facts["deadlines"] == one["deadlines"]
        listed = (await campus.call("cve_verdict", key=key, cve_id="CVE-2026-7001", exposed="yes")).data
        assert listed["deadlines"]["if_exposed"] == {
            "rows": [1],
            "days": 3,
            "days_at_most": 3,
            "due": "2026-08-23",
            "days_left": 2,
            "forensic_triage": True,
        }
        assert (await campus.call("cve_verdict", key=key, cve_id="CVE-2025-5555", exposed="perhaps")).status == 422
        watch = {"name": "edge", "cve_ids": ["CVE-2025-5555"], "least_score": 1}
        made = (await campus.call("create_watch", key=key, **watch)).data
        changed = (await campus.call("update_watch", key=key, watch_id=made["watch_id"], exposed="yes")).data
        assert (made["exposed"], changed["exposed"], changed["cve_ids"]) == ("unknown", "yes", ["CVE-2025-5555"])
