"""The checks behind `campus check`, /readyz and `campus audit`: campus's own, and those of the buildings."""

import inspect
import logging
import re
import sysconfig
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from itertools import chain
from typing import Any

import anyio
import fastmcp
from fastmcp.tools import FunctionTool
from pydantic import MISSING
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import text
from sqlmodel import SQLModel

from campus.addresses import is_loopback
from campus.catalog.loader import secret_variables
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.config import Config, ProductTable, references_in
from campus.config_tables import WebTable
from campus.core import PASSWORD as DATABASE_PASSWORD
from campus.core import feature_tables, utc_now
from campus.errors import CampusError
from campus.installed import OpenFeature, installed_features
from campus.jobs import Scheduler, ServiceRunner
from campus.paywall.admission import ALL
from campus.pricing import META, Offer, Price, access_of
from campus.site import Site
from campus.storage import Storage
from campus.storage.database import try_write
from campus.storage.databases import Databases
from campus.storage.migrations import how_to_migrate, missing_from
from campus.storage.tables import CoreTables
from twins import is_read_only, why_slow

log = logging.getLogger(__name__)
EMPTY = inspect.Parameter.empty

NAME_FOR_CLIENTS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What Claude Desktop takes as a tool's name, and OpenAI's API as a function's: narrower than MCP, which has dots, and 128 characters."""
MOST_NAMED = 3
"""How many tools a sentence names that is about many."""
WRITE_SECONDS = 6.0
"""Longer than a database waits for another process, so that the database's own error is reported."""

CLOCK_SECONDS = 1.0
CLOCKS_APART = timedelta(seconds=10)
"""More than NTP leaves, and less than leases and schedules bear."""

SECRETS = (DATABASE_PASSWORD,)
"""The variables of campus's own secrets."""
LIKENESS = 0.8
"""From this ratio of difflib on, a name is taken for a misspelt one."""

Findings = dict[str, Sequence[str]]
"""By building, a sentence for each problem found: an error, unless it is one of the following."""


class Warned(str):
    """A finding that keeps nothing from working: `campus check` fails for it only with --strict."""

    __slots__ = ()
    severity = "warning"


async def run_checks(opened: Sequence[OpenFeature | OpenBuilding], sites: Mapping[str, Site[Any, Any]], on: str) -> Findings:
    """The findings of the buildings' checks of one kind; a check that raises is a finding."""
    findings: Findings = {}
    for one in opened:
        checks = [check for check in one.loaded.building.checks if check.on == on]
        if checks or isinstance(one, OpenBuilding):
            findings[one.name] = [sentence for check in checks for sentence in await _run_check(check.run, sites[one.name])]
    return findings


async def _run_check(run: Callable[..., Awaitable[Sequence[str]]], site: Site[Any, Any]) -> Sequence[str]:
    try:
        found = await run(site)
        if isinstance(found, str) or not isinstance(found, Sequence):
            raise TypeError(f"the check {run.__name__} returned {found!r}; return a list of sentences, empty if all is well")
        return found
    except CampusError as error:  # its sentence is enough
        return [f"the check {run.__name__} failed: {error}"]
    except Exception as error:  # a building's code may raise anything; it is reported, and logged with its cause
        log.exception("check failed", extra={"building": site.name, "check": run.__name__})
        return [f"the check {run.__name__} failed: {type(error).__name__}; the cause is in the log"]


async def campus_findings(plan: Plan, databases: Databases, storage: Storage, features: Findings) -> Findings:
    """The findings of `campus check` outside of the buildings, by table of campus.toml. Features with a table are always listed.

    `storage` is campus's own. SQLite's directory is tested by a file, because the commands that check open databases for reading.
    """
    tables = {name: f"[{name}]" for name in features if name in type(plan.config).model_fields}
    found: Findings = {
        "[storage]": await _storage_findings(databases, storage),
        "[server]": [*server_findings(plan.config), *(each for name in features.keys() - tables.keys() for each in features[name])],
        "[products]": [*product_findings(plan)],
        "[web]": [*web_findings(plan.config.web)],
        "environment": environment_findings(plan),
        "FastMCP": fastmcp_findings(),
        "OpenAPI": [*document_findings(plan)],
    }
    asked = {table: features[name] for name, table in tables.items()}
    return asked | {table: sentences for table, sentences in found.items() if sentences}


async def _storage_findings(databases: Databases, storage: Storage) -> Sequence[str]:
    refused = [] if databases.is_single_process else await _write_test("campus", storage, [CoreTables])
    try:
        return refused or await databases.findings()
    except CampusError as error:
        return [str(error)]


def document_findings(plan: Plan) -> Iterator[str]:
    """The documents that cannot be made. A server makes each when it is first read."""
    for make in plan.documents.values():
        try:
            make()
        except CampusError as error:
            yield str(error)


