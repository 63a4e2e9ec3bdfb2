"""What README.md and docs/ show works: the ten lines, the paying client, the smallest building, configuration, commands and links."""

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import pytest
from patience import patience
from serving import Served, serving

from campus.app import open_servers
from campus.cli import commands
from campus.cli.places import read_place
from campus.config import config_model
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator, receipt_of
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    path: path.read_text()
    for folder in ("", "docs", "integrations/campus-beat", "integrations/campus-report")
    for path in sorted((ROOT / folder).glob("*.md"))
}
README = DOCUMENTS[ROOT / "README.md"]
SHOWN = "\n".join(text for path, text in DOCUMENTS.items() if path.name == "README.md" or path.parent == ROOT / "docs")
CAMPUS_TOML = (ROOT / "campus.toml").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)(?: title=[^\n]*)?\n(.*?)```", SHOWN, re.DOTALL)


def block(language: str, containing: str) -> str:
    return next(text for found, text in BLOCKS if found == language and containing in text)


BETWEEN = "-- next line --"
BUILDINGS = """
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
"""


class Shown(NamedTuple):
    """A served campus that takes payments, and a wallet that can pay."""

    campus: Served
    payer: Payer

    def addressed(self, text: str) -> str:
        assert "localhost:8000" in text
        return text.replace("localhost:8000", self.campus.url.removeprefix("http://"))


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    payer = Payer(new_wallet())
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in facilitator.table(new_wallet().address).items())
        with serving(tmp_path_factory.mktemp("readme"), f"[payments]\n{table}{BUILDINGS}") as campus:
            yield Shown(campus, payer)


async def test_the_ten_lines_do_what_their_comments_say(shown: Shown) -> None:
    lines = [line.removeprefix("$ ").partition("  #")[0].rstrip() for line in block("console", "make serve").splitlines()]
    serve, *others, connect = lines
    assert serve == "make serve"
    assert connect.startswith("claude mcp add ")
    programs = str(Path(sys.executable).parent)
    script = shown.addressed(f"\necho {BETWEEN}\n".join(others)).replace(".venv/bin", programs)
    with anyio.fail_after(patience(100)):
        ran = await anyio.run_process(["bash", "-euc", script], cwd=shown.campus.config.parent)
    teaser, refusal, key, brief, verdict, listed, called, free = (part.strip() for part in ran.stdout.decode().split(BETWEEN))
    assert len(json.loads(teaser)["teaser"]) == 3
    assert (json.loads(refusal)["status"], "cve" in json.loads(refusal)["detail"]) == (402, True)
    assert key == ""
    assert len(json.loads(brief)["entries"]) == 25
    assert json.loads(verdict)["cve_id"] == "CVE-2021-44228"
    assert {"list_buildings", "how_to_pay", "about_service"} <= set(re.findall(r"\w+", listed))
    assert "/cve/mcp" in called
    assert json.loads(teaser)["teaser"][0]["cve_id"] in free


async def test_the_paying_client_pays_and_has_its_receipt(shown: Shown) -> None:
    code = compile(shown.addressed(block("python", "x402Client")), "README", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"PRIVATE_KEY": shown.payer.wallet.key}
    ran = eval(code, names)
    assert inspect.isawaitable(ran)
    await ran
    answer = names["brief"]
    assert (answer.status_code, len(answer.json()["entries"])) == (200, 25)
    assert receipt_of(answer)["success"] is True


async def test_the_smallest_building_answers_over_both_frames_and_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(block("python", "Fair dice"))
    (opened,) = (await open_servers(read_place(tmp_path / "dice.py"))).opened
    assert (opened.mcp_path, opened.operations["roll"].path) == ("/dice/mcp", "/v1/dice/roll")
    assert "$ campus dev dice.py" in README
    names: dict[str, Any] = {"__name__": "campus_dice"}
    exec(block("python", "Fair dice"), names)
    async with open_campus(frame="http", dice=names["mcp"]) as campus:
        assert (await campus.http.get("/v1/dice/roll?sides=1")).json() == {"result": 1}
    async with open_campus(frame="mcp", dice=names["mcp"]) as campus:
        assert (await campus.call("roll", sides=1)).data == 1


def test_the_configuration_that_is_shown_can_be_read() -> None:
    shown = [text for language, text in BLOCKS if language == "toml"]
    assert len(shown) == SHOWN.count("```toml")
    for text in (each for each in shown if not each.startswith(("[project]", "[maintenance]"))):  # the latter is of docs/features.md
        config_model().model_validate(tomllib.loads(text))


def test_where_a_product_is_bought_is_shown() -> None:
    shown = tomllib.loads(block("toml", "[products."))
    assert all(product["url"] for product in shown["products"].values())
    assert "[products." in CAMPUS_TOML
    assert re.search(r'^# url = "https://', CAMPUS_TOML, re.MULTILINE)


def test_make_says_what_it_prepares_and_how_long_that_takes() -> None:
    command = ["make", "-n", "-C", str(ROOT), "VENV=/nonexistent/venv", "venv"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"echo .*minute", printed)
    assert printed.index("echo") < printed.index("pip -q")


def test_every_command_that_is_named_exists() -> None:
    app = commands()
    named = set(
        re.findall(
            r"campus (serve|check|tools|key|run|audit|backup|migration|new|[a-z]+) ", " ".join(re.findall(r"`(campus [^`]*)`", SHOWN))
        )
    )
    assert {"serve", "key", "run"} <= named
    for name in named:
        assert app[name], name


def anchors_of(text: str) -> set[str]:
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def test_every_link_and_file_that_a_document_names_exists() -> None:
    for path, text in DOCUMENTS.items():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
            linked = (path.parent / target).resolve() if target else path
            assert linked.exists(), (path.name, target)
            assert not anchor or anchor in anchors_of(DOCUMENTS[linked]), (path.name, target, anchor)
        for named in re.findall(r"`((?:docs|integrations|deploy|tests|benchmarks|campus|buildings|twins)/[\w./-]+)`", text):
            assert (ROOT / named).exists() or path.name == "CHANGELOG.md", (path.name, named)


def test_both_commands_of_a_fresh_machine_are_shown() -> None:
    assert "make serve" in README
    assert "make test" in README
