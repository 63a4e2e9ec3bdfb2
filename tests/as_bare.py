"""Servers asked bare and over campus, by both generations of MCP and over HTTP; every difference has a reason in a table, or is a fault."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fastmcp import FastMCP
from fastmcp_servers import Made
from mcp.server.transport_security import TransportSecuritySettings
from mcp_oracle import INITIALIZE, LEGACY, MODERN, Request, ask, request_of, silence
from starlette.types import ASGIApp

from campus.testing import TestCampus, open_campus

VERSIONS = (MODERN, LEGACY)
EXPOSED = {"expose": ["prompts", "resources"]}
UNLIMITED = dict.fromkeys(("free", "keyed", "unpaid"), "off")
PATH = "/mcp"
LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
TOLD = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}


class Reason(NamedTuple):
    """Why campus answers otherwise. Each is a pattern: of the server's name, of the request, and of the way to a value in its answer."""

    server: str
    request: str
    way: str
    why: str


@dataclass
class Found:
    """The differences that no reason explains, the reasons that explained one, and how many answers were compared."""

    reasons: Sequence[Reason]
    unexplained: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    used: set[Reason] = field(default_factory=set)
    compared: int = 0

    def compare(self, server: str, request: str, bare: Mapping[str, Any], over_campus: Mapping[str, Any]) -> None:
        self.compared += 1
        for way in sorted(bare.keys() | over_campus.keys()):
            pair = bare.get(way), over_campus.get(way)
            if pair[0] != pair[1]:
                matching = {
                    each
                    for each in self.reasons
                    if fnmatchcase(server, each.server) and fnmatchcase(request, each.request) and fnmatchcase(way, each.way)
                }
                self.used |= matching
                if not matching:
                    self.unexplained[f"{server} | {request} | {way}"] = pair


class Asked(NamedTuple):
    """A request of MCP, and what it calls, by which HTTP can make the same call."""

    what: str
    method: str
    params: Mapping[str, Any]
    call: tuple[str, Mapping[str, Any]] | None = None


async def compare(servers: Mapping[str, Made], reasons: Sequence[Reason]) -> Found:
    found = Found(reasons)
    tables = {name: dict(EXPOSED) for name in servers}
    made = {name: each.make() for name, each in servers.items()}
    with silence():
        async with AsyncExitStack() as stack:
            campus = await stack.enter_async_context(
                open_campus(**made, tables={"buildings": tables, "limits": dict.fromkeys(("free", "keyed", "unpaid"), "off")})
            )
            for name, each in servers.items():
                async with bare_app(each.make()) as (server, app):
                    await compare_one(found, name, app, campus)
                    if each.change is not None:
                        each.change(server)
                        each.change(made[name])
                        await compare_one(found, f"{name} changed", app, campus)
    return found


@asynccontextmanager
async def bare_app(server: Any) -> AsyncIterator[tuple[FastMCP[Any], ASGIApp]]:
    if not isinstance(server, FastMCP):
        app = server.streamable_http_app(
            stateless_http=True, transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
        )
        async with app.router.lifespan_context(app):
            yield server, app
        return
    app = server.http_app(path=PATH, stateless_http=True)
    async with app.router.lifespan_context(app):
        yield server, app


async def compare_one(found: Found, name: str, bare: ASGIApp, campus: TestCampus) -> None:
    building = name.partition(" ")[0]
    calls: dict[str, tuple[tuple[str, Mapping[str, Any]], Mapping[str, Any]]] = {}
    for version in VERSIONS:
        known = {method: await answer(bare, PATH, Asked("", method, {}), version) for method in LISTS}
        for asked in requests_of(known, version):
            own = await answer(bare, PATH, asked, version)
            through = await answer(campus.app, f"/{building}/mcp", asked, version)
            found.compare(name, f"{version} {asked.what}", flat(own), flat(through, own))
            if asked.call is not None:
                calls[asked.what] = asked.call, through
    listed = {tool["name"] for tool in (await whole_list(campus, building))}
    for what, (call, over_mcp) in calls.items():
        if call[0] in listed:
            await compare_http(found, name, what, call, over_mcp, campus)
    paths = (await campus.http.get(f"/{building}/openapi.json")).json()["paths"]
    documented = {each["x-tool"]["name"] if "x-tool" in each else each["operationId"] for item in paths.values() for each in item.values()}
    found.compare(name, "openapi.json", {"tools": sorted(listed)}, {"tools": sorted(documented)})


