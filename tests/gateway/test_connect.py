"""How the servers are added to each MCP client: every text is in its client's form, names every server, and holds no key."""

import json
import shlex
import tomllib
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, get_args
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml
from gateway.test_gateway import library

from buildings.gateway import building as gateway
from buildings.gateway.clients import ClientId, McpClient, Setup, clients_of, texts
from campus.directory import BuildingEntry, Directory
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
URLS = {name: f"https://campus.example/{name}/mcp" for name in ("gateway", "library")}
BROWSER = {"Accept": "text/html"}


def entry(name: str, key_scope: str | None) -> BuildingEntry:
    rest: dict[str, Any] = {"description": "", "openapi": "", "unlocked_by": (), "free_tier": "", "tools": ()}
    return BuildingEntry(name=name, title=f'The "{name}": #1', about="", mcp=URLS[name], key_scope=key_scope, **rest)


def directory(*, paid: bool = True, sign_in: Mapping[str, str] | None = None) -> Directory:
    found = Directory("campus", "https://campus.example", (), sign_in=sign_in)
    found.add(entry("gateway", None))
    found.add(entry("library", "library" if paid else None))
    return found


CLIENTS = texts().clients
CLIENTS_HERE = {one.id: one for one in clients_of(directory())}


def headers_in_mcp_servers(root: str, address: str) -> Callable[[Setup], dict[str, str | None]]:
    def read(setup: Setup) -> dict[str, str | None]:
        servers = json.loads(setup.text)[root]
        assert {name: one[address] for name, one in servers.items()} == URLS
        return {name: one.get("headers", {}).get("Authorization") for name, one in servers.items()}

    return read


def headers_in_commands(program: str) -> Callable[[Setup], dict[str, str | None]]:
    def read(setup: Setup) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for line in setup.text.splitlines():
            words = shlex.split(line)
            assert words[:3] == [program, "mcp", "add"]
            name = next(name for name, url in URLS.items() if url in words)
            assert name in words
            keyed = [word for word in words if word.startswith("Authorization: ") or word == "CAMPUS_KEY"]
            found[name] = keyed[0].removeprefix("Authorization: ") if keyed else None
        return found

    return read


def headers_for_gemini(setup: Setup) -> dict[str, str | None]:
    """Commands without a key. With one a file, because Gemini's command writes the values of variables into its file."""
    return headers_in_commands("gemini")(setup) if setup.key is None else headers_in_mcp_servers("mcpServers", "httpUrl")(setup)


def headers_in_bridge(setup: Setup) -> dict[str, str | None]:
    servers = json.loads(setup.text)["mcpServers"]
    assert {name: one["args"][2] for name, one in servers.items()} == URLS
    return {name: one.get("env", {}).get("CAMPUS_AUTHORIZATION") for name, one in servers.items()}


def headers_in_yaml(setup: Setup) -> dict[str, str | None]:
    servers = yaml.safe_load(setup.text)["extensions"]
    assert {name: one["uri"] for name, one in servers.items()} == URLS
    assert {one["description"] for one in servers.values()} == {'The "gateway": #1', 'The "library": #1'}
    return {name: one.get("headers", {}).get("Authorization") for name, one in servers.items()}


def headers_in_program(setup: Setup) -> dict[str, str | None]:
    """Runs nothing: the program compiles, and the line of each server passes `key` or does not."""
    compile(setup.text, "snippet", "exec")
    assert ("os.environ['CAMPUS_KEY']" in setup.text) == (setup.key is not None)
    at = {name: setup.text.index(url) for name, url in URLS.items()}
    assert at["gateway"] < at["library"]
    return {"gateway": None, "library": "key" if "key" in setup.text[at["library"] :].partition("\n}")[0].split(" = ")[0] else None}


READERS: dict[ClientId, tuple[Callable[[Setup], dict[str, str | None]], str]] = {
    "claude-code": (headers_in_commands("claude"), "Bearer ${CAMPUS_KEY}"),
    "openai-responses": (headers_in_program, "key"),
    "cursor": (headers_in_mcp_servers("mcpServers", "url"), "Bearer ${env:CAMPUS_KEY}"),
    "vscode": (headers_in_mcp_servers("servers", "url"), "Bearer ${input:campus-key}"),
    "codex": (headers_in_commands("codex"), "CAMPUS_KEY"),
    "gemini-cli": (headers_for_gemini, "Bearer ${CAMPUS_KEY}"),
    "windsurf": (headers_in_mcp_servers("mcpServers", "serverUrl"), "Bearer ${env:CAMPUS_KEY}"),
    "zed": (headers_in_mcp_servers("context_servers", "url"), "Bearer KEY"),
    "goose": (headers_in_yaml, "Bearer ${CAMPUS_KEY}"),
    "langchain": (headers_in_program, "key"),
    "pydantic-ai": (headers_in_program, "key"),
    "openai-agents": (headers_in_program, "key"),
}


def test_every_client_is_explained() -> None:
    assert tuple(CLIENTS) == get_args(ClientId)
    assert set(CLIENTS) - set(READERS) == {"claude-desktop", "claude-ai", "chatgpt"}
    for one in CLIENTS_HERE.values():
        assert urlsplit(one.documentation).scheme == "https"


