"""`campus ledger`: what each subcommand prints, for people, programs and bookkeeping."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest

from campus.features.payments.tables import LedgerRow, PaymentRow

BASE = "eip155:8453"
ALICE, BOB, OWN = "0x" + "aa" * 20, "0x" + "bb" * 20, "0x" + "cc" * 20
NOON = datetime(2026, 8, 20, 12, tzinfo=UTC)
FORMULA = "=HYPERLINK(1), he said"


class Ran(Protocol):
    code: int
    out: str


Ledger = Callable[..., Ran]


def paid(day: int, number: int, payer: str, amount: int = 5_000, *, event: str = "settled", **more: Any) -> LedgerRow:
    usual = {"building": "cve", "tool": "cve_verdict", "frame": "http", "network": BASE, "transaction": f"0x{number:02}"}
    said = {"at": datetime(2026, 8, day, 12, tzinfo=UTC), "event": event, "payment_id": f"pay_{number}", "payer": payer, "amount": amount}
    return LedgerRow(**{**usual, **said, **more})


@pytest.fixture
def full(write: Callable[..., None]) -> None:
    write(
        LedgerRow(at=datetime(2026, 8, 20, tzinfo=UTC), event="offered", building="cve", tool="cve_verdict", frame="http", quantity=4),
        paid(20, 1, ALICE),
        paid(20, 2, OWN),
        paid(21, 3, BOB, 7, event="failed", transaction=None, detail=FORMULA),
        paid(21, 4, BOB, 149_000_000, building="checkout", tool="buy_key", frame="mcp"),
    )


@pytest.mark.usefixtures("full")
def test_list_shows_the_newest_entries_in_order(ledger: Ledger) -> None:
    rows = json.loads(ledger("list", "--json").out)
    assert [row["event"] for row in rows] == ["offered", "settled", "settled", "failed", "settled"]
    assert rows[-1] == {
        "id": 5,
        "at": "2026-08-21T12:00:00.000000Z",
        "event": "settled",
        "building": "checkout",
        "tool": "buy_key",
        "frame": "mcp",
        "quantity": 1,
        "payment_id": "pay_4",
        "network": "eip155:8453",
        "asset": None,
        "payer": BOB,
        "amount": 149_000_000,
        "transaction": "0x04",
        "detail": "",
        "usd": "149",
    }
    assert [row["payment_id"] for row in json.loads(ledger("list", "--json", "--last", "2").out)] == ["pay_3", "pay_4"]
    assert [row["id"] for row in json.loads(ledger("list", "--json", "--until", "2026-08-20").out)] == [1, 2, 3]
    lines = ledger("list").out.splitlines()
    assert len(lines) == 6
    assert "checkout.buy_key" in lines[-1]


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(("like", "ids"), [("pay_3", [4]), (BOB.upper().replace("X", "x"), [4, 5]), ("0x04", [5]), ("pay%", [])])
def test_list_finds_what_a_customer_names(ledger: Ledger, like: str, ids: list[int]) -> None:
    assert [row["id"] for row in json.loads(ledger("list", like, "--json").out)] == ids


@pytest.mark.usefixtures("full")
def test_sum_leaves_own_wallets_out_unless_they_are_asked_for(ledger: Ledger) -> None:
    rows = json.loads(ledger("sum", "--json").out)
    assert [(row["day"], row["tool"], row["payments"], row["usd"], row["amount"]) for row in rows] == [
        ("2026-08-20", "cve_verdict", 1, "0.005", 5_000),
        ("2026-08-21", "buy_key", 1, "149", 149_000_000),
    ]
    assert ledger("sum").out.splitlines()[-1] == "eip155:8453: $149.005 by 2 payments"
    assert ledger("sum", "--own").out.splitlines()[-1] == "eip155:8453: $149.01 by 3 payments"
    assert ledger("sum", "--since", "2026-08-22").out == "nothing to show\n"


@pytest.mark.usefixtures("full")
def test_the_funnel_leaves_own_wallets_out(ledger: Ledger) -> None:
    assert json.loads(ledger("funnel", "--json").out) == [
        {"day": "2026-08-20", "building": "cve", "tool": "cve_verdict", "shown": 4, "paid": 1, "conversion": 0.25, "payers": 1},
        {"day": "2026-08-21", "building": "checkout", "tool": "buy_key", "shown": 0, "paid": 1, "conversion": None, "payers": 1},
    ]
    assert "0.25" in ledger("funnel").out


def test_the_funnel_says_that_terms_appear_up_to_a_minute_later(ledger: Ledger) -> None:
    late = "appear here up to a minute after they were shown"
    assert ledger("funnel").out == f"nothing to show\nterms {late}\n"
    assert ledger("funnel", "--json").out == "[]\n"
    for subcommand in ("funnel", "list"):
        assert late in " ".join(ledger(subcommand, "--help").out.replace("│", " ").split())


def test_states_count_and_sum_payments_with_the_unproven_ones_apart(ledger: Ledger, write: Callable[..., None]) -> None:
    write(reserved("pay_1", "settled"), reserved("pay_2", "settled", unproven_since=NOON), reserved("pay_3", "released"))
    found = json.loads(ledger("states", "--json").out)
    assert [(one["state"], one["payments"], one["usd"]) for one in found] == [
        ("released", 1, "0.02"),
        ("settled", 1, "0.02"),
        ("unproven", 1, "0.02"),
    ]
    assert found[0]["oldest_at"] == "2026-08-20T12:00:00Z"


def reserved(name: str, state: str, **more: Any) -> PaymentRow:
    whose = {"network": BASE, "asset": "0xa", "payer": ALICE, "nonce": name, "amount": 20_000, "pay_to": "0x1", "valid_before": 1}
    what = {"payment": b"1", "resource": b"2", "building": "cve", "tool": "cve_verdict", "frame": "http", "holder": "x"}
    return PaymentRow(id=name, state=state, lease_until=NOON, reserved_at=NOON, **whose, **what, **more)


@pytest.mark.usefixtures("full")
def test_an_export_holds_every_entry_and_column_and_the_same_in_both_formats(ledger: Ledger) -> None:
    as_json = json.loads(ledger("export", "--format", "json").out)
    as_csv = list(csv.DictReader(io.StringIO(ledger("export").out)))
    assert len(as_json) == 5
    assert as_json == json.loads(ledger("list", "--json").out)
    for one, other in zip(as_json, as_csv, strict=True):
        assert list(one) == list(other)
        expected = {name: "" if value is None else str(value) for name, value in one.items()}
        assert {**other, "detail": other["detail"].removeprefix("'")} == expected
    assert [row["payment_id"] for row in json.loads(ledger("export", "--format", "json", "--since", "2026-08-21").out)] == [
        "pay_3",
        "pay_4",
    ]


@pytest.mark.usefixtures("full")
def test_a_reason_written_by_somebody_else_is_not_a_spreadsheet_formula(ledger: Ledger) -> None:
    rows = list(csv.DictReader(io.StringIO(ledger("export").out)))
    assert [row["detail"] for row in rows] == ["", "", "", f"'{FORMULA}", ""]


def test_an_empty_ledger_is_no_error(ledger: Ledger) -> None:
    for question in ("list", "sum", "states", "funnel"):
        assert (ledger(question).code, ledger(question).out.splitlines()[0]) == (0, "nothing to show")
        assert json.loads(ledger(question, "--json").out) == []
    assert json.loads(ledger("export", "--format", "json").out) == []
    assert len(ledger("export").out.splitlines()) == 1


def test_an_invalid_day_is_refused(ledger: Ledger) -> None:
    for day in ("yesterday", "2026-02-30", "20-08-2026"):
        assert ledger("sum", "--since", day).code != 0