async def whole_list(campus: TestCampus, building: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (await campus.http.get(f"/v1/{building}")).json()["tools"]
    return found


async def compare_http(
    found: Found, name: str, what: str, call: tuple[str, Mapping[str, Any]], over_mcp: Mapping[str, Any], campus: TestCampus
) -> None:
    building, (tool, arguments) = name.partition(" ")[0], call
    result = over_mcp.get("result", {})
    structured = result.get("structuredContent")
    try:
        reply = await campus.call(tool, building=building, **arguments)
    except TypeError as error:  # a path needs an argument
        found.compare(name, f"HTTP {what}", {"error": None}, {"error": str(error)})
        return
    if result.get("isError") or reply.status >= 400:
        problem = structured if isinstance(structured, dict) else {}
        over_mcp_too = {"status": problem.get("status"), "code": problem.get("code")}
        found.compare(name, f"HTTP {what}", over_mcp_too, {"status": reply.status, "code": reply.code})
        return
    found.compare(name, f"HTTP {what}", dict(leaves("data", said_over_mcp(result, reply.data))), dict(leaves("data", reply.data)))


def said_over_mcp(result: Mapping[str, Any], over_http: Any) -> Any:
    structured = result.get("structuredContent")
    is_wrapped = isinstance(over_http, dict) and list(over_http) == ["result"]
    if structured is not None:
        return structured["result"] if list(structured) == ["result"] and not is_wrapped else structured
    texts = [block.get("text") for block in result["content"]]
    if isinstance(over_http, dict) and "content" in over_http:
        return {"content": result["content"]}
    value: Any = texts[0] if len(texts) == 1 else texts or None
    with suppress(TypeError, ValueError):
        value = value if not is_wrapped or isinstance(over_http["result"], str) else json.loads(value)
    return {"result": value} if is_wrapped else value


async def answer(app: ASGIApp, path: str, asked: Asked, version: str) -> dict[str, Any]:
    request: Request = request_of(asked.what, version, asked.method, dict(asked.params), meta=dict(TOLD) if asked.call else {})
    got = await ask(app, path, request)
    messages = [json.loads(text) for text in got.texts if text]
    return {"status": got.status, "notifications": [each for each in messages if "method" in each], **(messages[-1] if messages else {})}


def flat(said: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    result = said.get("result", {})
    if not result.get("isError"):
        return dict(leaves("", said))
    structured = result.get("structuredContent")
    text = text_of(result)
    own_text = text_of((own or {}).get("result", {}))
    if own is not None and isinstance(structured, dict) and "code" in structured:
        if own_text is not None and own_text in f"{text} {structured.get('detail')}":
            text = own_text
        else:
            return {".status": said["status"], ".error": own_text, f".refused.{structured['code']}": text}
    return {".status": said["status"], ".error": text}


def text_of(result: Mapping[str, Any]) -> str | None:
    return " ".join(block.get("text", "") for block in result.get("content", ())) if result.get("isError") else None


def requests_of(known: Mapping[str, Mapping[str, Any]], version: str) -> Iterator[Asked]:
    yield Asked("hello", "initialize", INITIALIZE) if version == LEGACY else Asked("hello", "server/discover", {})
    for method in LISTS:
        yield Asked(method, method, {})
    listed = {member: known[method].get("result", {}).get(member, []) for method, member in LISTS.items()}
    for tool in listed["tools"]:
        for arguments in arguments_of(tool["inputSchema"]):
            said = json.dumps(arguments)[:60]
            yield Asked(
                f"tool {tool['name']} {said}", "tools/call", {"name": tool["name"], "arguments": arguments}, (tool["name"], arguments)
            )
    yield Asked("no such tool", "tools/call", {"name": "no_such_tool", "arguments": {}})
    for prompt in listed["prompts"]:
        names = [argument["name"] for argument in prompt.get("arguments", ())]
        for arguments in (dict.fromkeys(names, "Bonn"), {}):
            yield Asked(f"prompt {prompt['name']} {len(arguments)}", "prompts/get", {"name": prompt["name"], "arguments": arguments})
        for name in names:
            ref = {"type": "ref/prompt", "name": prompt["name"]}
            yield Asked(f"complete {prompt['name']}", "completion/complete", {"ref": ref, "argument": {"name": name, "value": "B"}})
    yield Asked("no such prompt", "prompts/get", {"name": "no_such_prompt"})
    for resource in listed["resources"]:
        yield Asked(f"read {resource['uri']}", "resources/read", {"uri": resource["uri"]})
    for template in listed["resourceTemplates"]:
        uri = template["uriTemplate"]
        yield Asked(f"read {uri}", "resources/read", {"uri": uri.partition("{")[0] + "Bonn" + uri.partition("}")[2]})
        ref = {"type": "ref/resource", "uri": uri}
        yield Asked(f"complete {uri}", "completion/complete", {"ref": ref, "argument": {"name": "station", "value": "B"}})
    yield Asked("no such resource", "resources/read", {"uri": "nothing://here"})


def arguments_of(schema: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    definitions = schema.get("$defs", {})
    whole = {name: sample(each, definitions) for name, each in properties.items()}
    needed = {name: whole[name] for name in schema.get("required", ())}
    tried = [whole, needed, {}, {**needed, "unheard": 1}]
    tried += [{**needed, name: {"wrong": []}} for name in list(properties)[:2]]
    return {json.dumps(each): each for each in tried}.values()


def sample(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    if not isinstance(schema, Mapping):
        return "any"
    if "$ref" in schema:
        return sample(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions, depth + 1)
    for known in ("const", "default"):
        if schema.get(known) is not None:
            return schema[known]
    for several in ("enum", "examples"):
        if schema.get(several):
            return schema[several][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return sample(schema[choice][0], definitions, depth)
    match schema.get("type"):
        case "object":
            inner = schema.get("properties", {})
            return {name: sample(inner[name], definitions, depth + 1) for name in (schema.get("required", ()) if depth else inner)}
        case "array":
            return [sample(schema.get("items", {}), definitions, depth + 1)] if depth < 3 else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
    by_format = {
        "date": "2026-01-30",
        "date-time": "2026-01-30T01:02:03Z",
        "duration": "PT1H",
        "uuid": "00000000-0000-0000-0000-000000000005",
        "uri": "https://example.com/",
    }
    return by_format.get(schema.get("format", ""), "1.5" if "pattern" in schema else "Bonn")


def leaves(way: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case dict(members) if members:
            for name, member in members.items():
                yield from leaves(f"{way}.{name}", member)
        case list(items) if items:
            for number, item in enumerate(items):
                yield from leaves(f"{way}.{number}", item)
        case None:
            return
        case _:
            yield way, value
