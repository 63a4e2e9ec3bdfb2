"""The plan: everything known before a database is opened, checked as a whole. Which buildings open, their tools, routes and documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from campus.building import Job
from campus.catalog.entries import building_entry, payment_entry, product_entries, seller_of
from campus.catalog.loader import RESERVED, Installed, LoadedBuilding, RemoteServer, load
from campus.catalog.openapi import documents_of
from campus.catalog.pricing import open_pricing
from campus.catalog.server import OpenBuilding, mcp_path_of, open_server
from campus.config import Config
from campus.directory import Directory, ProductEntry
from campus.errors import ConfigError, LoadError, Unreachable
from campus.jobs import Task
from campus.payments.pricing import Pricing
from campus.problems import EXPLANATIONS


@dataclass(frozen=True)
class Plan:
    """What campus.toml asks for."""

    config: Config
    opened: tuple[OpenBuilding, ...]
    products: tuple[ProductEntry, ...]
    directory: Directory
    documents: Mapping[str, dict[str, Any]]
    pricing: Pricing | None = None
    closed: tuple[LoadedBuilding, ...] = ()
    """Buildings whose tools belong to another server that does not answer."""

    @property
    def loaded(self) -> Iterator[LoadedBuilding]:
        """Every building in campus.toml, open or closed."""
        yield from (one.loaded for one in self.opened)
        yield from self.closed

    @property
    def remotes(self) -> dict[str, RemoteServer]:
        """The remote servers, by the name of their building."""
        return {one.name: one.remote for one in self.loaded if one.remote is not None}

    def with_opened(self, late: OpenBuilding) -> "Plan":
        """The plan with one more building, at its place in campus.toml; LoadError when it conflicts with the others."""
        order = list(self.config.buildings)
        opened = sorted([*self.opened, late], key=lambda one: order.index(one.name))
        return plan_of(self.config, opened, [one for one in self.closed if one.name != late.name])

    @property
    def jobs(self) -> dict[str, Job]:
        """Every building's jobs, by the name that `campus run` takes."""
        return {f"{one.name}.{job.name}": job for one in self.opened for job in one.loaded.building.jobs}

    @property
    def problems(self) -> dict[str, Mapping[str, str]]:
        """Each building's explanations of its own problem codes, by its name."""
        return {one.name: one.loaded.building.problems for one in self.opened}


async def make_plan(config: Config, installed: Sequence[Installed]) -> Plan:
    """Load every building and open its server; ConfigError or LoadError says what is wrong.

    A building whose tools belong to another server that does not answer stays `closed`, and the rest is served.
    """
    if not config.buildings:
        raise ConfigError("campus.toml opens no building; add a table such as [buildings.gateway]")
    loaded = [load(name, table, config.secrets, installed) for name, table in config.buildings.items()]
    async with anyio.create_task_group() as tasks:  # remote servers are opened at the same time
        found: dict[str, OpenBuilding | Exception | None] = dict.fromkeys(one.name for one in loaded)
        for one in loaded:
            if one.remote is None:
                found[one.name] = await _opened(one, per_call=config.payments is not None)
            else:
                tasks.start_soon(_open_into, found, one, config.payments is not None)
    if errors := [one for one in found.values() if isinstance(one, Exception)]:
        raise errors[0]
    opened = [one for one in found.values() if isinstance(one, OpenBuilding)]
    return plan_of(config, opened, [one for one in loaded if found[one.name] is None])


async def _open_into(found: dict[str, OpenBuilding | Exception | None], loaded: LoadedBuilding, per_call: bool) -> None:
    found[loaded.name] = await _opened(loaded, per_call=per_call)


async def _opened(loaded: LoadedBuilding, *, per_call: bool) -> OpenBuilding | Exception | None:
    """None when its server does not answer. An error is returned, since the task group would wrap it."""
    try:
        return await open_server(loaded, per_call=per_call)
    except Unreachable:
        return None
    except Exception as error:
        return error


def plan_of(config: Config, opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding] = ()) -> Plan:
    """The plan of these servers; ConfigError or LoadError when they conflict with one another or with campus."""
    _check_routes(opened, closed)
    _check_jobs(opened)
    _check_problems(opened)
    pricing = open_pricing(config, opened)
    seller = seller_of(opened, url=config.url) if pricing else None
    products = tuple(product_entries(config.products, seller))
    directory = Directory(config.server.name, config.url, products, payment_entry(pricing) if pricing else None)
    for one in opened:
        directory.add(building_entry(one, url=config.url, products=products, per_call=pricing is not None))
    return Plan(config, tuple(opened), products, directory, documents_of(config, opened, pricing), pricing, tuple(closed))


def _check_routes(opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding]) -> None:
    loaded = [*(one.loaded for one in opened), *closed]
    taken = {("POST", mcp_path_of(one)): ("the MCP endpoint of", one.name) for one in loaded}
    if len(taken) < len(loaded):
        raise ConfigError("two buildings have the same path in campus.toml; give each a different one")
    own = {"/openapi.json", "/v1/openapi.json", *(f"/v1/{one.name}" for one in opened), *(f"/{one.name}/openapi.json" for one in opened)}
    for kind, owner, methods, path in _routes(opened):
        if path in own or path.split("/")[1] in RESERVED - {"v1"}:
            raise LoadError(f"route {path} of {kind} {owner} is used by campus itself; choose a different route")
        for method in methods:
            if other := taken.get((method, path)):
                raise LoadError(f'route "{method} {path}" is used by {_both(other, (kind, owner))}; give one of them a different route')
            taken[method, path] = kind, owner


def _routes(opened: Sequence[OpenBuilding]) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Every route that buildings use: the kind and the name of its owner, its methods, its path."""
    for one in opened:
        for operation in one.operations.values():
            yield "the tool", f"{operation.name} ({one.name})", operation.methods, operation.path
        for page in one.loaded.building.pages:
            yield "a page of", one.name, page.methods, page.path


def _both(one: tuple[str, str], other: tuple[str, str]) -> str:
    if one[0] == other[0] == "the tool":
        return f"two tools, {one[1]} and {other[1]}"
    return f"{' '.join(one)} and {' '.join(other)}"


def _check_jobs(opened: Sequence[OpenBuilding]) -> None:
    for one in opened:
        for job in one.loaded.building.jobs:
            try:
                daily_at = job.time_of_day(one.loaded.settings)
                Task(f"{one.name}.{job.name}", job.run, every=job.every, daily_at=daily_at, on=job.on)
            except ValueError as error:
                raise LoadError(f"building {one.name!r}: job {job.name}: {error}") from None


def _check_problems(opened: Sequence[OpenBuilding]) -> None:
    for one in opened:
        if clash := sorted(one.loaded.building.problems.keys() & EXPLANATIONS.keys()):
            raise LoadError(f"building {one.name!r} explains the problem code {clash[0]!r}, which belongs to campus; choose another code")
