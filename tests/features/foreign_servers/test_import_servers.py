"""campus import writes tables into campus.toml for the servers of an MCP client's configuration."""

import json
import tomllib
from pathlib import Path

import pytest
from commands import Command, command_of

CLIENTS = {
    "mcpServers": {
        "File System": {"command": "npx", "args": ["-y", 'a "b"\\c\x7f'], "env": {"ROOT": "/srv", "A.B": "ä"}, "alwaysAllow": ["x"]},
        "weather": {"type": "sse", "url": "https://weather.example/sse", "headers": {"Authorization": "Bearer s3cret"}},
        "search": {"serverUrl": "https://search.example/mcp"},
        "gateway": {"command": "x"},
        "named": {"command": "x", "env": {"KEY": "${env:SEA_KEY}", "TOKEN": "${SEA_TOKEN}"}},
        "asks": {"command": "x", "env": {"TOKEN": "${input:token}"}},
        "off": {"command": "x", "disabled": True},
        "odd": {"args": ["x"]},
    }
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return command_of(capsys)


def test_import_writes_a_table_for_each_server_of_a_clients_configuration(tmp_path: Path, run: Command) -> None:
    (tmp_path / "claude_desktop_config.json").write_text(json.dumps(CLIENTS))
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": {"manuals": {"type": "http", "url": "https://docs.example/mcp"}}}))
    answer = run("import", "claude_desktop_config.json")
    assert answer.code == 0, answer.err
    assert run("import", "mcp.json").out == "[buildings.manuals]\n"
    buildings = tomllib.loads((tmp_path / "campus.toml").read_text())["buildings"]
    assert {name: table["server"] for name, table in buildings.items() if "server" in table} == {
        "file_system": {"command": "npx", "args": ["-y", 'a "b"\\c\x7f'], "env": {"ROOT": "/srv", "A.B": "ä"}},
        "weather": {"url": "https://weather.example/sse", "headers": {"Authorization": "Bearer s3cret"}, "transport": "sse"},
        "search": {"url": "https://search.example/mcp"},
        "named": {"command": "x", "env": {"KEY": "${SEA_KEY}", "TOKEN": "${SEA_TOKEN}"}},
        "manuals": {"url": "https://docs.example/mcp"},
    }
    assert answer.out.splitlines() == [
        "[buildings.file_system], without alwaysAllow",
        "[buildings.weather]",
        "[buildings.search]",
        "'gateway' is left out: [buildings.gateway] is there already",
        "[buildings.named]",
        "'asks' is left out: campus does not fill in ${input:token}; write the value, or ${NAME} of a variable",
        "'off' is left out: it is disabled",
        "'odd' is left out: it has neither a command nor an address",
        "campus.toml has the values of env and headers now; let nobody else read it",
    ]
    assert (tmp_path / "campus.toml").stat().st_mode & 0o777 == 0o600
    refused = run("import", "campus.toml")
    assert (refused.code, "campus.toml is not JSON" in refused.err) == (2, True)
