"""The texts that add servers to MCP clients, one function for each client: commands, files, links and programs. Pure.

A key is kept where the client keeps secrets or in the environment variable CAMPUS_KEY, never in a file that is usually committed.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field

VARIABLE = "CAMPUS_KEY"
"""The environment variable that holds the key, as in the samples on the tools' pages."""
IN_ENVIRONMENT = f"in the environment variable {VARIABLE}; the text names the variable, not the key"
AT_THE_CLIENT = "with the client, which you give it once on a page of this service"
CONNECTORS = "https://claude.ai/customize/connectors"
NO_SECRETS = "This client sends a key only to servers at which you sign in, and this service has none: it calls the free tools."


class InstallLink(BaseModel):
    """A link that opens the client and adds one server."""

    model_config = ConfigDict(frozen=True)

    server: str = Field(description="Name of the server.")
    href: str = Field(description="The link. The client asks before it adds the server.")


class Setup(BaseModel):
    """One way to add the servers to a client."""

    model_config = ConfigDict(frozen=True)

    where: str = Field(description="Where the text goes: shell, the path of a file, a Python program, or the client's settings.")
    text: str = Field(description="The command to run, the text to write, or the steps to take.")
    links: tuple[InstallLink, ...] = Field(default=(), description="Links that add one server each; empty if the client has none.")
    key: str | None = Field(default=None, description="Where the key is kept; null without a key.")


@dataclass(frozen=True)
class Server:
    """A server to add. `sign_in` is its address for clients that send no key of their own, if there is one."""

    name: str
    title: str
    url: str
    takes_key: bool
    sign_in: str | None = None


Servers = Sequence[Server]


def claude_code(servers: Servers, *, with_key: bool) -> Setup:
    """Commands. The variable is quoted: Claude Code reads it whenever it connects, and stores its name only."""

    def command(server: Server) -> str:
        header = f" --header 'Authorization: Bearer ${{{VARIABLE}}}'" if with_key and server.takes_key else ""
        return f"claude mcp add --transport http {server.name} {server.url}{header}"

    return Setup(where="shell", text=_lines(map(command, servers)), key=IN_ENVIRONMENT if with_key else None)


def claude_desktop(servers: Servers, *, with_key: bool) -> Setup:
    """Connectors, as in claude.ai. A key cannot be entered there: with a key it is a local bridge, which sends it and needs Node.js."""
    if not with_key or _any_sign_in(servers):
        return claude_ai(servers, with_key=with_key)
    where = "claude_desktop_config.json (Settings > Developer > Edit Config), a file of your own; replace KEY"
    return Setup(where=where, text=_json({"mcpServers": {one.name: _bridge(one) for one in servers}}), key="in this file of your own")


def _bridge(server: Server) -> dict[str, Any]:
    command = {"command": "npx", "args": ["-y", "mcp-remote", server.url]}
    if not server.takes_key:
        return command
    args = [*command["args"], "--header", "Authorization:${CAMPUS_AUTHORIZATION}"]
    return {**command, "args": args, "env": {"CAMPUS_AUTHORIZATION": "Bearer KEY"}}


def claude_ai(servers: Servers, *, with_key: bool) -> Setup:
    """Links that open the dialog for a custom connector."""
    addresses = _addresses(servers, with_key=with_key)
    links = [InstallLink(server=name, href=f"{CONNECTORS}?{urlencode(_connector(name, url))}") for name, url in addresses.items()]
    steps = ["Open the link of each server, or: Customize > Connectors > + > Add custom connector.", *_listed(addresses)]
    key = None
    if with_key and _any_sign_in(servers):
        steps = [*steps, "Then choose Connect, and enter your key on the page of this service that opens."]
        key = AT_THE_CLIENT
    elif with_key:
        steps.append("If the dialog shows Request headers, add Authorization with the value Bearer KEY. Otherwise the free tools answer.")
        key = "with the client, as a request header of the connector"
    return Setup(where="settings", text=_lines(steps), links=tuple(links), key=key)


def _connector(name: str, url: str) -> dict[str, str]:
    return {"modal": "add-custom-connector", "connectorName": name, "connectorUrl": url}


def chatgpt(servers: Servers, *, with_key: bool) -> Setup:
    """The steps in ChatGPT's developer mode, which has no field for a key."""
    if with_key and not _any_sign_in(servers):
        return Setup(where="settings", text=NO_SECRETS)
    steps = [
        "Settings > Apps > Advanced settings: turn on Developer mode.",
        "Then Create app, and enter the address of a server:",
        *_listed(_addresses(servers, with_key=with_key)),
        "Authentication: choose what ChatGPT finds, and enter your key on the page that opens." if with_key else "Authentication: none.",
    ]
    return Setup(where="settings", text=_lines(steps), key=AT_THE_CLIENT if with_key else None)


def cursor(servers: Servers, *, with_key: bool) -> Setup:
    """Links, or the file of the user's own."""
    entries = {one.name: {"url": one.url} | _header(one, f"${{env:{VARIABLE}}}", with_key=with_key) for one in servers}
    address = "cursor://anysphere.cursor-deeplink/mcp/install"
    links = [
        InstallLink(server=name, href=f"{address}?{urlencode({'name': name, 'config': _base64(entry)})}") for name, entry in entries.items()
    ]
    key = IN_ENVIRONMENT if with_key else None
    return Setup(where="~/.cursor/mcp.json", text=_json({"mcpServers": entries}), links=tuple(links), key=key)