def server_findings(config: Config) -> Iterator[str]:
    """Settings in [server] that are dangerous or have no effect."""
    server = config.server
    if server.public_url is None and not is_loopback(server.host):
        yield f"callers from elsewhere are refused by their Host header; set public_url, since host is {server.host}"
    if server.admin and not is_loopback(server.admin.host):
        risk = "has no encryption, and no login for metrics; other machines may reach it: keep it behind a firewall"
        yield Warned(f"admin = {str(server.admin)!r} {risk}")
    if every := [proxy for proxy in server.trusted_proxies if proxy.endswith("/0")]:
        yield f"trusted_proxies has {every[0]}: every caller may claim any address; name your proxies only"


def fastmcp_findings() -> Sequence[str]:
    """That every call goes through FastMCP's server, where its release is one that does not let campus call tools itself."""
    if (reason := why_slow()) is None:
        return []
    release = f"this FastMCP, {fastmcp.__version__}, is not one that campus knows ({reason})"
    return [Warned(f"{release}: every call goes through its server, which takes several times as long; a newer campus may know it")]


def web_findings(web: WebTable) -> Iterator[str]:
    if exempt := ", ".join(sorted(web.allowed_hosts)):
        yield Warned(f"allowed_hosts lets callers make campus send requests to {exempt}; leave it empty except for tests and local use")


def product_findings(plan: Plan) -> Iterator[str]:
    """Products that open nothing, and products of a public service that nobody can buy and without a person to ask for them."""
    products = plan.config.products
    offers = [offer for one in plan.opened for offer in one.offers.values()]
    scopes = {ALL, *(one.table.scope or one.name for one in plan.closed), *(offer.scope for offer in offers)}
    if idle := [product.name for product in plan.products if product.scope not in scopes]:
        yield Warned(f"{', '.join(idle)} would open nothing: no open building has the scope")
    for name, product in products.items():
        yield from short_of_credits(name, product, offers)
    is_sold_by_call = plan.seller is not None and any(offer.access.sells for offer in offers)
    nowhere = [name for name, product in products.items() if product.url is None]
    is_unsold = not is_sold_by_call and not any(part.shop for part in plan.parts.values()) and plan.contact is None
    if nowhere and is_unsold and plan.config.server.public_url is not None:
        tables = ", ".join(f"[products.{name}]" for name in nowhere)
        yield (
            f'callers who need a key are not told where to buy {", ".join(nowhere)}; set url = "https://…" in {tables},'
            " open [buildings.checkout], or set contact in [seller], whom people then ask"
        )


def short_of_credits(name: str, product: ProductTable, offers: Sequence[Offer]) -> Iterator[str]:
    """A product whose credits pay for no call of a tool that its keys open."""
    if product.credits is None:
        return
    has = Price.parse(product.credits)
    opened = [one for one in offers if one.price and one.access.key == "opens" and product.scope in (one.scope, ALL)]
    if dear := [f"{one.tool} ({one.cost})" for one in opened if one.price and one.price > has]:
        yield Warned(f"credits = {product.credits!r} of [products.{name}] pay for no call of {_some_of(dear)}; set more of them")


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else ""
    return ", ".join(names[:MOST_NAMED]) + more


def shop_note(plan: Plan) -> str | None:
    """What a campus that sells still lacks so that a stranger can trust it; None if nothing, or if it sells nothing."""
    config = plan.config
    if not config.products and plan.seller is None:
        return None
    seller = getattr(config, "seller", None)
    alerts = any("alerts" in one.loaded.building.gives for one in plan.opened)
    in_seller = [key for key in ("name", "address", "contact", "terms") if getattr(seller, key, None) is None]
    lacks = [
        f"{', '.join(in_seller)} in [seller]" if in_seller else "",
        "" if config.url.startswith("https://") else "an https public_url in [server]",
        "" if getattr(config, "mail", None) or not alerts else "[mail], without which no alert goes to a mailbox",
    ]
    return f"this campus sells, and for buyers to trust it lacks: {'; '.join(filter(None, lacks))}" if any(lacks) else None


def environment_findings(plan: Plan) -> Sequence[str]:
    """Variables that are named like a secret of this campus and are read by nothing: a secret with a misspelt name would be missed."""
    config = plan.config
    secrets = {variable for one in plan.loaded for variable in secret_variables(one.name, one.building.settings).values()}
    of_features = {name: feature.variables for name, feature in installed_features().items() if feature.variables}
    known = sorted({*SECRETS, *secrets, *chain.from_iterable(of_features.values())})
    referred = references_in({"buildings": {name: {"server": table.server} for name, table in config.buildings.items()}})
    named = tuple(f"CAMPUS_{table}_".upper() for table in (*type(config).model_fields, *config.buildings, *of_features, "database"))
    failed = tuple(f"CAMPUS_{one.name}_".upper() for one in plan.closed if one.failure)  # whose settings nobody knows
    read = (*failed, *chain.from_iterable(part.reads for part in plan.parts.values()))
    unread = sorted(name for name in config.secrets.keys() - referred - set(known) if not name.startswith(read))
    strange = [one for one in unread if one.startswith(named) or get_close_matches(one, known, 1, LIKENESS)]
    return [Warned(f"nothing reads the variable {one}; the variables for secrets are: {', '.join(known)}") for one in strange]


