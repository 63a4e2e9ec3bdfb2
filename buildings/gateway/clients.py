"""The MCP clients that how_to_connect, /connect, how_to_pay and the start page explain, each without a key and with one.

`clients.toml` has what is known of each client. Its templates know `servers`, of which `server` is the one that a link adds;
`entries`, the dict of each server for files in JSON; `with_key`; and `signs_in`: whether a person enters the key at this service.
"""

import json
import re
import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from campus.directory import Directory

IN_ENVIRONMENT = "in the environment variable CAMPUS_KEY; the text names the variable, not the key"
ClientId = Literal[
    "claude-code",
    "claude-desktop",
    "claude-ai",
    "chatgpt",
    "openai-responses",
    "cursor",
    "vscode",
    "codex",
    "gemini-cli",
    "windsurf",
    "zed",
    "goose",
    "langchain",
    "pydantic-ai",
    "openai-agents",
]
Checked = Literal["run", "documentation"]


class Part(BaseModel):
    """Base of all parts of answers."""

    model_config = ConfigDict(frozen=True)


class InstallLink(Part):
    """A link that opens the client and adds one server."""

    server: str = Field(description="Name of the server.")
    href: str = Field(description="The link. The client asks before it adds the server.")


class Setup(Part):
    """One way to add the servers to a client."""

    where: str = Field(description="Where the text goes: shell, the path of a file, a Python program, or the client's settings.")
    text: str = Field(description="The command to run, the text to write, or the steps to take.")
    links: tuple[InstallLink, ...] = Field(default=(), description="Links that add one server each; empty if the client has none.")
    key: str | None = Field(default=None, description="Where the key is kept; null without a key.")


class McpClient(Part):
    """How to add the servers to one client."""

    id: ClientId = Field(description="Name of the client for how_to_connect.")
    name: str = Field(description="Name of the client.")
    without_key: Setup = Field(description="Without a key: the free tools answer.")
    with_key: Setup = Field(description="With a key: the paid tools answer too.")
    documentation: str = Field(description="The page of the client's documentation that describes this.")
    checked: Checked = Field(
        description="run: a test of this software runs these texts with the client; documentation: they were compared with that page."
    )


class ClientTable(BaseModel):
    """A client's table in clients.toml: its templates, and what an entry of a server has beside the address and the header."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    documentation: str
    checked: Checked = "documentation"
    where: str
    text: str
    link: str = ""
    key: str = IN_ENVIRONMENT
    address: str = "url"
    entry: dict[str, str] = {}
    authorization: str = ""


class Server(NamedTuple):
    """A server to add. `connector` is its address for clients that send no key of their own; None if they are not to add it."""

    name: str
    title: str
    url: str
    sends_key: bool
    connector: str | None


class Texts:
    def __init__(self, source: str) -> None:
        tables = tomllib.loads(source)
        self.clients = TypeAdapter(dict[ClientId, ClientTable]).validate_python(tables.pop("clients"))
        templates = {f"{name}.{field}": text for name, table in self.clients.items() for field, text in table if isinstance(text, str)}
        self._environment = Environment(  # noqa: S701  # texts for shells and files, not HTML; pages escape them
            loader=DictLoader(tables | templates), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
        )
        self._environment.filters.update(
            base64=lambda text: b64encode(text.encode()).decode(), json=json.dumps, quote=lambda text: quote(text, safe="")
        )

    def setup(self, name: ClientId, servers: Sequence[Server], *, signs_in: bool) -> Setup:
        table = self.clients[name]
        entries = {server.name: _entry(table, server) for server in servers}
        with_key = any(server.sends_key for server in servers)

        def rendered(field: str, **more: object) -> str:
            template = self._environment.get_template(f"{name}.{field}")
            return template.render(servers=servers, entries=entries, with_key=with_key, signs_in=signs_in, **more).strip()

        links = [InstallLink(server=server.name, href=href) for server in servers if (href := rendered("link", server=server))]
        key = rendered("key") or None if with_key else None
        return Setup(where=rendered("where"), text=rendered("text"), links=tuple(links), key=key)


def _entry(table: ClientTable, server: Server) -> Mapping[str, Any]:
    headers = {"headers": {"Authorization": table.authorization}} if server.sends_key else {}
    return {**table.entry, table.address: server.url, **headers}


@cache
def texts() -> Texts:
    return Texts(files(__package__).joinpath("clients.toml").read_text("utf-8"))


def clients_of(directory: Directory) -> tuple[McpClient, ...]:
    entries = directory.buildings()
    signs_in = any(entry.key_scope and entry.name in directory.sign_in for entry in entries)
    bare = [Server(entry.name, entry.title, entry.mcp, sends_key=False, connector=entry.mcp) for entry in entries]
    keyed = [
        server._replace(sends_key=entry.key_scope is not None, connector=directory.sign_in.get(entry.name) if signs_in else entry.mcp)
        for server, entry in zip(bare, entries, strict=True)
    ]
    return _clients(tuple(bare), tuple(keyed), signs_in=signs_in)


@lru_cache(maxsize=8)
def _clients(bare: Sequence[Server], keyed: Sequence[Server], *, signs_in: bool) -> tuple[McpClient, ...]:
    return tuple(
        McpClient(
            id=name,
            name=table.name,
            without_key=texts().setup(name, bare, signs_in=False),
            with_key=texts().setup(name, keyed, signs_in=signs_in),
            documentation=table.documentation,
            checked=table.checked,
        )
        for name, table in texts().clients.items()
    )


def read_client(value: object) -> object:
    if not isinstance(value, str):
        return value
    spelled = {_plain(spelling): name for name, table in texts().clients.items() for spelling in (name, table.name)}
    return spelled.get(_plain(value), value)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[:100].lower())
