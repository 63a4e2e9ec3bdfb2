"""What reassures follows from a state: every such sentence is listed here with what decides it, and in which states that says so."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from buildings.cve.reports.glance import reason_in_words
from buildings.recorder.alerts.reach import reach_of
from buildings.recorder.models import Entry, TargetView
from buildings.recorder.monitors.listing import STATES, FleetPage
from campus.features.alerts.channels.email import Email
from campus.features.alerts.channels.webhook import Webhook
from campus.features.alerts.dispatcher import Dispatcher
from campus.features.alerts.targets import target_state
from campus.features.key_pages.routes import standing_of as key_standing
from campus.features.operator.overview import Section, is_well
from campus.features.payments.receipts import standing_of as receipt_standing

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(?:is|are|be|was|were) alerted\b|\balerts (?:you\b|reach)|\breach(?:es)? you\b|\bheard you\b|\ball (?:is well|alive|clear|good)\b"
    r"|\bnothing (?:is wrong|to (?:do|fix|patch|worry))\b|\bworks at once\b|\b(?:is|are) (?:safe|covered|protected|up to date)\b"
    r"|\bno outage\b|\bnot exploited\b|\bno (?:known )?attacks?\b|\b(?:nothing|not) (?:was|is) charged\b|\bcosts? nothing\b"
    r"|\bpays? nothing\b|\bon its way\b|\bwas delivered\b|\bis renewed\b|\bnobody is reminded\b|\b(?:is|was) confirmed\b|\bpaid in\b"
    r"|\bare connected\b|\bchecks? pass|\bcalls are answered\b|\bis over\b|\bno alert waits\b|\bhas not reported\b|\bis watched\b"
    r"|\b(?:all servers|everything) works?\b",
    re.IGNORECASE,
)
GREEN = re.compile(r"""["' ]good["' ]""")
"""The tone that says that all is well, in a template."""

GENERAL = "what the product does, and nothing of the reader's own things"
REFUSED = "a refusal that is raised before anything is sent to be charged, or after a failure that ends the sale"
WARNS = "it says the opposite, or explains a code or a word"
NUMBERS = "a number, a price or an outcome that stands there as it is"
SAID: Mapping[str, Mapping[str, str]] = {
    "buildings/checkout/guidance.py": {"the same answer and pay nothing": GENERAL, "fails costs nothing": GENERAL},
    "buildings/checkout/server.py": {"Sells keys for the paid tools": GENERAL, ". Nothing was charged.": REFUSED},
    "buildings/cve/arguments.py": {"Nothing was charged": REFUSED},
    "buildings/cve/reports/glance.py": {"CISA lists no attacks": "reason_in_words"},
    "buildings/cve/templates/cve.html": {
        "nothing to fix under this identifier": "why the CVE has no rank: its identifier was withdrawn",
        'one.event == "removed"': "what CISA did on a day",
        "has not reported attacks": "tests/cve/test_pages.py::test_what_has_no_rank_is_offered_none_and_is_not_called_safe",
    },
    "buildings/cve/templates/list.html": {'"left": "good"': "what changed from one list to the next"},
    "buildings/cve/templates/parts.html": {'"LOW": "good"': "NVD's severity"},
    "buildings/cve/templates/watches.html": {"is watched from the next list on": "Dispatcher.shown"},
    "buildings/cve/watches/models.py": {"until the key is renewed": WARNS},
    "buildings/recorder/alerts/reach.py": {
        "It is paused: nobody": WARNS,
        "held: nobody": WARNS,
        "Nobody is alerted": WARNS,
        " is alerted": "reach_of",
        "where nothing was delivered yet": WARNS,
    },
    "buildings/recorder/alerts/texts.py": {"Alerts reach you here": "it stands in the alert that arrived"},
    "buildings/recorder/models.py": {"and whether alerts reach them": WARNS},
    "buildings/recorder/problems.py": {
        "there is nothing to acknowledge": "tests/recorder/test_acting.py::test_what_is_acknowledged_or_sno"
    },
    "buildings/recorder/server.py": {"no alerts are sent until the key is renewed": WARNS},
    "buildings/recorder/beats/dialects.py": {"the body: it is over": NUMBERS},
    "buildings/recorder/templates/acknowledge.html": {
        "What this alert was about is over": "tests/recorder/test_acting.py::test_the_link_of_an_alert_acknowledges",
        "Nobody is reminded of this again": "tests/recorder/test_acting.py::test_the_link_of_an_alert_acknowledges",
    },
    "buildings/recorder/templates/demo.html": {
        "One that is watched now": "the monitor of campus itself, whose state stands below",
        '"alive": "good"': "state of the monitor",
        'class="good"': "a beat that was recorded",
    },
    "buildings/recorder/templates/fleet.html": {
        "One waits for the beats": GENERAL,
        "all alive": "FleetPage.all_alive",
        "reach you": "reach_of",
        "Green: no outage known": "tests/recorder/test_pages.py::test_an_outage_is_shown_by_hour_and_day",
    },
    "buildings/recorder/templates/fleet_app.html": {'alive: "good"': "state of the monitor"},
    "buildings/recorder/templates/monitor.html": {
        "A test alert is on its way": "tests/recorder/test_pages.py::test_a_test_alert_reaches_the_target",
        "Green: no outage known": "tests/recorder/test_pages.py::test_an_outage_is_shown_by_hour_and_day",
        "No outage is known of": "tests/recorder/test_pages.py::test_an_outage_is_shown_by_hour_and_day",
        "The last message was delivered": "target_state",
    },
    "buildings/recorder/templates/no_fleet.html": {"it alerts you within a minute": GENERAL},
    "buildings/recorder/templates/parts.html": {
        '"alive": "good"': "state of the monitor",
        '"ready": "good"': "target_state",
        "no outage known": "tests/recorder/test_pages.py::test_an_outage_is_shown_by_hour_and_day",
        "Whom its alerts reach: see": GENERAL,
        "We heard you": "reach_of",
        '"ok": "good"': "the result that a run reported",
    },
    "campus/checks.py": {"empty if all is well": WARNS},
    "campus/cli/running.py": {"all is well": "the command's findings, which are none"},
    "campus/features/alerts/targets.py": {"nothing was delivered there yet": WARNS},
    "campus/features/cards/opened.py": {"Nothing is charged": REFUSED, "Nothing was charged": REFUSED},
    "campus/features/cards/pages.py": {"Nothing was charged": REFUSED},
    "campus/features/cards/sales.py": {"Nothing was charged": REFUSED},
    "campus/features/cards/templates/card.html": {
        "Your key is renewed": "state of the sale, as Stripe told it",
        "The dispute is over": "state of the sale, as Stripe told it",
        "so nothing was delivered": WARNS,
    },
    "campus/features/seller/templates/refunds.html": {"What costs nothing": GENERAL, "what was delivered is not what": GENERAL},
    "campus/features/credits/opened.py": {"Nothing was charged": REFUSED},
    "campus/features/credits/step.py": {"nothing was charged for this one": REFUSED, "nothing was charged now": REFUSED},
    "campus/features/connect/provider.py": {"This request to connect is over": WARNS},
    "campus/features/operator/templates/buildings.html": {
        'badge("well", "good")': "tests/features/test_operator.py::test_a_building_that_was_"
    },
    "campus/features/operator/templates/keys.html": {'" valid", "good"': NUMBERS, 'badge("valid", "good")': "state of the key"},
    "campus/features/operator/templates/overview.html": {
        "Calls are answered.": "whether a call that writes can be answered",
        "All is well": "is_well",
        "Every check of this process passes": "is_well",
        "Nothing is wrong with what was asked": "the findings of all checks, which are none",
        'keys.valid, "valid", "good"': NUMBERS,
        'badge("done", "good")': "whether the point is done",
        'act.outcome == "ok"': NUMBERS,
    },
    "campus/features/operator/templates/parts.html": {'badge("well", "good")': "the job's last run"},
    "campus/features/operator/templates/payments.html": {
        '"settled": "good"': "state of the payment",
        "Small calls no longer wait": "the operator's own act",
        "agree, to the smallest unit": "the reconciliation that was just run",
    },
    "campus/features/payments/command.py": {"all is well": "the reconciliation that was just run"},
    "campus/features/payments/opened.py": {"Nothing is charged": REFUSED, "Nothing was charged": REFUSED},
    "campus/features/payments/queue.py": {"nothing was charged": REFUSED},
    "campus/features/payments/states.py": {"Nothing was charged": REFUSED, "nothing was charged": REFUSED, "nothing is charged": REFUSED},
    "campus/features/payments/templates/buy.html": {
        "pay nothing more": "tests/features/payments/test_pricing_pages.py::test_an_answer_that_is_lost",
        "is renewed": "tests/features/payments/test_pricing_pages.py::test_the_owner_of_a_key_renews_it",
    },
    "campus/features/payments/templates/pricing.html": {"The key stops, and nothing is charged": GENERAL, "fails costs nothing": GENERAL},
    "campus/features/payments/templates/receipt.html": {"paid in USDC": "receipt_standing"},
    "campus/features/payments/templates/ways.html": {"the id of the key that is renewed": WARNS},
    "campus/features/payments/terms.py": {"Nothing is charged": REFUSED},
    "campus/features/payments/wire.py": {"Nothing is charged": REFUSED},
    "campus/features/status/templates/status.html": {
        '("Works", "good")': "tests/features/status/test_status.py::test_a_failing_check_is_said",
        "All servers work": "tests/features/status/test_status.py::test_the_page_says_what_is_known",
    },
    "campus/features/tasks/background.py": {"nothing was charged": REFUSED},
    "campus/features/tasks/documents.py": {"nothing is charged then": REFUSED},
    "campus/features/tasks/problems.py": {"charged": REFUSED},
    "campus/features/tool_pages/templates/tool.html": {'badge(entry.tier, "good")': NUMBERS, "answered.status < 400": NUMBERS},
    "campus/http/limits.py": {"The request body is over": NUMBERS},
    "campus/http/protocol.py": {"head is over": NUMBERS},
    "campus/layout/static/wallet.js": {
        "charged": "tests/features/payments/test_pricing_pages.py::test_a_purchase_that_fails_says_why",
        "The payment is on its way": "it was signed, and is sent",
        "Asking again costs nothing more": "tests/features/payments/test_pricing_pages.py::test_an_answer_that_is_lost",
    },
    "campus/layout/templates/macros.html": {'"good" if tool.free': NUMBERS},
    "campus/problems.py": {"Nothing is charged": REFUSED},
}
"""By file and a part of the line or text: what decides the sentence. A key of STATES, a test that shows it (its name may be cut), or why
it needs none."""


class Said(NamedTuple):
    path: str
    text: str


def reassuring_lines(folder: Path) -> Iterator[Said]:
    """Lines of templates and scripts, and texts of code without its docstrings, that may reassure."""
    for path in sorted(each for package in ("campus", "buildings") for each in (folder / package).rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".html", ".js"):
            yield from (Said(name, line) for line in path.read_text().splitlines() if WORDS.search(line) or GREEN.search(line))
        elif path.suffix == ".py" and "migrations" not in path.parts:
            nodes = [*ast.walk(ast.parse(path.read_text()))]
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            texts = [
                node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            ]
            yield from (Said(name, str(node.value)) for node in texts if WORDS.search(str(node.value)))


def unlisted(lines: Sequence[Said]) -> list[Said]:
    return [one for one in lines if not any(part in one.text for part in SAID.get(one.path, ()))]


def test_every_sentence_that_reassures_is_listed_and_nothing_else_is() -> None:
    lines = [*reassuring_lines(ROOT)]
    assert unlisted(lines) == [], "say what decides each of these in SAID; a state does, or it is no promise of anything"
    stale = [
        (path, part) for path, parts in SAID.items() for part in parts if not any(part in one.text for one in lines if one.path == path)
    ]
    assert stale == []


def test_a_new_sentence_that_reassures_is_found(tmp_path: Path) -> None:
    for path, text in {
        "campus/a/templates/b.html": "<p>You are covered: nobody attacks.</p>",
        "buildings/cve/c.py": '"""You are alerted."""\nNOTE = "There is nothing to patch."',
        "campus/layout/static/d.js": 'tell("ok", "good")',
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [one.path for one in unlisted([*reassuring_lines(tmp_path)])] == [
        "buildings/cve/c.py",
        "campus/a/templates/b.html",
        "campus/layout/static/d.js",
    ]


def test_what_decides_a_sentence_is_known() -> None:
    for by in {by for parts in SAID.values() for by in parts.values()}:
        path, is_test, name = by.partition("::")
        assert f"def {name}" in (ROOT / path).read_text() if is_test else " " in by or by in {one.decider for one in CASES}, by


NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


def target(state: str, kind: str = "webhook") -> TargetView:
    return TargetView.model_construct(
        kind=kind,
        address="there",
        state=state,
        reason=None,
        undelivered=0,
        on=None,
        after_minutes=None,  # type: ignore[arg-type]
    )


def promised(*targets: TargetView, **more: Any) -> bool:
    entry = {"targets": targets, "state": "alive", "paused": False, "deadline_at": NOON, "muted_until": None, "options": {}} | more
    return reach_of(Entry.model_construct(**entry)).tone == "good"


def shown(kind: str, state: str = "ready", *, has_mail: bool = True) -> str:
    dispatcher = Dispatcher.__new__(Dispatcher)
    nothing: Any = None
    mail: Any = object() if has_mail else None
    dispatcher.channels = [Webhook(), Email(mail, nothing, nothing, links="")]
    return dispatcher.shown(target(state, kind)).state


def is_delivered(**columns: object) -> bool:
    row = {
        "disabled_at": None,
        "disabled_because": None,
        "verified_at": NOON,
        "failing_since": None,
        "last_error": "500",
        "answered_at": NOON,
    }
    return target_state(SimpleNamespace(**row | columns), to_enable="call it") == ("ready", None)  # type: ignore[arg-type]


def lists_no_attacks(*unknown: str) -> bool:
    deadlines = SimpleNamespace(if_not_exposed=None, strictest=None, unknown=unknown)
    verdict: Any = SimpleNamespace(kev=False, epss=0.01, when="later", deadlines=deadlines)
    return reason_in_words(verdict) == "CISA lists no attacks"


@dataclass(frozen=True)
class Job:
    failures: int = 0
    overdue: bool = False


def well(**sections: Section) -> bool:
    quiet = {
        "findings": {"cve": []},
        "jobs": [Job()],
        "keys": None,
        "payments": [],
        "alerts": {"cve": SimpleNamespace(failing=0)},
        "facts": {},
    }
    return is_well({name: Section(value) for name, value in quiet.items()} | sections)


def payments(state: str) -> Section:
    return Section([SimpleNamespace(state=state, payments=1)])


def fleet(count: int, **states: int) -> bool:
    return FleetPage(count, dict.fromkeys(STATES, 0) | states, count, 1, 1, (), {}).all_alive


class Case(NamedTuple):
    decider: str
    state: str
    reassures: bool
    says: Callable[[], bool]


CASES = [
    Case("reach_of", "it took a message", True, lambda: promised(target("ready"))),
    Case("reach_of", "no target", False, lambda: promised()),
    Case("reach_of", "an unconfirmed mailbox", False, lambda: promised(target("unconfirmed", "email"))),
    Case(
        "reach_of",
        "an unconfirmed mailbox beside a webhook that works",
        False,
        lambda: promised(target("ready"), target("unconfirmed", "email")),
    ),
    Case("reach_of", "its reader unsubscribed, or its service refuses it for good", False, lambda: promised(target("disabled"))),
    Case("reach_of", "its service fails for days", False, lambda: promised(target("failing"))),
    Case("reach_of", "never tried", False, lambda: promised(target("untested"))),
    Case("reach_of", "muted, or in a window of maintenance", False, lambda: promised(target("ready"), muted_until=NOON)),
    Case("reach_of", "paused, as after its key expired", False, lambda: promised(target("ready"), paused=True)),
    Case("reach_of", "a state that nobody knows", False, lambda: promised(target("splendid"))),
    Case("reason_in_words", "all that the deadline depends on is published", True, lambda: lists_no_attacks()),
    Case("reason_in_words", "CISA has not published it, or in a word unknown here", False, lambda: lists_no_attacks("automatable")),
    Case("Dispatcher.shown", "a webhook", True, lambda: shown("webhook") == "ready"),
    Case("Dispatcher.shown", "a mailbox", True, lambda: shown("email") == "ready"),
    Case("Dispatcher.shown", "mail is switched off", False, lambda: shown("email", has_mail=False) == "ready"),
    Case(
        "Dispatcher.shown", "mail is off, and nothing was sent yet", False, lambda: shown("email", "untested", has_mail=False) == "untested"
    ),
    Case("Dispatcher.shown", "its channel is gone", False, lambda: shown("pager") == "ready"),
    Case("target_state", "it took the last message", True, is_delivered),
    Case("target_state", "unconfirmed", False, lambda: is_delivered(verified_at=None)),
    Case("target_state", "unsubscribed", False, lambda: is_delivered(disabled_at=NOON, disabled_because="its reader unsubscribed")),
    Case("target_state", "failing for days", False, lambda: is_delivered(failing_since=NOON - timedelta(days=3))),
    Case("target_state", "nothing was sent yet", False, lambda: is_delivered(answered_at=None)),
    Case("FleetPage.all_alive", "all beat", True, lambda: fleet(2, alive=2)),
    Case("FleetPage.all_alive", "one waits for its user", True, lambda: fleet(2, alive=1, idle=1)),
    Case("FleetPage.all_alive", "one is late", False, lambda: fleet(2, alive=1, late=1)),
    Case("FleetPage.all_alive", "one is paused, or was never heard", False, lambda: fleet(3, alive=1)),
    Case("FleetPage.all_alive", "none", False, lambda: fleet(0)),
    Case("is_well", "nothing is wrong", True, well),
    Case(
        "is_well",
        "the facilitator is down, a feed is held back, the list is older than a day",
        False,
        lambda: well(findings=Section({"cve": ["old"]})),
    ),
    Case("is_well", "the checks could not be run", False, lambda: well(findings=Section(reason="it was not read"))),
    Case("is_well", "another part could not be read", False, lambda: well(facts=Section(reason="it was not read"))),
    Case("is_well", "a job failed", False, lambda: well(jobs=Section([Job(failures=1)]))),
    Case("is_well", "a job is late", False, lambda: well(jobs=Section([Job(overdue=True)]))),
    Case("is_well", "a webhook fails for days", False, lambda: well(alerts=Section({"recorder": SimpleNamespace(failing=1)}))),
    Case("is_well", "payments settled", True, lambda: well(payments=payments("settled"))),
    Case("is_well", "a payment is in doubt", False, lambda: well(payments=payments("unknown"))),
    Case("is_well", "a payment has no proof", False, lambda: well(payments=payments("unproven"))),
    Case("is_well", "the chain lost a payment", False, lambda: well(payments=payments("reversed"))),
    Case("key_standing", "valid", True, lambda: key_standing(8, None)[1] == "good"),
    Case("key_standing", "valid, with calls or credits left", True, lambda: key_standing(30, True)[1] == "good"),
    Case("key_standing", "it ends soon", False, lambda: key_standing(7, None)[1] == "good"),
    Case("key_standing", "its calls and credits are used up", False, lambda: key_standing(30, False)[1] == "good"),
    Case("receipt_standing", "the chain shows it", True, lambda: receipt_standing("settled", is_proven=True) == "paid"),
    Case("receipt_standing", "the facilitator alone says so", False, lambda: receipt_standing("settled", is_proven=False) == "paid"),
    Case("receipt_standing", "the chain lost it", False, lambda: receipt_standing("reversed", is_proven=True) == "paid"),
    Case("receipt_standing", "a word that nobody knows", False, lambda: receipt_standing("splendid", is_proven=True) == "paid"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{one.decider}: {one.state}" for one in CASES])
def test_a_sentence_reassures_in_the_states_in_which_it_is_true_and_in_no_other(case: Case) -> None:
    assert case.says() is case.reassures


def test_each_decider_depends_on_a_state() -> None:
    for decider in {one.decider for one in CASES}:
        assert {one.reassures for one in CASES if one.decider == decider} == {True, False}, decider
