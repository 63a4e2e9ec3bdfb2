"""The plan: everything known before a database is opened, checked as a whole: buildings, tools, routes, prices, documents, directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import anyio

from campus.addresses import is_loopback
from campus.building import Job
from campus.catalog.loader import RESERVED, Installed, LoadedBuilding, RemoteServer, load
from campus.catalog.openapi import documents_of, service_of
from campus.catalog.server import OpenBuilding, mcp_path_of, open_server, summary_of
from campus.config import Config, ProductTable
from campus.directory import BuildingEntry, Directory, PaymentEntry, ProductEntry, ToolEntry
from campus.errors import EXPLANATIONS, ConfigError, LoadError, Unreachable
from campus.jobs import Task
from campus.payments.networks import network_of, with_checksum
from campus.payments.terms import KEY_ARGUMENT, SCHEME, PaidTool, Payee, Pricing, paid_tool_of
from campus.paywall.admission import ALL
from campus.pricing import Offer, Price
from twins import Operation

NEEDED = ("x402", "web3")


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
                found[one.name] = await _opened(one, config)
            else:
                tasks.start_soon(_open_into, found, one, config)
    if errors := [one for one in found.values() if isinstance(one, Exception)]:
        raise errors[0]
    opened = [one for one in found.values() if isinstance(one, OpenBuilding)]
    return plan_of(config, opened, [one for one in loaded if found[one.name] is None])


async def _open_into(found: dict[str, OpenBuilding | Exception | None], loaded: LoadedBuilding, config: Config) -> None:
    found[loaded.name] = await _opened(loaded, config)


async def _opened(loaded: LoadedBuilding, config: Config) -> OpenBuilding | Exception | None:
    """None when its server does not answer. An error is returned, since the task group would wrap it."""
    try:
        return await open_server(loaded, per_call=config.payments is not None, url=config.url)
    except Unreachable:
        return None
    except Exception as error:
        return error


def plan_of(config: Config, opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding] = ()) -> Plan:
    """The plan of these servers; ConfigError or LoadError when they conflict with one another or with campus."""
    _check_connect(config)
    _check_routes(opened, closed)
    _check_jobs(opened)
    _check_problems(opened)
    pricing = open_pricing(config, opened)
    seller = seller_of(opened, url=config.url) if pricing else None
    products = tuple(product_entries(config.products, seller))
    payment = payment_entry(pricing) if pricing else None
    trial = trial_of(opened, url=config.url)
    sign_in = {one.name: f"{config.connect_url}/{one.name}/mcp" for one in opened if config.connect and not one.sells_keys}
    directory = Directory(config.server.name, config.url, products, payment, trial, sign_in)
    for one in opened:
        directory.add(building_entry(one, url=config.url, products=products, per_call=pricing is not None))
    return Plan(config, tuple(opened), products, directory, documents_of(config, opened, pricing), pricing, tuple(closed))


def _check_connect(config: Config) -> None:
    """Clients of [connect] insist on https, except on the machine itself."""
    if config.connect is None:
        return
    for name, url in {"server.public_url": config.url, "connect.url": config.connect.url or config.url}.items():
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"[connect] needs https, because clients refuse to connect without it, and {name} is {url}; set it to https://…"
            )
    if config.connect.url is not None and urlsplit(config.connect.url).hostname == urlsplit(config.url).hostname:
        raise ConfigError(f"connect.url is at the host of the service, {config.url}; name another host, or leave connect.url out")


def _check_routes(opened: Sequence[OpenBuilding], closed: Sequence[LoadedBuilding]) -> None:
    loaded = [*(one.loaded for one in opened), *closed]
    taken = {("POST", mcp_path_of(one)): ("the MCP endpoint of", one.name) for one in loaded}
    if len(taken) < len(loaded):
        paths = [mcp_path_of(one) for one in loaded]
        same = [one.name for one in loaded if paths.count(mcp_path_of(one)) > 1]
        raise ConfigError(f"the buildings {' and '.join(same)} have the same path in campus.toml; give each a different one")
    own = {"/openapi.json", "/v1/openapi.json", *(path for one in loaded for path in document_paths(one))}
    for kind, owner, methods, path in _routes(opened):
        if path in own or path.startswith("/connect/") or path.split("/")[1] in RESERVED - {"v1", "connect"}:
            raise LoadError(f"route {path} of {kind} {owner} is used by campus itself; choose a different route")
        for method in methods:
            if other := taken.get((method, path)):
                raise LoadError(f'route "{method} {path}" is used by {_both(other, (kind, owner))}; give one of them a different route')
            taken[method, path] = kind, owner


def document_paths(loaded: LoadedBuilding) -> tuple[str, ...]:
    """The addresses at which campus describes a building."""
    name = loaded.name
    return f"/v1/{name}", f"/{name}/openapi.json", f"/{name}/server.json", f"{mcp_path_of(loaded)}/server-card"


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


def open_pricing(config: Config, opened: Sequence[OpenBuilding]) -> Pricing | None:
    """The pricing of every tool that is sold per call; None when campus.toml has no [payments].

    ConfigError when payments cannot be accepted, LoadError when a tool cannot be sold as it declares.
    """
    for one in opened:
        _check_grant(config, one)
        for name, operation in one.operations.items():
            _check_seller(one.offers[name], operation)
    if (payments := config.payments) is None:
        return None
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(f"[payments] needs {' and '.join(missing)}, which is not installed; run: pip install 'campus[payments]'")
    network = network_of(payments.network)
    _check_spelling(payments.pay_to)
    products = {name: Price.parse(table.price) for name, table in config.products.items()}
    paid_tools = {
        (paid_tool.offer.building, paid_tool.offer.tool): paid_tool for one in opened for paid_tool in _paid_tools(one, url=config.url)
    }
    if not products and any(paid_tool.offer.access.sells for paid_tool in paid_tools.values()):
        raise ConfigError("a building sells keys, and campus.toml has no product; add a table such as [products.NAME]")
    return Pricing(Payee(network, payments.pay_to), url=config.url, paid_tools=paid_tools, products=products)


def _paid_tools(opened: OpenBuilding, *, url: str) -> list[PaidTool]:
    sold = [operation for name, operation in opened.operations.items() if opened.offers[name].is_sold_per_call]
    service = service_of(opened, url=url)
    return [paid_tool_of(opened.offers[one.name], one, summary_of(one.tool), service) for one in sold]


def _check_spelling(wallet: str) -> None:
    """An address in lower case has no checksum. One with capitals matches its checksum, or is mistyped."""
    if wallet != wallet.lower() and wallet != with_checksum(wallet):
        raise ConfigError(f"payments.pay_to: {wallet} is mistyped: its checksum is wrong; copy it from your wallet again")


def _check_grant(config: Config, opened: OpenBuilding) -> None:
    """A building that sells keys needs a grant in campus.toml, and payments."""
    if not any(offer.access.sells for offer in opened.offers.values()):
        return
    table = f"[buildings.{opened.name}]"
    if config.payments is None:
        raise ConfigError(f"{table} sells keys for payments, but campus.toml has no table [payments]; add it, or remove {table}")
    if "keys" not in opened.loaded.table.grants:
        raise ConfigError(f'{table} sells keys, but campus.toml does not allow it; write grants = ["keys"] into {table}')


def _check_seller(offer: Offer, operation: Operation) -> None:
    """A tool that sells has a required argument that names the product, and takes secrets only in a body."""
    argument = offer.access.sells
    if argument is None:
        return
    where = f"tool {offer.tool!r} of building {offer.building!r}"
    if argument not in operation.by_name:
        names = ", ".join(operation.by_name) or "none"
        raise LoadError(f"{where} declares sells={argument!r}, but has no such argument; the arguments are: {names}")
    if not operation.by_name[argument].required:
        raise LoadError(f"{where} declares sells={argument!r}, which has a default; remove the default: a purchase must name its product")
    if KEY_ARGUMENT in operation.by_name and operation.methods != ("POST",):
        raise LoadError(f"{where} takes {KEY_ARGUMENT}, a secret that must not be in a URL; serve it with POST only")


def product_entries(products: Mapping[str, ProductTable], seller: str | None = None) -> list[ProductEntry]:
    """The products, as callers see them; `seller` says which tool sells it, if one does."""
    return [
        ProductEntry(name=name, scope=table.scope, price=table.price, term=table.term, get=_where_sold(table, seller))
        for name, table in products.items()
    ]


def _where_sold(table: ProductTable, seller: str | None) -> str:
    return "; or ".join(way for way in (seller, table.url) if way) or "from the operator of this service"


def seller_of(opened: Sequence[OpenBuilding], *, url: str) -> str | None:
    """Where keys are sold for a payment by x402: the route and the MCP endpoint of the first tool that sells them."""
    for one in opened:
        for name, operation in one.operations.items():
            if one.offers[name].access.sells:
                twin = f"{operation.methods[0]} {url}{operation.path}"
                return f"{twin}, paid by x402; over MCP the tool {operation.name} at {url}{one.mcp_path}"
    return None


def trial_of(opened: Sequence[OpenBuilding], *, url: str) -> str | None:
    """The address of the first free tool that a GET without arguments calls; one of the building at / only if there is no other."""
    found = [
        (one.loaded.table.path == "/", f"{url}{operation.path}")
        for one in opened
        for name, operation in one.operations.items()
        if one.offers[name].access.is_free and operation.methods[0] == "GET" and not any(each.required for each in operation.parameters)
    ]
    return min(found, key=lambda each: each[0])[1] if found else None


def building_entry(opened: OpenBuilding, *, url: str, products: Sequence[ProductEntry], per_call: bool) -> BuildingEntry:
    """One building's entry; `per_call` says whether payments are accepted here."""
    tools = tuple(_tool_entry(each, opened.offers[name], url=url, per_call=per_call) for name, each in opened.operations.items())
    unlockable = any(tool.key_scope for tool in tools)
    return BuildingEntry(
        name=opened.name,
        title=opened.server.name,
        about=opened.server.instructions or opened.server.name,
        mcp=f"{url}{opened.mcp_path}",
        description=f"{url}/v1/{opened.name}",
        openapi=f"{url}/{opened.name}/openapi.json",
        key_scope=opened.scope if unlockable else None,
        unlocked_by=tuple(one.name for one in products if unlockable and one.scope in (opened.scope, ALL)),
        free_tier=_free_tier(tools),
        tools=tools,
    )


def _tool_entry(operation: Operation, offer: Offer, *, url: str, per_call: bool) -> ToolEntry:
    return ToolEntry(
        name=operation.name,
        summary=summary_of(operation.tool),
        tier=offer.tier(per_call=per_call),
        free=offer.access.is_free,
        price=str(offer.price) if offer.price and per_call else None,
        sells=offer.access.sells,
        key_scope=None if offer.access.key == "never" else offer.scope,
        http=tuple(f"{method} {url}{operation.path}" for method in operation.methods),
    )


def _free_tier(tools: Sequence[ToolEntry]) -> str:
    free = [tool.name for tool in tools if tool.free]
    if len(free) == len(tools):
        return "everything"
    return ", ".join(free) or "nothing"


def payment_entry(pricing: Pricing) -> PaymentEntry:
    """How calls are paid for, as callers see it."""
    network = pricing.payee.network
    return PaymentEntry(scheme=SCHEME, network=network.id, network_name=network.title, asset=network.asset, pay_to=pricing.payee.address)
