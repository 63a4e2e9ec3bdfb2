"""The MCP clients that how_to_connect, /connect, how_to_pay and the start page explain, each without a key and with one."""

import re
from typing import Literal, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field

from buildings.gateway import programs, snippets
from buildings.gateway.snippets import Server, Servers, Setup
from campus import BuildingEntry, Directory

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


class McpClient(BaseModel):
    """How to add the servers to one client."""

    model_config = ConfigDict(frozen=True)

    id: ClientId = Field(description="Name of the client for how_to_connect.")
    name: str = Field(description="Name of the client.")
    without_key: Setup = Field(description="Without a key: the free tools answer.")
    with_key: Setup = Field(description="With a key: the paid tools answer too.")
    documentation: str = Field(description="The page of the client's documentation that describes this.")
    checked: Checked = Field(
        description="run: a test of this software runs these texts with the client; documentation: they were compared with that page."
    )


class MakesSetup(Protocol):
    """A function of snippets or programs."""

    def __call__(self, servers: Servers, *, with_key: bool) -> Setup:
        """The setup for the servers."""
        ...


class Known(NamedTuple):
    """What is known of a client beside its texts."""

    name: str
    setup: MakesSetup
    documentation: str
    checked: Checked = "documentation"


CLIENTS: dict[ClientId, Known] = {
    "claude-code": Known("Claude Code", snippets.claude_code, "https://code.claude.com/docs/en/mcp", "run"),
    "claude-desktop": Known(
        "Claude Desktop", snippets.claude_desktop, "https://modelcontextprotocol.io/docs/develop/connect-remote-servers"
    ),
    "claude-ai": Known("claude.ai", snippets.claude_ai, "https://claude.com/docs/connectors/building/directory-vs-custom"),
    "chatgpt": Known("ChatGPT", snippets.chatgpt, "https://developers.openai.com/apps-sdk/deploy/connect-chatgpt"),
    "openai-responses": Known(
        "OpenAI Responses API", programs.responses_api, "https://developers.openai.com/api/docs/guides/tools-remote-mcp"
    ),
    "cursor": Known("Cursor", snippets.cursor, "https://cursor.com/docs/mcp/install-links"),
    "vscode": Known("VS Code", snippets.vscode, "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration"),
    "codex": Known("Codex CLI", snippets.codex, "https://developers.openai.com/codex/mcp", "run"),
    "gemini-cli": Known("Gemini CLI", snippets.gemini_cli, "https://geminicli.com/docs/tools/mcp-server", "run"),
    "windsurf": Known("Windsurf", snippets.windsurf, "https://docs.windsurf.com/windsurf/cascade/mcp"),
    "zed": Known("Zed", snippets.zed, "https://zed.dev/docs/ai/mcp"),
    "goose": Known("Goose", snippets.goose, "https://block.github.io/goose/docs/guides/config-files"),
    "langchain": Known("LangChain", programs.langchain, "https://reference.langchain.com/python/langchain_mcp_adapters", "run"),
    "pydantic-ai": Known("pydantic-ai", programs.pydantic_ai, "https://pydantic.dev/docs/ai/mcp/client/", "run"),
    "openai-agents": Known("OpenAI Agents", programs.openai_agents, "https://openai.github.io/openai-agents-python/mcp/", "run"),
}

_made: WeakKeyDictionary[Directory, tuple[tuple[BuildingEntry, ...], tuple[McpClient, ...]]] = WeakKeyDictionary()
"""The clients of each directory, made once for its entries."""


def clients_of(directory: Directory) -> tuple[McpClient, ...]:
    """How to add the directory's servers to every client; the same objects until the directory changes."""
    entries = directory.buildings()
    known, clients = _made.get(directory, ((), ()))
    if len(known) != len(entries) or any(one is not other for one, other in zip(known, entries, strict=True)):
        servers = [Server(one.name, one.title, one.mcp, one.key_scope is not None, directory.sign_in.get(one.name)) for one in entries]
        clients = tuple(_client(name, known, servers) for name, known in CLIENTS.items())
        _made[directory] = entries, clients
    return clients


def _client(name: ClientId, known: Known, servers: Servers) -> McpClient:
    return McpClient(
        id=name,
        name=known.name,
        without_key=known.setup(servers, with_key=False),
        with_key=known.setup(servers, with_key=any(one.takes_key for one in servers)),
        documentation=known.documentation,
        checked=known.checked,
    )


def read_client(value: object) -> object:
    """A client's id from however it is spelled, such as Claude Code or claude_code; anything else is left as it is."""
    if not isinstance(value, str):
        return value
    spelled = {_plain(spelling): name for name, known in CLIENTS.items() for spelling in (name, known.name)}
    return spelled.get(_plain(value), value)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[:100].lower())
