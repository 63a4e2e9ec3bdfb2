"""All that can be known before a database is touched: which buildings open, with which tools, routes, offers and documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from fastmcp.tools import Tool

from campus.building import Job
from campus.catalog.entries import building_entry, payment_entry, product_entries, seller_of
from campus.catalog.loader import RESERVED, Installed, LoadedBuilding, RemoteServer, load
from campus.catalog.openapi import OPENAPI_VERSION, components, extras, payment_terms, responses
from campus.catalog.pricing import open_pricing
from campus.catalog.server import OpenBuilding, mcp_path_of, open_server
from campus.config import Config
from campus.directory import Directory, ProductEntry
from campus.errors import ConfigError, LoadError, Unreachable
from campus.jobs import Task
from campus.payments.pricing import Pricing
from campus.problems import EXPLANATIONS
from twins import Operation, openapi
from twins.openapi import Grouped
from twins.operation import operation_of

HOW_TO_HIDE = 'mend the server, or hide the tool in campus.toml: tools = { "its name" = { hidden = true } }'


@dataclass(frozen=True)
class Plan:
    """What campus.toml asks for, checked as a whole."""

    config: Config
    opened: tuple[OpenBuilding, ...]
    operations: Mapping[str, tuple[Operation, ...]]
    products: tuple[ProductEntry, ...]
    directory: Directory
    documents: Mapping[str, dict[str, Any]]
    pricing: Pricing | None = None
    closed: tuple[LoadedBuilding, ...] = ()
    """Buildings whose tools are another server's that does not answer."""

    @property
    def loaded(self) -> Iterator[LoadedBuilding]:
        """Every building that campus.toml names, open or closed."""
        yield from (one.loaded for one in self.opened)
        yield from self.closed

    @property
    def remotes(self) -> dict[str, RemoteServer]:
        """The servers elsewhere, by the name of their building."""
        return {one.name: one.remote for one in self.loaded if one.remote is not None}

    def with_opened(self, late: OpenBuilding) -> "Plan":
        """The plan with one building more, at its place in campus.toml; LoadError when it does not fit in."""
        order = list(self.config.buildings)
        opened = sorted([*self.opened, late], key=lambda one: order.index(one.name))
        return plan_of(self.config, opened, [one for one in self.closed if one.name != late.name])

    @property
    def jobs(self) -> dict[str, Job]:
        """Every building's jobs by the name that `campus run` takes."""
        return {f"{one.name}.{job.name}": job for one in self.opened for job in one.loaded.building.jobs}

    @property
    def problems(self) -> dict[str, Mapping[str, str]]:
        """What each building says of its own problem codes, by its name."""
        return {one.name: one.loaded.building.problems for one in self.opened}


async def make_plan(config: Config, installed: Sequence[Installed]) -> Plan:
    """Load and open every building's server; ConfigError or LoadError says what cannot be.

    A building whose tools are another server's that does not answer is left `closed`: the rest is served meanwhile.
    """
    if not config.buildings:
        raise ConfigError("campus.toml opens no building; add a table such as [buildings.gateway]")
    loaded = [load(name, table, config.secrets, installed) for name, table in config.buildings.items()]
    async with anyio.create_task_group() as tasks:  # servers elsewhere are waited for together
        found: dict[str, OpenBuilding | Exception | None] = dict.fromkeys(one.name for one in loaded)
        for one in loaded:
            if one.remote is None:
                found[one.name] = await _opened(one, per_call=config.payments is not None)
            else:
                tasks.start_soon(_open_into, found, one, config.payments is not None)
    if errors := [one for one in found.values() if isinstance(one, Exception)]:
        raise errors[0]
    return plan_of(
        config, [one for one in found.values() if isinstance(one, OpenBuilding)], [one for one in loaded if found[one.name] is None]
    )


async def _open_into(found: dict[str, OpenBuilding | Exception | None], loaded: LoadedBuilding, per_call: bool) -> None:
    found[loaded.name] = await _opened(loaded, per_call=per_call)


async def _opened(loaded: LoadedBuilding, *, per_call: bool) -> OpenBuilding | Exception | None:
    """None when its server does not answer; an error is returned, or the task group would wrap it."""
    try:
        return await open_server(loaded, per_call=per_call)
    except Unreachable:
        return None
    except Exception as error:
        return error


def plan_of(config: Config, opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding] = ()) -> Plan:
    """The plan of these servers, checked as a whole."""
    operations = {one.name: _operations(one) for one in opened}
    _check_addresses(opened, operations, closed)
    _check_jobs(opened)
    _check_problems(opened)
    pricing = open_pricing(config, opened, operations)
    counter = seller_of(opened, operations, url=config.url) if pricing else None
    products = tuple(product_entries(config.products, counter))
    directory = Directory(config.server.name, config.url, products, payment_entry(pricing) if pricing else None)
    for one in opened:
        directory.add(building_entry(one, operations[one.name], url=config.url, products=products, per_call=pricing is not None))
    documents = _documents(config, opened, operations, pricing)
    return Plan(config, tuple(opened), operations, products, directory, documents, pricing, tuple(closed))