def test_a_text_is_in_its_clients_form_and_sends_the_key_only_where_one_is_sold() -> None:
    for client, (read, expected) in READERS.items():
        found = CLIENTS_HERE[client]
        assert read(found.without_key) == {"gateway": None, "library": None}, client
        assert read(found.with_key) == {"gateway": None, "library": expected}, client
        assert (found.without_key.key, found.with_key.key is None) == (None, False), client


def test_the_file_that_is_usually_committed_asks_for_the_key() -> None:
    whole = json.loads(CLIENTS_HERE["vscode"].with_key.text)
    assert [(one["id"], one["password"]) for one in whole["inputs"]] == [("campus-key", True)]
    assert "inputs" not in json.loads(CLIENTS_HERE["vscode"].without_key.text)


def test_a_link_adds_what_the_file_says() -> None:
    for way in ("without_key", "with_key"):
        cursor: Setup = getattr(CLIENTS_HERE["cursor"], way)
        for link in cursor.links:
            asked = parse_qs(urlsplit(link.href).query)
            assert asked["name"] == [link.server]
            assert json.loads(b64decode(asked["config"][0])) == json.loads(cursor.text)["mcpServers"][link.server]
        vscode: Setup = getattr(CLIENTS_HERE["vscode"], way)
        for link in vscode.links:
            asked_for = json.loads(unquote(link.href.removeprefix("vscode:mcp/install?")))
            whole = json.loads(vscode.text)
            assert asked_for.pop("name") == link.server
            assert asked_for.pop("inputs", None) == (whole["inputs"] if "headers" in asked_for else None)
            assert asked_for == whole["servers"][link.server]
    for link in CLIENTS_HERE["goose"].without_key.links:
        assert parse_qs(urlsplit(link.href).query)["url"] == [URLS[link.server]]
    for link in CLIENTS_HERE["claude-ai"].with_key.links:
        assert parse_qs(urlsplit(link.href).query)["connectorUrl"] == [URLS[link.server]]


def test_chat_apps_are_sent_where_a_key_is_entered_if_there_is_such_a_place() -> None:
    address = "https://campus.example/connect/library/mcp"
    signing_in = {one.id: one for one in clients_of(directory(sign_in={"library": address}))}
    for client in ("claude-ai", "claude-desktop", "chatgpt"):
        ways: McpClient = signing_in[client]
        assert address in ways.with_key.text
        assert "Bearer KEY" not in ways.with_key.text
        assert address not in ways.without_key.text
        assert address not in CLIENTS_HERE[client].with_key.text
    assert headers_in_bridge(CLIENTS_HERE["claude-desktop"].with_key) == {"gateway": None, "library": "Bearer KEY"}
    assert "free tools" in CLIENTS_HERE["chatgpt"].with_key.text


def test_where_everything_is_free_no_text_asks_for_a_key() -> None:
    for one in clients_of(directory(paid=False)):
        assert one.with_key == one.without_key


def test_codex_writes_the_table_that_its_command_stands_for() -> None:
    text = CLIENTS_HERE["codex"].with_key.text.splitlines()[1]
    words = shlex.split(text)
    assert words[words.index("--url") + 1] == URLS["library"]
    table = f'[mcp_servers.library]\nurl = "{URLS["library"]}"\nbearer_token_env_var = "{words[-1]}"'
    assert tomllib.loads(table)["mcp_servers"]["library"]["bearer_token_env_var"] == "CAMPUS_KEY"


async def test_a_client_is_named_in_any_spelling_and_all_are_those_of_the_page() -> None:
    async with open_campus(frame="mcp", gateway=gateway, library=library()) as campus:
        for spelling in ("claude-code", "Claude Code", "claude_code"):
            named = await campus.call("how_to_connect", client=spelling)
            assert [one["id"] for one in named.data["clients"]] == ["claude-code"], spelling
        every = await campus.call("how_to_connect")
        page = await campus.http.get("/connect")
        assert every.data == page.json()
        again = await campus.http.get("/connect", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.headers["cache-control"]) == (304, "public, max-age=300")
        assert [one["id"] for one in every.data["clients"]] == list(CLIENTS)
        for wrong in ("notepad", "", "x" * 5000, 7):
            refused = await campus.call("how_to_connect", client=wrong)
            assert (refused.status, refused.code) == (422, "invalid_request"), wrong
            assert "claude-code" in str(refused.data)


async def test_connect_shows_every_text_and_link_of_the_tool_and_the_start_page_leads_there() -> None:
    async with open_campus(gateway=gateway, library=library()) as campus:
        clients = (await campus.call("how_to_connect")).data["clients"]
        pages = {path: (await campus.http.get(path, headers=BROWSER)).text for path in ("/", "/connect")}
        markdown = (await campus.http.get("/connect", headers={"Accept": "text/markdown"})).text
    ways = [way for one in clients for way in (one["without_key"], one["with_key"])]
    for way in ways:
        assert way["text"] in markdown
    assert pages["/connect"].count('<div class="tab">') == len(CLIENTS)
    for href in (link["href"] for way in ways for link in way["links"]):
        assert f'href="{href.replace("&", "&amp;")}"' in pages["/connect"]
    assert 'href="/connect"' in pages["/"]
    assert "oauth" not in json.dumps(clients).lower() + pages["/"].lower()
