"""The plan: everything known before a database is opened, checked as a whole: buildings, tools, routes, prices, documents, directory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from campus.building import Job
from campus.catalog.entries import building_entry, product_entries, seller_of
from campus.catalog.loader import Installed, LoadedBuilding, load
from campus.catalog.openapi import Maker, documents_of
from campus.catalog.parts import PlanPart, made_parts, unserved
from campus.catalog.server import OpenBuilding, document_paths, mcp_path_of, open_server
from campus.config import RESERVED, Config
from campus.directory import Directory, ProductEntry, SellerEntry
from campus.errors import BuildingFailed, CampusError, ConfigError, LoadError, Unreachable
from campus.installed import feature_paths
from campus.jobs import Task
from campus.pricing import Seller
from campus.problems import EXPLANATIONS
from twins import ANY, RouteEntry, RouteTable


@dataclass(frozen=True)
class Plan:
    config: Config
    opened: tuple[OpenBuilding, ...]
    products: tuple[ProductEntry, ...]
    directory: Directory
    documents: Mapping[str, Maker]
    """What makes each document that follows from the plan, by path."""
    closed: tuple[LoadedBuilding, ...] = ()
    """Buildings whose tools belong to another server that does not answer, and those whose own code could not be loaded."""
    parts: dict[str, PlanPart] = field(default_factory=dict)  # What features add, by their names.

    @property
    def loaded(self) -> Iterator[LoadedBuilding]:
        yield from (one.loaded for one in self.opened)
        yield from self.closed

    def with_opened(self, late: OpenBuilding) -> "Plan":
        """The plan with one more building, at its place in campus.toml or in place of itself; LoadError when it conflicts with others."""
        order = list(self.config.buildings)
        opened = sorted([*(one for one in self.opened if one.name != late.name), late], key=lambda one: order.index(one.name))
        return plan_of(self.config, opened, [one for one in self.closed if one.name != late.name])

    def without(self, closed: LoadedBuilding) -> "Plan":
        return plan_of(self.config, [one for one in self.opened if one.name != closed.name], [*self.closed, closed])

    @property
    def seller(self) -> Seller | None:
        return seller_among(self.parts.values())

    @property
    def sold_by(self) -> SellerEntry | None:
        """Who offers the service; None without the table [seller]."""
        return self.directory.sold_by

    @property
    def contact(self) -> str | None:
        """Where people write to the operator."""
        return self.sold_by.contact if self.sold_by else None

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs of every feature and building, by the name that `campus run` takes; of features not those of one process alone."""
        is_shared = not self.config.storage.url.startswith("sqlite:")
        runs = [(one.name, job) for one in self.config.features() if one.runs for job in one.building.jobs]
        of_features = [(name, job) for name, job in runs if job.on == "one" and (is_shared or not job.shared)]
        of_buildings = [(one.name, job) for one in self.opened for job in one.loaded.building.jobs]
        return {f"{name}.{job.name}": job for name, job in [*of_features, *of_buildings]}

    @property
    def problems(self) -> dict[str, Mapping[str, str]]:
        return {one.name: one.loaded.building.problems for one in self.opened}

    @property
    def own_problems(self) -> dict[str, str]:
        return own_problems(self.config)


async def make_plan(config: Config, installed: Sequence[Installed], *, closes_failed: bool = False) -> Plan:
    """Load every building and open its server; ConfigError or LoadError says what is wrong.

    A building whose tools belong to another server that does not answer, or whose tools cannot be served, stays `closed`, and the rest
    is served. So does one whose own code raises an error, if `closes_failed` and something is left to serve; else that is a LoadError.
    """
    if not config.buildings:
        raise ConfigError("campus.toml opens no building; add a table such as [buildings.gateway]")
    loaded = _loaded(config, installed, closes_failed=closes_failed)
    async with anyio.create_task_group() as tasks:  # late servers are opened at the same time
        found: dict[str, OpenBuilding | Exception | None] = dict.fromkeys(one.name for one in loaded)
        for one in loaded:
            if one.failure is not None:
                continue
            if one.late is None:
                await _open_into(found, one, config)
            else:
                tasks.start_soon(_open_into, found, one, config)
    if errors := [one for one in found.values() if isinstance(one, Exception)]:
        raise errors[0]
    opened = [one for one in found.values() if isinstance(one, OpenBuilding)]
    closed = [one for one in loaded if found[one.name] is None]
    strangers = [one for one in opened if one.loaded.late is not None]
    try:
        return plan_of(config, opened, closed)
    except Exception:  # what others' tools do to documents and routes is not known before
        if not strangers:
            raise
    own = [one for one in opened if one.loaded.late is None]
    plan = plan_of(config, own, [*closed, *(one.loaded for one in strangers)])
    for stranger in strangers:
        try:
            plan = plan.with_opened(stranger)
        except Exception as error:  # as above
            assert stranger.loaded.late is not None
            stranger.loaded.late.reject(error)
    return plan