def _operations(opened: OpenBuilding) -> tuple[Operation, ...]:
    return tuple(_operation(opened, tool) for tool in opened.tools.values())


def _operation(opened: OpenBuilding, tool: Tool) -> Operation:
    try:
        return operation_of(tool, server=opened.name, default_prefix=f"/v1/{opened.name}")
    except ValueError as error:
        raise LoadError(f"building {opened.name!r}: {error}") from None
    except (LookupError, AttributeError, TypeError) as error:  # another server's schemas may be anything
        raise LoadError(f"building {opened.name!r}: the schemas of {tool.name!r} cannot be read ({error!r}); {HOW_TO_HIDE}") from None


def _check_addresses(
    opened: Sequence[OpenBuilding], operations: Mapping[str, Sequence[Operation]], closed: Sequence[LoadedBuilding]
) -> None:
    loaded = [*(one.loaded for one in opened), *closed]
    taken = {("POST", mcp_path_of(one)): f"the MCP server of {one.name}" for one in loaded}
    if len(taken) < len(loaded):
        raise ConfigError("two buildings have the same path; each needs one of its own")
    descriptions = {
        "/openapi.json",
        "/v1/openapi.json",
        *(f"/v1/{one.name}" for one in opened),
        *(f"/{one.name}/openapi.json" for one in opened),
    }
    for owner, methods, path in _claims(opened, operations):
        if path in descriptions or path.split("/")[1] in RESERVED - {"v1"}:
            raise LoadError(f"the route of {owner}, {path}, is one that campus itself serves; choose another")
        for method in methods:
            if other := taken.get((method, path)):
                raise LoadError(f"two of them have the route {method} {path}: {other}, and {owner}; give one another route")
            taken[method, path] = owner


def _claims(opened: Sequence[OpenBuilding], operations: Mapping[str, Sequence[Operation]]) -> Iterator[tuple[str, Sequence[str], str]]:
    """What is to be served: who, by which methods, where."""
    for one in opened:
        for operation in operations[one.name]:
            yield f"the tool {operation.name} of {one.name}", operation.methods, operation.path
        for page in one.loaded.building.pages:
            yield f"a page of {one.name}", page.methods, page.path


def _check_jobs(opened: Sequence[OpenBuilding]) -> None:
    for one in opened:
        for job in one.loaded.building.jobs:
            try:
                Task(f"{one.name}.{job.name}", job.run, every=job.every, daily_at=job.daily_at, on=job.on)
            except ValueError as error:
                raise LoadError(f"building {one.name!r}: job {job.name}: {error}") from None


def _check_problems(opened: Sequence[OpenBuilding]) -> None:
    for one in opened:
        if clash := sorted(one.loaded.building.problems.keys() & EXPLANATIONS.keys()):
            raise LoadError(f"building {one.name!r} explains the problem code {clash[0]!r}, which is campus's own; give it another name")


def _documents(
    config: Config, opened: Sequence[OpenBuilding], operations: Mapping[str, Sequence[Operation]], pricing: Pricing | None
) -> dict[str, dict[str, Any]]:
    """The documents by path: OpenAPI of each building, of all, and of the one that campus.toml names; and the terms of payment."""
    offers = {one.name: one.offers for one in opened}
    parts: dict[str, Any] = {
        "servers": [config.url],
        "responses": responses(offers, pricing),
        "extras": extras(offers, pricing),
        "components": components(pricing),
    }

    def document(its: Grouped, title: str, description: str) -> dict[str, Any]:
        try:
            return openapi(its, title=title, version=OPENAPI_VERSION, description=description, **parts)
        except (LookupError, AttributeError, TypeError) as error:  # another server's schemas may be anything
            raise LoadError(f"{title!r}: the schemas of its tools cannot be read ({error!r}); {HOW_TO_HIDE}") from None

    by_name = {one.name: document(operations[one.name], one.server.name, one.server.instructions or "") for one in opened}
    documents = {f"/{name}/openapi.json": found for name, found in by_name.items()}
    documents["/.well-known/x402"] = payment_terms(config.server.name, config.url, pricing)
    documents["/v1/openapi.json"] = document(operations, config.server.name, "Every tool of every building.")
    if config.server.openapi in by_name:
        documents["/openapi.json"] = by_name[config.server.openapi]
    elif "openapi" in config.server.model_fields_set and config.server.openapi not in config.buildings:
        raise ConfigError(f"[server] openapi = {config.server.openapi!r} is no open building; there are: {', '.join(by_name)}")
    return documents
