"""A building that sells an API: the operations of its OpenAPI document, at an address or in a file, are the tools."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
from fastmcp import FastMCP
from fastmcp.server.providers.openapi import MCPType, OpenAPIProvider
from fastmcp.tools import Tool
from fastmcp.utilities.openapi import HTTPRoute
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from campus.addresses import is_web_address
from campus.config import sentence_of
from campus.errors import ConfigError, LoadError, TargetRefused
from campus.features.foreign_servers.http_clients import ApiClient, guarded_network
from campus.features.foreign_servers.watched import WatchedServer, reason_of
from campus.observability import origin_of
from twins import Problem, operation_of, resolve_reference, route

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
"""Those of HTTP routes: for the others a document describes nothing that a caller would want."""
SENT_BY_CLIENTS = frozenset(("accept", "authorization", "content-type"))
"""Headers that are no parameters, wherever a document has them among its parameters: OpenAPI says so."""
BETWEEN_READS = 300.0
"""Seconds; a document at an address is somebody else's page."""


class ApiTable(BaseModel):
    """`server = { openapi = "…" }` in campus.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    openapi: str = Field(min_length=1)
    """The OpenAPI document, 3.0 or 3.1, in JSON or YAML: its address, or a file relative to campus.toml."""
    base_url: str | None = None
    """Where the API is, instead of the first of the document's `servers`."""
    headers: dict[str, str] = {}
    """Sent with each call of the API; they are no arguments of the tools."""
    timeout: int | None = Field(default=None, ge=1)
    """How long an answer may take, in milliseconds."""


def open_api(name: str, target: Mapping[str, Any], *, folder: Path, answer_limit: int, is_local: bool) -> "ApiServer":
    """The server of an API."""
    try:
        table = ApiTable.model_validate(target)
    except ValidationError as error:
        raise ConfigError(sentence_of(error.errors(include_url=False)[0], ApiTable, ("buildings", name, "server"))) from None
    if table.base_url and not is_web_address(table.base_url):
        raise ConfigError(f"buildings.{name}.server.base_url is not the address of an API; write https://…")
    return ApiServer(name, table, folder=folder, answer_limit=answer_limit, is_local=is_local)