def tool_findings(opened: OpenBuilding, *, are_sold: bool) -> Iterator[str]:
    """What is wrong with the tools of a building, or keeps clients from using them; `are_sold` where calls can be paid for."""
    yield from description_findings(opened)
    yield from name_findings(opened)
    yield from signature_findings(opened)
    yield from free_write_findings(opened)
    if are_sold:
        yield from unruled_findings(opened)


def unruled_findings(opened: OpenBuilding) -> Iterator[str]:
    """Tools that campus.toml sells although campus cannot tell which of their results are failures.

    An author who declares a price by access() knows campus, and raises what is no answer.
    """
    server = opened.loaded.table.server
    if server is None or (isinstance(server, dict) and "openapi" in server):  # an API says by its status which are
        return
    unruled = [
        name
        for name, tool in sorted(opened.tools.items())
        if opened.overrides.override_for(name).price is not None
        and opened.offers[name].is_sold_per_call
        and "fails_if" not in (tool.meta or {}).get(META, {})
    ]
    if unruled:
        yield (
            f"a result of {', '.join(unruled)} that reports a failure is charged as an answer: set fails_if in"
            f' [buildings.{opened.name}.tools], such as fails_if = "/error" for results with a member error, or "never" if the server marks'
            " every failure as an error"
        )


def free_write_findings(opened: OpenBuilding) -> Iterator[str]:
    """Tools that may change something and are free although neither their author nor campus.toml declares them free."""
    writing = [
        name
        for name, tool in sorted(opened.tools.items())
        if access_of(tool.meta) is None and opened.offers[name].access.is_free and not is_read_only(tool)
    ]
    if writing:
        yield (
            f"anyone may call {', '.join(writing)} for free: they are not annotated read-only and have no price;"
            f" set one in [buildings.{opened.name}.tools], or write free = true"
        )


def description_findings(opened: OpenBuilding) -> Iterator[str]:
    """Tools of an installed building without a description of their author's: campus shows the name or the title instead."""
    shown = {name: (tool.description or "").partition("\n\n")[0] for name, tool in opened.tools.items()}
    bare = sorted(name for name, text in shown.items() if text in (name, opened.tools[name].title))
    if bare and opened.loaded.table.server is None:
        how = "agents choose a tool by it, so write what it does and what comes back as its docstring"
        yield Warned(f"no description: {', '.join(bare)}; {how}")


def name_findings(opened: OpenBuilding) -> Iterator[str]:
    """Tools whose names some clients refuse, and some of these with them all tools of the server."""
    if refused := sorted(repr(name) for name in opened.tools if not NAME_FOR_CLIENTS.fullmatch(name)):
        clients = f"Claude Desktop, OpenAI's models and other clients refuse tools named {_some_of(refused)}"
        yield Warned(f"{clients}: a name may have 1 to 64 of the characters a-z, A-Z, 0-9, _ and -; rename them at their server")


def signature_findings(opened: OpenBuilding) -> Iterator[str]:
    """What the signatures of a building's functions leave unsaid to callers, each with the file and the line of the function.

    A stranger's server that is installed and named in campus.toml is left alone: who reads the finding cannot change it.
    """
    foreign = sysconfig.get_path("purelib") if opened.loaded.table.server is not None else None
    for name, tool in sorted(opened.tools.items()):
        if not isinstance(tool, FunctionTool) or (code := getattr(inspect.unwrap(tool.fn), "__code__", None)) is None:
            continue
        if foreign is not None and code.co_filename.startswith(foreign):
            continue
        function = inspect.signature(tool.fn)
        where = f"the tool {name} ({code.co_filename}:{code.co_firstlineno})"
        shown = {each: function.parameters[each] for each in tool.parameters.get("properties", {}) if each in function.parameters}
        if bare := [each for each, parameter in shown.items() if parameter.annotation is EMPTY]:
            yield Warned(f"{where} takes anything as {', '.join(bare)}: write type hints, which callers are held to")
        if function.return_annotation is EMPTY and code.co_name != "<lambda>":
            yield Warned(f"{where} does not say what it returns: write a type hint, so that callers get a schema")
        defaults = {each: parameter.default for each, parameter in shown.items()}
        if hidden := [each for each, value in defaults.items() if not (isinstance(value, FieldInfo) or _has_json(value))]:
            yield Warned(f"{where} has defaults that JSON cannot say: {', '.join(hidden)}; callers are not told them")