def _loaded(config: Config, installed: Sequence[Installed], *, closes_failed: bool) -> list[LoadedBuilding]:
    """Every building; the mistakes of all of them are reported at once."""
    loaded: list[LoadedBuilding] = []
    failed: dict[str, BuildingFailed] = {}
    errors: list[CampusError] = []
    for name, table in config.buildings.items():
        try:
            loaded.append(load(name, table, config.secrets, installed, folder=config.folder, is_local=config.is_local))
        except BuildingFailed as error:
            failed[name] = error
            errors.append(error)
        except CampusError as error:
            errors.append(error)
    if closes_failed and loaded and len(errors) == len(failed):
        return [*loaded, *(LoadedBuilding.failed(name, config.buildings[name], error) for name, error in failed.items())]
    if errors[1:]:
        raise ConfigError("\n".join(map(str, errors)))
    if errors:
        raise errors[0]
    return loaded


async def _open_into(found: dict[str, OpenBuilding | Exception | None], loaded: LoadedBuilding, config: Config) -> None:
    """Nothing is found when another server does not answer or cannot be served. An error is, since the task group would wrap it."""
    sold = {"per_call": config.sells_calls, "has_credits": config.has_credits}
    try:
        found[loaded.name] = await open_server(loaded, **sold, is_local=config.is_local)
    except Unreachable:
        return
    except Exception as error:
        if loaded.late is None:
            found[loaded.name] = error
        else:
            loaded.late.reject(error)


def plan_of(config: Config, opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding] = ()) -> Plan:
    """The plan of these servers; ConfigError or LoadError when they conflict with one another or with campus."""
    parts = made_parts(config, opened)
    _check_routes(opened, closed, parts.values())
    _check_jobs(opened)
    _check_problems(config, opened)
    seller = seller_among(parts.values())
    sold_at = seller_of(opened, url=config.url, by=seller.by) if seller else None
    sold_by = next((part.sold_by for part in parts.values() if part.sold_by is not None), None)
    ways = [way for way in (sold_at, *(part.shop for part in parts.values())) if way]
    products = tuple(product_entries(config.products, ways, sold_by.contact if sold_by else None))
    directory = Directory(config.server.name, config.url, products, sold_by=sold_by)
    for part in parts.values():
        part.enter(directory)
    for one in opened:
        directory.add(building_entry(one, url=config.url, products=products, per_call=seller is not None))
    documents = documents_of(config, opened, products, tuple(parts.values()), sold_by)
    if any(one.loaded.late for one in opened):  # the schemas of others' tools may be anything
        for make in documents.values():
            make()
    return Plan(config, tuple(opened), products, directory, documents, tuple(closed), parts)


def seller_among(parts: Iterable[PlanPart]) -> Seller | None:
    return next((part.seller for part in parts if part.seller is not None), None)


def _check_routes(opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding], parts: Iterable[PlanPart]) -> None:
    loaded = [*(one.loaded for one in opened), *closed]
    paths = [mcp_path_of(one) for one in loaded]
    if same := [one.name for one in loaded if paths.count(mcp_path_of(one)) > 1]:
        raise ConfigError(f"the buildings {' and '.join(same)} have the same path in campus.toml; give each a different one")
    own = {"/openapi.json", "/v1/openapi.json", *(path for one in loaded for path in document_paths(one))}
    pages = {page.path for one in opened for page in one.loaded.building.pages}
    own |= {"/"} - pages  # campus has a start page of its own where no building has one
    entries = [*_routes(opened), *(route for part in parts for route in part.routes())]
    for entry in entries:
        of_feature = any(entry.path == path or entry.path.startswith(f"{path.rstrip('/')}/") for path in feature_paths())
        if of_feature or entry.path in own or entry.path.split("/")[1] in RESERVED - {"v1"}:
            raise LoadError(f"route {entry.path} of {entry.name} is used by campus itself; choose a different route")
    endpoints = [RouteEntry((ANY,), mcp_path_of(one), unserved, f"the MCP endpoint of {one.name}") for one in loaded]
    descriptions = RouteEntry(("GET",), "/v1/{building}", unserved, "campus's description of a building")
    try:
        RouteTable([*endpoints, descriptions, *entries])
    except ValueError as error:
        raise LoadError(str(error)) from None


def _routes(opened: Sequence[OpenBuilding]) -> Iterator[RouteEntry]:
    for one in opened:
        for operation in one.operations.values():
            for methods, path in operation.routes:
                yield RouteEntry(methods, path, unserved, f"the tool {operation.name} ({one.name})")
        for page in one.loaded.building.pages:
            yield RouteEntry(tuple(page.methods), page.path, unserved, f"a page of {one.name}")


def _check_jobs(opened: Sequence[OpenBuilding]) -> None:
    for one in opened:
        for job in one.loaded.building.jobs:
            try:
                daily_at = job.time_of_day(one.loaded.settings)
                Task(f"{one.name}.{job.name}", job.run, every=job.every, daily_at=daily_at, on=job.on)
            except ValueError as error:
                raise LoadError(f"building {one.name!r}: job {job.name}: {error}") from None


def own_problems(config: Config) -> dict[str, str]:
    return {**EXPLANATIONS, **{code: text for one in config.features() for code, text in one.building.problems.items()}}


def _check_problems(config: Config, opened: Sequence[OpenBuilding]) -> None:
    own = own_problems(config)
    for one in opened:
        if clash := sorted(one.loaded.building.problems.keys() & own.keys()):
            raise LoadError(f"building {one.name!r} explains the problem code {clash[0]!r}, which belongs to campus; choose another code")
