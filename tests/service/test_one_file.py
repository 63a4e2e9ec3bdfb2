"""A server in one file is served at once; what is wrong with the file is one sentence with its line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Command, command_of
from forkserver import CAMPUS, shared
from patience import patience
from serving import Served, free_port, serving, wait_until_it_answers

from tests import patient

HELLO = """
from fastmcp import FastMCP
from words import GREETING

mcp = FastMCP("Hello")


@mcp.tool(annotations={"readOnlyHint": True})
def greet(name: str = "you") -> str:
    "Greet somebody."
    return f"{GREETING} {name}"
"""
BUILDING = """
from campus import Building, Settings, free
from fastmcp import FastMCP


class Options(Settings):
    greeting: str = "hello"


def make(settings: Options) -> FastMCP:
    mcp = FastMCP("Hello")

    @mcp.tool(meta=free())
    def greet() -> str:
        "Greet somebody."
        return settings.greeting

    return mcp


hello = Building(make, settings=Options)
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.syspath_prepend("")  # a file's folder is added to the path; what was added goes with the test
    return command_of(capsys)


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@contextmanager
def served(folder: Path, place: str) -> Iterator[Served]:
    port = free_port()
    words = ["serve", place, "--port", str(port)]
    with (folder / "place.log").open("wb") as log:
        process = shared().start(CAMPUS, *words, environ={"PYTHONPATH": ""}, stderr=log)
    campus = Served(f"http://127.0.0.1:{port}", folder / "place.toml", process, words, {}, "")
    try:
        wait_until_it_answers(campus)
        yield campus
    finally:
        process.terminate()
        process.wait(patience(20))


@pytest.mark.parametrize("place", ["hello.py", "hello.py:mcp", "."])
def test_one_file_or_a_folder_with_one_server_is_served_at_once(tmp_path: Path, place: str) -> None:
    written(tmp_path, hello=HELLO, words='GREETING = "good day"\n')
    with served(tmp_path, str(tmp_path / place)) as campus:
        assert patient.get(f"{campus.url}/v1/hello/greet?name=Ada").json() == {"result": "good day Ada"}
        assert patient.get(f"{campus.url}/openapi.json").json()["paths"].keys() == {"/v1/hello/greet"}
    assert (tmp_path / "data/campus.db").exists()


def test_a_file_is_named_in_campus_toml_relative_to_it(tmp_path: Path) -> None:
    written(tmp_path, hello_of_two=BUILDING)
    text = '[buildings.hello]\nserver = "./hello_of_two.py:hello"\ngreeting = "hej"\n'
    with serving(tmp_path, text) as campus:
        assert patient.post(f"{campus.url}/v1/hello/greet").json() == {"result": "hej"}


def test_check_and_tools_read_one_file_too_and_a_packages_folder(tmp_path: Path, run: Command) -> None:
    package = tmp_path / "good_greetings"
    package.mkdir()
    written(package, __init__=HELLO.replace("from words", "from good_greetings.words"), words='GREETING = "good day"\n')
    rows = json.loads(run("tools", str(package), "--json").out)
    assert [(row["building"], row["tool"]) for row in rows] == [("good_greetings", "greet")]
    assert run("check", str(package)).out == "all is well\n"
    written(
        tmp_path, untyped='from fastmcp import FastMCP\n\nmcp = FastMCP("A")\n\n\n@mcp.tool\ndef greet(name) -> str:\n    return name\n'
    )
    assert "untyped.py:6) takes anything as name: write type hints" in run("check", str(tmp_path / "untyped.py")).out


@pytest.mark.parametrize(
    ("files", "place", "said"),
    [
        ({}, "hello.py", "there is no {}/hello.py; name a file with a FastMCP server"),
        ({"one": "GREETING = 'x'\n"}, "one.py", "{}/one.py has no FastMCP server and no Building; write mcp = FastMCP("),
        ({"one": HELLO, "words": "GREETING = 'x'\n"}, "one.py:app", "{}/one.py has no 'app'; name a FastMCP server"),
        (
            {"two": "from fastmcp import FastMCP\nfirst = FastMCP('A')\nsecond = FastMCP('B')\n"},
            "two.py",
            "{0}/two.py has several servers: first, second; name one, as in two.py:first",
        ),
        (
            {"one": HELLO.replace("from words", "from lost_words")},
            "one.py",
            "ModuleNotFoundError: No module named 'lost_words' (at {}/one.py:3)",
        ),
        ({"odd": "from fastmcp import FastMCP\n\nmcp = FastMCP('A'\n"}, "odd.py", "SyntaxError: '(' was never closed (at {}/odd.py:3)"),
        ({"bad": "x = 1\n\ny = x / 0\n"}, "bad.py", "ZeroDivisionError: division by zero (at {}/bad.py:3)"),
        ({"one": "x = 1\n"}, ".", "{} has no campus.toml and no file with a FastMCP server"),
        ({"a": "FastMCP('A')", "b": "FastMCP('B')"}, ".", "{} has several files with a server: a.py, b.py; name one, as in"),
        ({"one": "x = 1\n"}, "one.txt", "there is no {}/one.txt"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence_with_its_line(
    files: dict[str, str], place: str, said: str, tmp_path: Path, run: Command
) -> None:
    written(tmp_path, **files)
    answer = run("tools", str(tmp_path / place))
    assert answer.code == 2
    assert said.format(tmp_path) in answer.err
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("campus: ")
    assert not (tmp_path / "data").exists()
