"""The programs that give the servers' tools to an agent: OpenAI's Responses API, LangChain, pydantic-ai and OpenAI Agents. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from buildings.gateway.snippets import IN_ENVIRONMENT, VARIABLE, Server, Servers, Setup

KEY = "<key>"
"""Stands in a dict for the program's variable `key`, the headers with the caller's key."""
KEY_LINE = f'key = {{"Authorization": f"Bearer {{os.environ[\'{VARIABLE}\']}}"}}\n'


def responses_api(servers: Servers, *, with_key: bool) -> Setup:
    """A request whose model calls the tools. OpenAI's servers connect, so that the address must be public."""
    tools = [
        {"type": "mcp", "server_label": one.name, "server_url": one.url} | _headers(one, with_key=with_key) | READ_FREELY for one in servers
    ]
    program = f"""from openai import OpenAI

{KEY}tools = {_literal(tools)}
response = OpenAI().responses.create(model="gpt-5", tools=tools, input="What can your tools do?")
print(response.output_text)"""
    return _setup(program, with_key=with_key)


READ_FREELY = {"require_approval": {"never": {"read_only": True}}}
"""Tools that only read are called without asking."""


def langchain(servers: Servers, *, with_key: bool) -> Setup:
    """A program that loads the tools."""
    entries = {one.name: {"transport": "streamable_http", "url": one.url, **_headers(one, with_key=with_key)} for one in servers}
    program = f"""import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient

{KEY}client = MultiServerMCPClient({_literal(entries)})
tools = asyncio.run(client.get_tools())  # for create_agent(model, tools)"""
    return _setup(program, with_key=with_key)


def pydantic_ai(servers: Servers, *, with_key: bool) -> Setup:
    """A program with an agent."""
    lines = [f"    MCPToolset({_arguments({'client': one.url, **_headers(one, with_key=with_key)})})," for one in servers]
    program = f"""from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

{KEY}servers = [
{_joined(lines)}
]
agent = Agent("openai:gpt-5", toolsets=servers)"""
    return _setup(program, with_key=with_key)


def openai_agents(servers: Servers, *, with_key: bool) -> Setup:
    """A program with an agent."""
    lines = [
        f"    MCPServerStreamableHttp({_arguments({'name': one.name, 'params': {'url': one.url, **_headers(one, with_key=with_key)}})}),"
        for one in servers
    ]
    program = f"""from agents import Agent
from agents.mcp import MCPServerStreamableHttp

{KEY}servers = [
{_joined(lines)}
]
agent = Agent(name="Assistant", mcp_servers=servers)  # enter each server with `async with` before you run the agent"""
    return _setup(program, with_key=with_key)


def _setup(program: str, *, with_key: bool) -> Setup:
    """The program with the line that reads the key, and its import, or without both."""
    text = program.replace(KEY, KEY_LINE if with_key else "", 1)
    if with_key:
        start, separator, rest = text.partition("import asyncio\n")
        text = f"{separator}import os\n{rest}" if separator and not start else f"import os\n\n{text}"
    return Setup(where="Python", text=text, key=IN_ENVIRONMENT if with_key else None)


def _headers(server: Server, *, with_key: bool) -> dict[str, Any]:
    return {"headers": KEY} if with_key and server.takes_key else {}


def _arguments(arguments: Mapping[str, Any]) -> str:
    """Keyword arguments of a call, on one line."""
    return ", ".join(f"{name}={_literal(value, indent=None)}" for name, value in arguments.items())


def _literal(value: object, indent: int | None = 4) -> str:
    """A value of dicts, lists, strings and true as Python."""
    return json.dumps(value, indent=indent).replace(f'"{KEY}"', "key").replace(": true", ": True")


def _joined(lines: list[str]) -> str:
    return "\n".join(lines)