def _has_json(value: Any) -> bool:
    if value in (EMPTY, MISSING):  # callers may leave the argument out, or not, as its schema says
        return True
    try:
        to_json(value)
    except PydanticSerializationError:
        return False
    return True


async def table_findings(opened: OpenBuilding, site: Site[Any, Any]) -> Sequence[str]:
    """Differences between a building's tables in code and those that its migrations make, on which calls would fail."""
    if (tables := opened.loaded.building.tables) is None:
        return []
    try:
        if missing := await missing_from(site.storage, tables):
            return [f"in its database {missing}; {how_to_migrate(site.name)}"]
        from campus.storage.alembic_runner import drift  # 0.2 s

        found = await drift(site.storage, tables, site.name)
    except CampusError as error:  # the other buildings are checked all the same
        return [str(error)]
    return [f"its tables in code differ from those of its database ({found[0]}); {how_to_migrate(site.name)}"] if found else []


def readiness(
    plan: Plan,
    parts: Sequence[OpenFeature | OpenBuilding],
    sites: Mapping[str, Site[Any, Any]],
    storage: Storage,
    scheduler: Scheduler,
    services: ServiceRunner,
) -> Callable[[], Awaitable[Findings]]:
    """The checks of /readyz: every database accepts a write and has its tables, jobs and services run, and the buildings' own checks.

    The finding `storage` is about campus's own database, without which nothing can be answered for long. The database of a building
    is a finding of that building, because the others are answered without it; where no building is left, of `storage` too.
    """
    used = {one.name: (sites[one.name].storage, [tables]) for one in plan.opened if (tables := one.loaded.building.tables)}
    is_lost_with = {one.name for one in plan.opened if one.name in used and calls_write(one)}

    own_tables: list[type[SQLModel]] = [CoreTables, *feature_tables().values()]

    async def findings() -> Findings:
        failed = await _write_tests({"campus": (storage, own_tables), **used})
        own: Findings = {"storage": failed.pop("campus")}
        if all(one.name in is_lost_with and failed[one.name] for one in plan.opened):
            own["storage"] = [*own["storage"], *chain.from_iterable(failed.values())]
        own["jobs"] = [*scheduler.findings(), *([] if own["storage"] else await clock_findings(storage))]
        found = await run_checks(parts, sites, "ready")
        for name, sentences in (*failed.items(), *services.findings().items()):
            found[name] = [*sentences, *found.get(name, ())]
        if slow := fastmcp_findings():
            own["FastMCP"] = slow
        return own | found | {one.name: [*one.findings(), *found.get(one.name, ())] for one in plan.loaded if one.late or one.failure}

    return findings


async def clock_findings(storage: Storage) -> Sequence[str]:
    """Whether this machine's clock and that of the database's machine differ. Processes that share PostgreSQL share leases and schedules.

    The clock is the machine's own, also where tests set the campus's.
    """
    with anyio.move_on_after(CLOCK_SECONDS), suppress(CampusError):
        async with storage.read() as session:
            connection = await session.connection()
            if connection.dialect.name != "postgresql":
                return []
            before = utc_now()
            theirs = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
            ahead, behind = before - theirs, theirs - utc_now()
        if max(ahead, behind) > CLOCKS_APART:
            how = f"{ahead.total_seconds():.0f} s ahead of" if ahead > behind else f"{behind.total_seconds():.0f} s behind"
            return [f"this machine's clock is {how} that of the database's machine, so that jobs may run twice; set both by NTP"]
    return []


def calls_write(opened: OpenBuilding) -> bool:
    """True if at least half of the building's tools may write, which are all that are not annotated read-only.

    A building with fewer goes on answering most calls while its database takes no writes.
    """
    writing = [tool for tool in opened.tools.values() if not is_read_only(tool)]
    return bool(writing) and 2 * len(writing) >= len(opened.tools)


async def _write_tests(databases: Mapping[str, tuple[Storage, Sequence[type[SQLModel]]]]) -> Findings:
    found: Findings = {}

    async def test(name: str, storage: Storage, tables: Sequence[type[SQLModel]]) -> None:
        found[name] = await _write_test(name, storage, tables)

    async with anyio.create_task_group() as tasks:
        for name, database in databases.items():
            tasks.start_soon(test, name, *database)
    return found


async def _write_test(name: str, storage: Storage, tables: Sequence[type[SQLModel]]) -> Sequence[str]:
    try:
        with anyio.move_on_after(WRITE_SECONDS):
            await try_write(storage, tables)
            return []
    except CampusError as error:
        return [str(error)]
    return [f"the database of {name} did not accept a write within {WRITE_SECONDS:g} s; check what locks it"]
