"""The configuration that adds this campus's servers to common MCP clients."""

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from campus import BuildingEntry


class ClientSetup(BaseModel):
    """The configuration for one MCP client."""

    model_config = ConfigDict(frozen=True)

    client: str = Field(description="Name of the client.")
    where: str = Field(description="Where the text goes: shell, or a file path.")
    text: str = Field(description="The command to run, or the text to write to the file.")


def client_setups(entries: Sequence[BuildingEntry]) -> tuple[ClientSetup, ...]:
    """The configuration of every open server; the key is only in those of servers with paid tools."""
    return (
        ClientSetup(client="Claude Code", where="shell", text="\n".join(_claude(entry) for entry in entries)),
        ClientSetup(client="Cursor", where="~/.cursor/mcp.json", text=_json("mcpServers", entries, "url")),
        ClientSetup(client="VS Code", where=".vscode/mcp.json", text=_json("servers", entries, "url", type="http")),
        ClientSetup(client="Gemini CLI", where="~/.gemini/settings.json", text=_json("mcpServers", entries, "httpUrl")),
        ClientSetup(client="Codex", where="~/.codex/config.toml", text="\n".join(_codex(entry) for entry in entries)),
    )


def _claude(entry: BuildingEntry) -> str:
    header = ' --header "Authorization: Bearer KEY"' if entry.key_scope else ""
    return f"claude mcp add --transport http {entry.name} {entry.mcp}{header}"


def _codex(entry: BuildingEntry) -> str:
    key = f'\nbearer_token_env_var = "CAMPUS_{entry.name.upper()}_KEY"' if entry.key_scope else ""
    return f'[mcp_servers.{entry.name}]\nurl = "{entry.mcp}"{key}'


def _json(root: str, entries: Sequence[BuildingEntry], address: str, **more: str) -> str:
    servers = {
        entry.name: {**more, address: entry.mcp, **({"headers": {"Authorization": "Bearer KEY"}} if entry.key_scope else {})}
        for entry in entries
    }
    return json.dumps({root: servers}, indent=2)
