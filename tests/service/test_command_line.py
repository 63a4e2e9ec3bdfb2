"""The command line: what each command prints; mistakes are one sentence and exit code 2."""

import json
import logging
import os
import re
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, redirect_stdout
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import pytest
from commands import Command, command_of
from cyclopts import App
from serving import command, free_port, serving, write_config

from campus import cli
from campus.cli import commands
from campus.cli.options import show_pages
from tests import patient

SHOP = """
from fastmcp import FastMCP
mcp = FastMCP("Shop")

@mcp.tool(annotations={"readOnlyHint": True})
def ask(word: str) -> str:
    "Ask for a word."
    return word
"""
WRITES = """
@mcp.tool
def stock(word: str) -> str:
    "Put a word in."
    return word

@mcp.tool(annotations={"destructiveHint": True})
def empty() -> str:
    "Take all words out."
    return ""
"""
CONFIG = """
openapi = "shop"
[products.shop]
scope = "shop"
price = "19"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.shop]
server = "shop_of_a_stranger:mcp"
tools = { ask = { price = "0.01" } }
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shop_of_a_stranger.py").write_text(SHOP)
    return {"PYTHONPATH": str(tmp_path)}


@pytest.fixture
def run(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.syspath_prepend(environ["PYTHONPATH"])

    return command_of(capsys)


def test_the_version_is_that_of_the_distribution_and_no_command_tells_another(run: Command) -> None:
    ran = run("--version")
    assert (ran.out, ran.code) == (f"{version('mcp-campus')}\n", 0)
    for words in ("key --version", "key list --version", "ledger sum --version", "new --version"):
        assert run(*words.split()).code == 2, words


@pytest.mark.anyio
@pytest.mark.parametrize("pages", [[], [2], [2, 1], [1, 1, 1]])
async def test_pages_are_printed_as_one_table_and_as_one_json_array(pages: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"key_{'x' * number}", "note": None} for number in range(sum(pages))]

    async def read() -> AsyncIterator[list[dict[str, str | None]]]:
        left = iter(rows)
        for count in pages:
            yield list(islice(left, count))

    await show_pages(read(), as_json=True)
    assert capsys.readouterr().out == f"{json.dumps(rows, indent=2)}\n"
    await show_pages(read(), as_json=False)
    head, *lines = capsys.readouterr().out.splitlines()
    assert (head.split(), [line.split() for line in lines]) == (
        (["id", "note"], [[row["id"], "-"] for row in rows]) if rows else (["nothing", "to", "show"], [])
    )


def test_a_key_is_issued_listed_renewed_rotated_and_revoked(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, CONFIG, port=free_port()))

    def key(*words: str) -> list[dict[str, str]]:
        answer = run("key", *words, "--json", "--config", config)
        assert answer.code == 0, answer.err
        rows: list[dict[str, str]] = json.loads(answer.out)
        return rows

    issued = key("issue", "shop", "--note", "for the test")[0]
    assert issued["key"].startswith("campus_live_")
    listed = key("list")[0]
    assert (listed["id"], listed["state"], listed["note"]) == (issued["id"], "valid", "for the test")
    assert issued["key"] not in json.dumps(listed)
    assert key("renew", issued["id"])[0]["expires_at"] > issued["expires_at"]
    rotated = key("rotate", issued["id"])[0]
    assert rotated["key"] != issued["key"]
    assert rotated["old_key"] == issued["id"]
    left = datetime.fromisoformat(rotated["old_key_expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    assert run("key", "revoke", issued["id"], "--config", config).out == f"revoked {issued['id']} (shop)\n"
    assert [row["state"] for row in key("list")] == ["revoked", "valid"]
    key("issue", "shop", "--note", "a\nb\x1b[31m")
    assert r"a\nb\x1b[31m" in run("key", "list", "--config", config).out
    copied, beginning = f"Bearer {rotated['key']}", listed["begins_with"]
    assert [[row["id"] for row in key("list", text)] for text in (copied, beginning, "FOR THE", "nobody")] == [
        [rotated["id"]],
        [issued["id"]],
        [issued["id"], rotated["id"]],
        [],
    ]
    assert issued["key"].startswith(beginning)
    for file in (tmp_path / "data").iterdir():
        assert issued["key"].encode() not in file.read_bytes()


def test_the_clients_of_a_key_and_the_targets_that_alerts_do_not_reach_are_listed(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, f"{CONFIG}[buildings.recorder]\n", port=free_port()))
    assert run("alerts", "--config", config).out == "every target is reached\n"
    key = json.loads(run("key", "issue", "shop", "--json", "--config", config).out)[0]["id"]
    assert json.loads(run("key", "clients", key, "--json", "--config", config).out) == []
    with closing(sqlite3.connect(tmp_path / "data" / "campus.db")) as database, database:
        database.execute(
            "INSERT INTO connect_clients (id, key_id, building, client_id, client_name, returns_to, connected_at)"
            f" VALUES ('client_1', '{key}', 'shop', 'x', 'Chat\x1b', 'chat.example', '2026-08-21 12:00:00.000000')"
        )
    with closing(sqlite3.connect(tmp_path / "data" / "recorder.db")) as database, database:
        database.execute(
            "INSERT INTO target (id, kind, address, identity, secret, attempts, failing_since, last_error, host, sender, health, burst)"
            " VALUES ('tgt_1', 'webhook', 'https://hook.example/secret', X'01', X'02', 3, 0, 'it answered 500', 'h', 's', 'suspect', 0)"
        )
    listed = run("key", "clients", key, "--config", config).out.splitlines()
    assert listed[1].split() == ["client_1", "shop", r"Chat\x1b", "chat.example", "2026-08-21T12:00:00Z"]
    answer = run("alerts", "--json", "--config", config)
    (found,) = json.loads(answer.out)
    assert (found["building"], found["state"], found["since"], found["tries"]) == ("recorder", "failing", "1970-01-01T00:00:00Z", 3)
    assert (found["address"], found["reason"]) == ("https://hook.example/…", "it answered 500")
    assert run("key", "clients", "key_nothing", "--config", config).code == 2


def test_tools_lists_every_tool_and_writes_nothing(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, CONFIG, port=8000))
    rows = {row["tool"]: row for row in json.loads(run("tools", "--json", "--config", config).out)}
    assert rows["ask"] == {
        "building": "shop",
        "tool": "ask",
        "tier": "key",
        "price": None,
        "scope": "shop",
        "http": ["GET http://127.0.0.1:8000/v1/shop/ask"],
    }
    assert rows["list_buildings"]["tier"] == "free"
    assert not (tmp_path / "data").exists()
    listed = run("tools", "--config", config)
    assert "list_buildings" in listed.out
    assert "so prices per call are neither shown nor taken: ask (" in listed.err


def test_check_says_that_all_is_well_or_what_is_not(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, CONFIG, port=8000))
    answer = run("check", "--config", config)
    assert (answer.code, answer.out) == (0, "all is well\n"), answer.err


def test_the_shipped_configuration_has_no_finding_of_ours_and_notes_of_what_a_shop_lacks(tmp_path: Path, run: Command) -> None:
    shipped = (Path(__file__).parents[2] / "campus.toml").read_text()
    for feed in ("kev", "kev_mirror", "epss", "nvd"):  # what is away is no mistake of the configuration
        shipped = shipped.replace("[buildings.cve]\n", f'[buildings.cve]\n{feed}_url = "file:///nowhere"\n')
    (tmp_path / "campus.toml").write_text(shipped)
    rows = json.loads(run("check", "--json", "--config", str(tmp_path / "campus.toml")).out)
    assert [row for row in rows if "_url: " not in row["problem"] and row["severity"] != "note"] == []
    note, shop = [row["problem"] for row in rows if row["severity"] == "note"]
    assert shop == (
        "this campus sells, and for buyers to trust it lacks: name, address, contact, terms in [seller]; an https public_url in [server];"
        " [mail], without which no alert goes to a mailbox"
    )
    assert "prices per call are neither shown nor taken: top_cves_today" in note


def test_a_warning_fails_the_check_only_where_it_is_strict(tmp_path: Path, run: Command) -> None:
    bare = SHOP.replace(' -> str:\n    "Ask for a word."', ":")
    (tmp_path / "shop_without_types.py").write_text(bare)
    config = str(write_config(tmp_path, CONFIG.replace("shop_of_a_stranger", "shop_without_types"), port=8000))
    for words, code in ([], 0), (["--strict"], 1):
        answer = run("check", *words, "--config", config)
        assert answer.code == code, answer.err
        assert "warning" in answer.out
        assert "does not say what it returns" in answer.out


def test_check_warns_of_an_address_that_callers_cannot_use(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, 'host = "0.0.0.0"\n' + CONFIG, port=8000))
    answer = run("check", "--json", "--config", config)
    assert answer.code == 1
    assert json.loads(answer.out)[0]["building"] == "[server]"
    assert "public_url" in json.loads(answer.out)[0]["problem"]


def test_check_finds_a_secret_under_a_name_that_nothing_reads(tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    config = str(write_config(tmp_path, CONFIG, port=8000))
    for others in ("CAMPUS_KEY", "CAMPUS_URL", "CAMPUS_HOOK_URL", "CAMPUS_BEAT_URL"):  # those of callers, on the same machine
        monkeypatch.setenv(others, "x")
    assert run("check", "--config", config).out == "all is well\n"
    monkeypatch.setenv("CAMPUS_MAIL_PASWORD", "misspelt")
    monkeypatch.setenv("CAMPUS_SHOP_URL", "of a building without secrets")
    answer = run("check", "--json", "--config", config)
    assert [row["building"] for row in json.loads(answer.out) if row["severity"] == "warning"] == ["environment", "environment"]
    assert "nothing reads the variable CAMPUS_MAIL_PASWORD; the variables for secrets are: CAMPUS_" in answer.out
    assert ", CAMPUS_DATABASE_PASSWORD, " in answer.out
    assert "CAMPUS_SHOP_URL" in answer.out
    assert "misspelt" not in answer.out


def test_prices_that_keys_pay_by_credits_are_shown_and_check_warns_of_too_few(tmp_path: Path, run: Command) -> None:
    for credits, is_short in ("0.005", True), ("0.01", False):
        config = str(write_config(tmp_path, CONFIG.replace('term = "30 days"', f'term = "30 days"\ncredits = "{credits}"'), port=8000))
        answer = run("check", "--config", config)
        assert ("of [products.shop] pay for no call of ask ($0.01)" in answer.out) is is_short, answer.out
        assert "neither shown nor taken" not in answer.err
        [ask] = [row for row in json.loads(run("tools", "--json", "--config", config).out) if row["tool"] == "ask"]
        assert ask["tier"] == "key, with credits $0.01 per call"


def test_check_takes_the_secrets_of_named_facilitators_and_of_further_nodes_for_read(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = (
        f'[payments]\nnetwork = "eip155:8453"\npay_to = "0x{"11" * 20}"\nrpc_url = "http://127.0.0.1:9"\n'
        'facilitators = [{ url = "http://127.0.0.1:9", auth = "bearer", name = "second" }]\n'
        '[[payments.networks]]\nnetwork = "eip155:137"\n'
    )
    config = str(write_config(tmp_path, CONFIG + payments, port=8000))
    monkeypatch.setenv("CAMPUS_PAYMENTS_SECOND_TOKEN", "x")
    monkeypatch.setenv("CAMPUS_PAYMENTS_RPC_URL_137", "http://127.0.0.1:9")
    monkeypatch.setenv("CAMPUS_PAYMENTS_THIRD_TOKEN", "x")
    assert re.findall(r"nothing reads the variable (\w+)", run("check", "--config", config).out) == ["CAMPUS_PAYMENTS_THIRD_TOKEN"]


def test_an_output_whose_reader_is_gone_cannot_be_written_although_nothing_is_left_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert cli._can_be_written()
        os.close(reader)
        assert not cli._can_be_written()


def test_check_finds_products_without_a_place_to_buy_them(tmp_path: Path, run: Command) -> None:
    public = 'public_url = "https://campus.example"\n' + CONFIG
    answer = run("check", "--json", "--config", str(write_config(tmp_path, public, port=8000)))
    found = [row["problem"] for row in json.loads(answer.out) if row["building"] == "[products]"]
    assert answer.code == 1
    assert found == [
        'callers who need a key are not told where to buy shop; set url = "https://…" in [products.shop], '
        "open [buildings.checkout], or set contact in [seller], whom people then ask"
    ]
    asked = public + '[seller]\ncontact = "mailto:ada@campus.example"\n'
    assert run("check", "--config", str(write_config(tmp_path, asked, port=8000))).out == "all is well\n"
    sold = public.replace('term = "30 days"', 'term = "30 days"\nurl = "https://campus.example/buy"')
    answer = run("check", "--config", str(write_config(tmp_path, sold, port=8000)))
    assert (answer.code, answer.out) == (0, "all is well\n"), answer.err


def test_check_warns_of_tools_that_write_and_are_free_without_being_declared_so(tmp_path: Path, run: Command) -> None:
    (tmp_path / "shop_that_writes.py").write_text(SHOP + WRITES)
    config = CONFIG.replace("shop_of_a_stranger", "shop_that_writes")
    silent = config.replace('tools = { ask = { price = "0.01" } }', "")
    assert run("check", "--config", str(write_config(tmp_path, silent, port=8000))).out == "all is well\n", "they take the printed key"
    public = f'public_url = "https://campus.example"\n{silent}[seller]\ncontact = "mailto:ada@campus.example"\n'
    answer = run("check", "--json", "--config", str(write_config(tmp_path, public, port=8000)))
    assert answer.code == 1
    assert [found for found in json.loads(answer.out) if found["severity"] == "error"] == [
        {
            "building": "shop",
            "severity": "error",
            "problem": "anyone may call empty, stock for free: they are not annotated read-only and have no price; set one"
            " in [buildings.shop.tools], or write free = true",
        }
    ]
    free = config.replace('ask = { price = "0.01" }', '"*" = { free = true }')
    answer = run("check", "--config", str(write_config(tmp_path, free, port=8000)))
    assert (answer.code, answer.out) == (0, "all is well\n"), answer.err


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path: Path, run: Command) -> None:
    config = str(write_config(tmp_path, CONFIG, port=8000))
    mistakes = {
        ("key", "issue", "castle", "--config", config): "no product 'castle' is for sale; the products are: shop",
        ("key", "revoke", "key_none", "--config", config): "no key 'key_none'",
        ("run", "shop.nothing", "--config", config): "there is no job 'shop.nothing'; the jobs are: credits.delete_answers",
        ("tools", "--config", str(tmp_path / "other.toml")): "--config FILE",
        ("migration", "gateway", "first"): "no tables=",
        ("migration", "castle", "first"): "no building 'castle' is installed",
        ("chek",): 'unknown command "chek". Did you mean "check"?',
        ("key", "issue"): "PRODUCT requires an argument; see `campus key issue --help`",
        ("key", "issue", "shop", "two", "three"): "unexpected argument 'two three'; see `campus key issue --help`",
        ("ledger", "list", "--last", "-1"): 'invalid value "-1" for --last. Must be >= 1',
        (
            "ledger",
            "sum",
            "--since",
            "2026-02-01",
            "--until",
            "2026-01-01",
            "--config",
            config,
        ): "--since 2026-02-01 is after --until 2026-01-01",
    }
    for words, said in mistakes.items():
        answer = run(*words)
        assert answer.code == 2, (words, answer)
        assert answer.err.startswith("campus: ")
        assert said in answer.err
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize(("how", "code"), [("full", 2), ("gone", 1), ("closed", 2)])
def test_a_new_key_that_cannot_be_shown_is_named_or_not_made(tmp_path: Path, run: Command, how: str, code: int) -> None:
    config = str(write_config(tmp_path, CONFIG, port=8000))
    ends = os.pipe()
    os.close(ends[0])
    with open(ends[1], "w") as gone, open("/dev/full", "w") as full, redirect_stdout({"full": full, "gone": gone, "closed": None}[how]):
        answer = run("key", "issue", "shop", "--config", config)
    assert answer.code == code
    made = [row["id"] for row in json.loads(run("key", "list", "--json", "--config", config).out)]
    if how == "closed":
        assert (answer.err, made) == ("campus: standard output is closed; nothing was done\n", [])
    else:
        assert f"end it by `campus key revoke {made[0]}`" in answer.err
        assert ("the output cannot be written: No space left on device" in answer.err) is (how == "full")
        assert run("ledger", "list", "--until", "9999-12-31", "--config", config).out == "nothing to show\n"


def test_every_command_and_each_of_its_parameters_has_a_help_text() -> None:
    def without(app: App, *path: str) -> Iterator[tuple[str, ...]]:
        names = [name for name in app if not name.startswith("-")]
        if app.show and not app.help:
            yield path
        for name in names:
            yield from without(app[name], *path, name)
        if app.show and not names:
            yield from ((*path, one.name) for one in app.assemble_argument_collection() if not one.parameter.help)

    assert list(without(commands())) == []


def test_all_mistakes_of_a_campus_toml_are_named_at_once(tmp_path: Path, run: Command) -> None:
    def said(text: str) -> list[str]:
        (tmp_path / "campus.toml").write_text(text)
        answer = run("check", "--config", str(tmp_path / "campus.toml"))
        assert answer.code == 2
        return [line.removeprefix("campus: ").removeprefix(f"{tmp_path / 'campus.toml'}: ") for line in answer.err.splitlines()]

    def starts(lines: list[str], *known: str) -> list[str]:
        return sorted(next((start for start in known if line.startswith(start)), line) for line in lines)

    tables = '[sever]\n[server]\nname = true\nport = 99999\nhots = "::1"\n[products.p]\nscope = 1\n[buildings.gateway]\npath = "a b"\n'
    known = ["buildings.gateway.path: write", "products.p.price is", "products.p.scope: write", "products.p.term is missing"]
    known = [*known, "server.name: write", "server.port: ", "unknown key 'hots'", "unknown key 'sever'"]
    assert starts(said(tables), *known) == known
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(3)")
    buildings = '[buildings.cve]\nkev_url = "kev"\nlimit = 3\nsample = "x"\n[buildings.away]\nserver = "exits_at_import:mcp"\n'
    known = ["buildings.away.server = 'exits_at_import:mcp' cannot be imported: SystemExit: 3", "buildings.cve.kev_url: write"]
    known = [*known, "buildings.cve.sample: write", "no building 'tides'", "unknown key 'limit' in [buildings.cve]"]
    assert starts(said(buildings + '[buildings.tides]\n[buildings.gateway]\npath = "/"\n'), *known) == known


def test_a_command_in_a_tests_process_leaves_logging_as_it_was(tmp_path: Path, run: Command) -> None:
    loggers = [logging.getLogger(name) for name in (None, "httpx", "stamina", "fastmcp", "campus.access")]
    before = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    assert run("run", "shop.nothing", "--config", str(write_config(tmp_path, CONFIG, port=8000))).code == 2
    assert [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers] == before


def test_a_port_in_use_is_named_and_nothing_is_written(tmp_path: Path, environ: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = write_config(tmp_path, CONFIG, port=taken.getsockname()[1])
        answer = command("serve", "--config", str(config), environ=environ)
    assert (answer.returncode, "is in use" in answer.stderr) == (2, True), answer.stderr
    assert not (tmp_path / "data").exists()


def test_a_second_server_on_the_same_data_is_refused_and_commands_work_beside_the_first(tmp_path: Path, environ: dict[str, str]) -> None:
    with serving(tmp_path, CONFIG, environ=environ) as first:
        assert first.key("shop")
        answer = command("serve", "--port", str(free_port()), "--config", str(first.config), environ=environ)
        assert answer.returncode == 2
        assert "name a database in [storage] url that several processes can share" in answer.stderr


def test_a_building_of_ones_own_is_served_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    with serving(tmp_path, '[buildings.shop]\nserver = "shop_of_a_stranger:mcp"\n', environ=environ) as campus:
        assert patient.get(f"{campus.url}/v1/shop/ask?word=tide").json() == {"result": "tide"}
        assert patient.get(f"{campus.url}/openapi.json").status_code == 404
        assert "/v1/shop/ask" in patient.get(f"{campus.url}/v1/openapi.json").json()["paths"]


def test_beside_a_buildings_database_of_a_newer_version_nothing_is_made(tmp_path: Path) -> None:
    config = write_config(tmp_path, "[buildings.cve]\nsample = true\n", port=free_port())
    file = tmp_path / "data" / "cve.db"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
        database.commit()
    answer = command("serve", "--config", str(config))
    assert (answer.returncode, "9999" in answer.stderr) == (2, True)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