def vscode(servers: Servers, *, with_key: bool) -> Setup:
    """Links, or a file. VS Code asks for the key and stores it encrypted; the file may be committed."""
    asked = [{"type": "promptString", "id": "campus-key", "description": "Key of this service", "password": True}]
    entries = {one.name: {"type": "http", "url": one.url} | _header(one, "${input:campus-key}", with_key=with_key) for one in servers}
    links = [
        InstallLink(server=name, href=f"vscode:mcp/install?{quote(json.dumps({'name': name, **_asking(entry, asked), **entry}), safe='')}")
        for name, entry in entries.items()
    ]
    inputs = {"inputs": asked} if any("headers" in entry for entry in entries.values()) else {}
    return Setup(
        where=".vscode/mcp.json, or the command MCP: Open User Configuration",
        text=_json({**inputs, "servers": entries}),
        links=tuple(links),
        key="in the client's secret storage: it asks for the key when it first connects" if with_key else None,
    )


def _asking(entry: Mapping[str, Any], asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"inputs": asked} if "headers" in entry else {}


def codex(servers: Servers, *, with_key: bool) -> Setup:
    """Commands, which write ~/.codex/config.toml."""

    def command(server: Server) -> str:
        key = f" --bearer-token-env-var {VARIABLE}" if with_key and server.takes_key else ""
        return f"codex mcp add {server.name} --url {server.url}{key}"

    return Setup(where="shell", text=_lines(map(command, servers)), key=IN_ENVIRONMENT if with_key else None)


def gemini_cli(servers: Servers, *, with_key: bool) -> Setup:
    """Commands; with a key the file of the user's own, since `gemini mcp add` writes the values of the file's variables into it."""
    if not with_key:
        commands = [f"gemini mcp add --scope user --transport http {one.name} {one.url}" for one in servers]
        return Setup(where="shell", text=_lines(commands))
    entries = {one.name: {"httpUrl": one.url} | _header(one, f"${{{VARIABLE}}}", with_key=True) for one in servers}
    return Setup(where="~/.gemini/settings.json", text=_json({"mcpServers": entries}), key=IN_ENVIRONMENT)


def windsurf(servers: Servers, *, with_key: bool) -> Setup:
    """The file of the user's own."""
    entries = {one.name: {"serverUrl": one.url} | _header(one, f"${{env:{VARIABLE}}}", with_key=with_key) for one in servers}
    key = IN_ENVIRONMENT if with_key else None
    return Setup(where="~/.codeium/windsurf/mcp_config.json", text=_json({"mcpServers": entries}), key=key)


def zed(servers: Servers, *, with_key: bool) -> Setup:
    """Zed's settings, which are the user's own. It reads no variables there."""
    entries = {one.name: {"url": one.url} | _header(one, "KEY", with_key=with_key) for one in servers}
    where = "~/.config/zed/settings.json (zed: open settings file), not a project's .zed/settings.json"
    more = "; replace KEY" if with_key else ""
    return Setup(where=where + more, text=_json({"context_servers": entries}), key="in this file of your own" if with_key else None)


def goose(servers: Servers, *, with_key: bool) -> Setup:
    """The file of the user's own, in YAML; without a key links too. The key is in the system's keyring or in the environment."""
    lines = ["extensions:"]
    for one in servers:
        lines += [f"  {one.name}:", "    enabled: true", "    type: streamable_http", f"    name: {one.name}"]
        lines += [f"    description: {_text(one.title)}", f"    uri: {_text(one.url)}", "    timeout: 300"]
        if with_key and one.takes_key:
            lines += ["    env_keys:", f"      - {VARIABLE}", "    headers:", f'      Authorization: "Bearer ${{{VARIABLE}}}"']
    links = [
        InstallLink(
            server=one.name,
            href="goose://extension?" + urlencode({"type": "streamable_http", "url": one.url, "id": one.name, "name": one.name}),
        )
        for one in servers
        if not with_key
    ]
    key = f"in the system's keyring, under the name {VARIABLE}, or in the environment variable of that name" if with_key else None
    return Setup(where="~/.config/goose/config.yaml", text=_lines(lines), links=tuple(links), key=key)


def _any_sign_in(servers: Servers) -> bool:
    return any(one.sign_in for one in servers)


def _addresses(servers: Servers, *, with_key: bool) -> dict[str, str]:
    """The addresses to enter; with a key those at which a client signs in, where there are any."""
    if with_key and _any_sign_in(servers):
        return {one.name: one.sign_in for one in servers if one.sign_in}
    return {one.name: one.url for one in servers}


def _header(server: Server, key: str, *, with_key: bool) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}} if with_key and server.takes_key else {}


def _listed(addresses: Mapping[str, str]) -> list[str]:
    return [f"{name}: {url}" for name, url in addresses.items()]


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _text(text: str) -> str:
    """A string as JSON, which YAML and Python read too."""
    return json.dumps(text)


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


def _base64(value: object) -> str:
    return b64encode(json.dumps(value).encode()).decode()
