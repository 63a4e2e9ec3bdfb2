"""What the README shows works: its smallest building, its configuration, and every command that it names."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from campus.cli import commands
from campus.config import Config
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CAMPUS_TOML = (ROOT / "campus.toml").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def block(language: str, containing: str) -> str:
    return next(text for found, text in BLOCKS if found == language and containing in text)


async def test_the_smallest_building_answers_over_both_frames() -> None:
    names: dict[str, Any] = {"__name__": "campus_dice"}
    exec(block("python", "Fair dice"), names)
    async with open_campus(frame="http", dice=names["mcp"]) as town:
        assert (await town.http.get("/v1/dice/roll?sides=1")).json() == {"result": 1}
    async with open_campus(frame="mcp", dice=names["mcp"]) as town:
        assert (await town.call("roll", sides=1)).data == 1


def test_the_configuration_that_is_shown_can_be_read() -> None:
    shown = [text for language, text in BLOCKS if language == "toml" and "[project]" not in text]
    assert len(shown) == README.count("```toml") - 1
    for text in shown:
        Config.model_validate(tomllib.loads(text))


def test_where_a_product_is_bought_is_shown() -> None:
    shown = tomllib.loads(block("toml", "[products."))
    assert all(product["url"] for product in shown["products"].values())
    assert "[products." in CAMPUS_TOML
    assert re.search(r'^# url = "https://', CAMPUS_TOML, re.MULTILINE)


def test_make_says_what_it_prepares_and_how_long_that_takes() -> None:
    command = ["make", "-n", "-C", str(ROOT), "VENV=/nonexistent/venv", "venv"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"echo .*minute", told)
    assert told.index("echo") < told.index("pip install")


def test_every_command_that_is_named_exists() -> None:
    app = commands()
    named = set(
        re.findall(
            r"campus (serve|check|tools|key|run|audit|backup|migration|new|[a-z]+) ", " ".join(re.findall(r"`(campus [^`]*)`", README))
        )
    )
    assert {"serve", "key", "run", "migration"} <= named
    for name in named:
        assert app[name], name


def test_both_commands_of_a_fresh_machine_are_shown() -> None:
    assert "make serve" in README
    assert "make test" in README
