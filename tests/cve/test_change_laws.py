"""Laws of the changes between two days' lists, on drawn catalogs and scores: what moved, what left, and why."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.kev import KevCatalog, KevEntry
from buildings.cve.nvd.records import NvdRecords
from buildings.cve.ranking.changes import ArchivedDay, Change, Changes, changes_of, counts_of
from buildings.cve.ranking.edition import make_edition
from buildings.cve.ranking.formula import Scores
from buildings.cve.ranking.results import brief_of

BEFORE = date(2026, 8, 1)
COUNT = 34
NEWCOMER = "CVE-2027-9999"


@dataclass(frozen=True)
class Facts:
    """What the feeds say of one listed CVE."""

    added: date
    epss: float | None


World = Mapping[str, Facts]


def archived(world: World, day: date) -> ArchivedDay:
    kev = {cve_id: _entry(cve_id, facts.added) for cve_id, facts in world.items()}
    scored = sorted((number_of(cve_id), facts.epss) for cve_id, facts in world.items() if facts.epss is not None)
    epss = array("d", (score for _, score in scored))
    scores = Scores(array("q", (number for number, _ in scored)), epss, epss)
    made_at = datetime.combine(day, time(14), tzinfo=UTC)
    edition = make_edition(
        day=day, made_at=made_at, kev=KevCatalog("1", made_at, kev), epss=EpssDay("v1", made_at, scores), nvd=NvdRecords()
    )
    ranks = {spelled(number): cve for number, cve in edition.ranked.first(len(world))}
    return ArchivedDay(brief_of(edition, today=day), ranks, kev)


def _entry(cve_id: str, added: date) -> KevEntry:
    return KevEntry(cve_id=cve_id, vendor="Acme", product="Anvil", date_added=added, due_date=None, ransomware=False, end_of_life=False)


def order_of(world: World, day: date) -> list[str]:
    def key(cve_id: str) -> tuple[float, float, date, str]:
        facts = world[cve_id]
        epss = 0.0 if facts.epss is None else facts.epss
        score = 25.0 + 25.0 * epss + 50.0 * 2 ** (-max((day - facts.added).days, 0) / 30)
        return score, -1.0 if facts.epss is None else facts.epss, facts.added, cve_id

    return sorted(world, key=key, reverse=True)


scores = st.none() | st.integers(0, 100_000).map(lambda whole: whole / 100_000)
facts = st.builds(Facts, added=st.integers(0, 90).map(lambda days: BEFORE - timedelta(days=days)), epss=scores)
worlds = st.lists(facts, min_size=COUNT, max_size=COUNT).map(
    lambda drawn: {f"CVE-2026-{1000 + place}": one for place, one in enumerate(drawn)}
)
days_later = st.integers(1, 21).map(lambda days: BEFORE + timedelta(days=days))


def compared(old: World, new: World, later: date) -> Changes:
    before, after = archived(old, BEFORE), archived(new, later)
    found = changes_of(before, after)
    counts = counts_of(before.brief, after.brief, full_list="")
    parts = ("entered", "left", "moved", "edited")
    assert {name: getattr(counts, name) for name in parts} == {name: len(getattr(found, name)) for name in parts}
    return found


def names_of(changes: tuple[Change, ...]) -> list[str]:
    return [one.cve_id for one in changes]


@given(worlds, days_later)
def test_what_only_ages_moves_nothing_and_enters_or_leaves_by_age_alone(world: World, later: date) -> None:
    found = compared(world, world, later)
    assert (found.moved, found.edited) == ((), ())
    assert {one.reasons for one in (*found.entered, *found.left)} <= {("aged",)}


@given(worlds, days_later, st.integers(0, 3))
def test_newcomers_on_top_move_nobody_and_displace_whom_age_alone_would_have_kept(world: World, later: date, count: int) -> None:
    newest = {f"CVE-2027-{9000 + place}": Facts(later, 1.0) for place in range(count)}
    found = compared(world, {**world, **newest}, later)
    assert found.moved == ()
    first = order_of(world, later)[:25]
    for one in found.left:
        assert one.reasons == (("displaced",) if one.cve_id in first else ("aged",))
        assert one.displaced_by == (tuple(sorted(newest, reverse=True)) if one.cve_id in first else ())
    assert {one.cve_id: one.reasons for one in found.entered if one.cve_id in newest} == dict.fromkeys(newest, ("listed",))


@given(worlds, days_later, st.integers(0, COUNT - 1), scores)
def test_one_score_that_changes_moves_at_most_its_own_cve(world: World, later: date, place: int, score: float | None) -> None:
    cve_id = list(world)[place]
    found = compared(world, {**world, cve_id: Facts(world[cve_id].added, score)}, later)
    assert set(names_of(found.moved)) <= {cve_id}
    for one in found.moved:
        assert one.reasons[0] in ("epss_rose", "epss_fell")


@given(worlds, worlds, days_later, st.sets(st.integers(0, COUNT - 1), max_size=5))
def test_the_changes_account_for_every_difference_of_the_lists(old: World, new: World, later: date, removed: set[int]) -> None:
    gone = {list(old)[place] for place in removed}
    later_world = {cve_id: one for cve_id, one in new.items() if cve_id not in gone} | {NEWCOMER: Facts(later, 0.5)}
    found = compared(old, later_world, later)
    before, aged, after = order_of(old, BEFORE)[:25], order_of(old, later), order_of(later_world, later)
    assert names_of(found.entered) == [cve_id for cve_id in after[:25] if cve_id not in before]
    assert names_of(found.left) == [cve_id for cve_id in before if cve_id not in after[:25]]
    moved = set(names_of(found.moved))
    both = [cve_id for cve_id in after[:25] if cve_id in before]
    assert moved <= set(both)
    stayed = [cve_id for cve_id in both if cve_id not in moved]
    assert stayed == [cve_id for cve_id in aged if cve_id in stayed], "without those that moved the order is that of age alone"
    for one in (*found.entered, *found.left, *found.moved):
        assert one.reasons, one
        assert len(set(one.reasons)) == len(one.reasons)
        assert ("displaced" in one.reasons) == bool(one.displaced_by)
    for one in found.left:
        assert ("removed" in one.reasons) == (one.cve_id in gone)
        if "displaced" in one.reasons:
            assert after.index(one.cve_id) - len(one.displaced_by) < 25, "without them it would be on the list"
        if "aged" in one.reasons:
            assert one.cve_id not in aged[:25], "age alone took it off the list"


def test_a_first_score_of_zero_which_only_decides_a_tie_is_a_reason() -> None:
    unscored = {f"CVE-2026-{1000 + place}": Facts(BEFORE, None) for place in range(COUNT)}
    for lowest, kind in (("CVE-2026-1008", "entered"), ("CVE-2026-1030", "moved")):
        found = compared(unscored, {**unscored, lowest: Facts(BEFORE, 0.0)}, BEFORE + timedelta(days=1))
        assert {one.cve_id: one.reasons for one in getattr(found, kind)} == {lowest: ("epss_rose",)}