class ApiServer(WatchedServer):
    """One API, as its document said when it was read. It counts as reached while the document can be read."""

    def __init__(self, name: str, table: ApiTable, *, folder: Path, answer_limit: int, is_local: bool) -> None:
        """`answer_limit` are the bytes of an answer and of the document; on a local campus the API may be on the same machine."""
        self.table = table
        self.file = folder / table.openapi
        named = {urlsplit(url).hostname or "" for url in (table.openapi, table.base_url or "")}
        self.hosts = frozenset(named) | (LOOPBACK if is_local else frozenset())
        self.limit = answer_limit
        self.is_at_an_address = is_web_address(table.openapi)
        address = origin_of(table.openapi) if self.is_at_an_address else table.openapi
        super().__init__(name, address, answer_limit=answer_limit, milliseconds=table.timeout)
        self.between = BETWEEN_READS if self.is_at_an_address else self.between
        self._known: bytes | None = None
        self._server: FastMCP[Any] = FastMCP(name)

    def server(self) -> FastMCP[Any]:
        return self._server

    async def refresh(self) -> None:
        text = await self._read()
        try:
            document = read_document(text)
            base_url = self._base_url(document)
            await self._check_host(base_url)
            server = await anyio.to_thread.run_sync(self._made, document, base_url)  # seconds for the largest
        except LoadError as error:
            raise LoadError(f"{self.subject}: {error}") from None
        except Exception as error:  # the border to another's document, which may be anything
            raise LoadError(f"{self.subject}: its OpenAPI document cannot be served: {reason_of(error)}") from error
        self._known, self._server = text, server

    async def has_changed(self) -> bool:
        return await self._read() != self._known

    def client(self, base_url: str = "", headers: Mapping[str, str] | None = None) -> ApiClient:
        """A client of the API, or of the host of its document."""
        network = guarded_network(self.hosts)
        return ApiClient(base_url, network=network, limit=self.limit, seconds=self.seconds, headers=dict(headers or {}))

    async def _read(self) -> bytes:
        too_long = LoadError(f"{self.subject} is longer than {self.limit:,} bytes; raise answer_limit of the building")
        if not self.is_at_an_address:
            try:
                text = await anyio.Path(self.file).read_bytes()
            except OSError as error:
                raise LoadError(f"{self.subject} cannot be read: {error.strerror}") from None
            if len(text) > self.limit:
                raise too_long
            return text
        client = self.client()
        try:
            response = await client.get(self.table.openapi)
        except Problem:
            raise too_long from None
        finally:
            await client.disconnect()
        return response.raise_for_status().content

    def _base_url(self, document: Mapping[str, Any]) -> str:
        if self.table.base_url:
            return self.table.base_url
        server: Mapping[str, Any] = next(iter(document.get("servers") or ()), {"url": "/"})
        url = str(server["url"])
        for name, variable in (server.get("variables") or {}).items():
            url = url.replace(f"{{{name}}}", str(variable["default"]))
        url = urljoin(self.table.openapi, url) if self.is_at_an_address else url
        if not is_web_address(url):
            raise LoadError(f"the document names no address of the API, but {url[:80]!r}; write base_url beside openapi")
        return url

    async def _check_host(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        try:
            await guarded_network(self.hosts).public_addresses(parts.hostname or "", parts.port or 443)
        except TargetRefused:
            where = f"the API is at {origin_of(base_url)}, which is no public address"
            raise LoadError(f"{where}; if that is meant, write it beside openapi: base_url = …") from None
        except OSError:  # it may be reached later
            return

    def _made(self, document: dict[str, Any], base_url: str) -> FastMCP[Any]:
        headers = self.table.headers
        client = self.client(base_url, headers)
        prepare(document, without=SENT_BY_CLIENTS | {name.lower() for name in headers})
        routes = Routes(self.name)
        provider = OpenAPIProvider(
            document,
            client=client,
            route_map_fn=lambda operation, _: None if operation.method in METHODS else MCPType.EXCLUDE,
            mcp_component_fn=routes.finish,
        )
        info = document.get("info") or {}

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await client.disconnect()

        title, about, version = (str(info[name]) if info.get(name) else None for name in ("title", "description", "version"))
        return FastMCP(title or self.name, about, version=version, lifespan=lifespan, providers=[provider])


class Routes:
    """The routes of an API's operations: its own methods and paths, below the building's."""

    def __init__(self, building: str) -> None:
        self._prefix = f"/v1/{building}"
        self._building = building
        self._placeholders: dict[str, str] = {}

    def finish(self, operation: HTTPRoute, tool: Any) -> None:
        """Have the tool say what the document says of its operation."""
        method = operation.method
        tool.title = operation.summary
        tool.annotations = ToolAnnotations(
            read_only_hint=method == "GET",
            destructive_hint=method == "DELETE" if method in ("GET", "DELETE") else None,
            idempotent_hint=method in ("GET", "PUT", "DELETE"),
            open_world_hint=True,
        )
        properties = {name: with_examples(schema) for name, schema in tool.parameters.get("properties", {}).items()}
        tool.parameters = {**tool.parameters, "properties": properties, "additionalProperties": False}  # FastMCP sends no others
        statuses = [int(code) for code in operation.responses if code.isdecimal() and 200 <= int(code) <= 299]
        status = min(statuses, default=200)
        status = 200 if status in (204, 205) else status  # the answer has a body, which is null
        named = {m["openapi_name"]: name for name, m in operation.parameter_map.items() if m["location"] == "path"}
        path = pattern = operation.path
        for name, argument in named.items():
            path, pattern = path.replace(f"{{{name}}}", f"{{{argument}}}"), pattern.replace(f"{{{name}}}", "{}")
        tool.meta = route(f"{method} {self._prefix}{path}", status=status)
        if path == "/" or not self._fits(tool, path, pattern):
            tool.meta = route(f"{method} {self._prefix}/{tool.name}", status=status)

    def _fits(self, tool: Tool, path: str, pattern: str) -> bool:
        """Whether it can be served at the API's own path: not if the same one has other placeholders before."""
        try:
            operation_of(tool, server=self._building, default_prefix=self._prefix)
        except ValueError:
            return False
        return self._placeholders.setdefault(pattern, path) == path


def with_examples(schema: Any) -> Any:
    """A schema with its example where JSON Schema has it."""
    if not isinstance(schema, dict) or "example" not in schema or "examples" in schema:
        return schema
    return {name: each for name, each in schema.items() if name != "example"} | {"examples": [schema["example"]]}


def read_document(text: bytes) -> dict[str, Any]:
    """An OpenAPI document as data; LoadError for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = _read_yaml(text)
    if not isinstance(document, dict) or not str(document.get("openapi")).startswith("3."):
        is_old = isinstance(document, dict) and "swagger" in document
        raise LoadError("it is Swagger 2.0; convert it to OpenAPI 3" if is_old else "it is no OpenAPI document of version 3")
    return document


def _read_yaml(text: bytes) -> Any:
    """YAML as JSON data; its aliases, by which a few lines become gigabytes, are refused."""
    import yaml  # type: ignore[import-untyped]  # it comes with FastMCP, without types, and is only needed here

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.CSafeLoader)):
            raise LoadError("its YAML has aliases (*name), which are not followed; write it as JSON")
        return json.loads(json.dumps(yaml.load(text, yaml.CSafeLoader), default=str))  # the safe one, in C
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None


def prepare(document: dict[str, Any], *, without: frozenset[str]) -> None:
    """Take the headers that are no arguments out of the document, and write examples of parameters where FastMCP keeps them."""
    for holder in _holders(document):
        kept = []
        for parameter in holder["parameters"]:
            found = resolve_reference(parameter["$ref"], document) if "$ref" in parameter else parameter
            if found.get("in") != "header" or str(found.get("name")).lower() not in without:
                kept.append(parameter)
            examples = [each["value"] for each in (found.get("examples") or {}).values() if "value" in each]
            examples = [found["example"]] if "example" in found else examples
            if examples and isinstance(schema := found.get("schema"), dict) and "$ref" not in schema:
                schema.setdefault("example", examples[0])
        holder["parameters"] = kept


def _holders(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each part of the document that has parameters: paths and their operations."""
    for path in (document.get("paths") or {}).values():
        for holder in (path, *path.values()):
            if isinstance(holder, dict) and isinstance(holder.get("parameters"), list):
                yield holder
