"""campus serve, run, check, audit, tools and migration: the commands that open a campus or its buildings."""

import gc
import inspect
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number
from sqlmodel import SQLModel

from campus.app import Campus, assemble, open_servers
from campus.asgi import open_admin, open_app
from campus.building import Job
from campus.catalog.loader import find, installed_buildings
from campus.catalog.plan import make_plan
from campus.checks import shop_note
from campus.cli.local_key import announce
from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import Place, read_place
from campus.cli.processes import own_group
from campus.config import Config
from campus.core import feature_tables, open_databases
from campus.errors import CampusError, ConfigError, JobRefused, LoadError
from campus.feature import named
from campus.http.protocol import CONNECTIONS
from campus.http.server import bind, connections_allowed, inherited_listener
from campus.http.server import serve as serve_app
from campus.installed import installed_features, place_of
from campus.observability.logs import LogFormat, LogLevel, log_to_stderr
from campus.observability.metrics import Metrics
from campus.storage.tables import CoreTables

log = logging.getLogger(__name__)

NEW_OBJECTS = 10_000
"""The garbage collector runs after this many new objects. Python's default of 700 to 2,000 costs a tenth of a call's time."""
SWITCH_SECONDS = 0.0005
"""How long one thread keeps the interpreter from another that waits for it. A database's thread waits so at each statement and row:
beside a thread that computes a transaction of 64 beats takes 52 ms with Python's default of 0.005, and 8 ms with this."""


def serve(
    place: Place = None,
    /,
    *,
    host: Annotated[str | None, Parameter(help="The address to listen on; default: that of campus.toml.")] = None,
    port: Annotated[int | None, Parameter(help="The port to listen on; default: that of campus.toml.")] = None,
    admin: Annotated[str | None, Parameter(help="Where metrics and readiness are shown, such as 127.0.0.1:9100, or off.")] = None,
    workers: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="How many processes serve, on PostgreSQL; SIGHUP reloads them, refusing no call."),
    ] = None,
    config: ConfigFile = CAMPUS_TOML,
    access_log: Annotated[bool, Parameter(negative="", help="Log a line per request; it costs as much as a small answer.")] = False,
    log_level: Annotated[LogLevel, Parameter(help="The least important lines to log; debug adds runs of jobs that did nothing.")] = "info",
    log_format: Annotated[LogFormat, Parameter(help="text, or json: an object per line, for collectors of logs.")] = "text",
) -> None:
    """Serve the buildings that campus.toml names, or a FastMCP server in one file, until interrupted."""
    log_to_stderr(log_level, log_format=log_format, requests=access_log)
    config = place or config

    def read() -> Config:
        return read_place(config).serving_at(host, port, admin=admin)

    logged = ("--log-level", log_level, "--log-format", log_format)
    if workers:
        supervisors = [each.supervisor for each in installed_features().values() if each.supervisor]
        if not supervisors:
            raise ConfigError("--workers needs a feature that supervises processes, and none is installed")
        named(supervisors[0])(workers, config, read, [*logged, *(["--access-log"] if access_log else [])])
        return
    settings = read()
    served = partial(serve_campus, announces=True, closes_failed=True)
    anyio.run(served, settings, partial(job_command, config, settings, logged), backend_options={"use_uvloop": True})


async def serve_campus(
    settings: Config,
    job_command: Callable[[str], Sequence[str]],
    *,
    listener: socket.socket | None = None,
    operators: socket.socket | None = None,
    on_serving: Callable[[Campus], None] = lambda _: None,
    metrics: Metrics | None = None,
    announces: bool = False,
    closes_failed: bool = False,
) -> None:
    """Open a campus and serve it until a signal, on these sockets, or else on systemd's and at the addresses of campus.toml.

    With `closes_failed`, a building whose own code cannot be loaded is closed, and the others are served.
    """
    if (allowed := connections_allowed()) < CONNECTIONS:  # before anything is opened
        log.warning("fewer connections are served than campus can: raise the limit of open files", extra={"connections": allowed})
    with ExitStack() as sockets:
        listener = sockets.enter_context(listener or inherited_listener() or bind(settings.server.host, settings.server.port))
        if settings.server.admin:
            operators = sockets.enter_context(operators or bind(*settings.server.admin, key="admin"))
        async with (
            assemble(settings, exclusive=True, job_command=job_command, metrics=metrics, closes_failed=closes_failed) as campus,
            open_app(campus) as app,
            anyio.create_task_group() as tasks,
        ):
            log.info(
                "campus opened",
                extra={
                    "version": version("mcp-campus"),
                    "process_name": campus.scheduler.name,
                    "buildings": ",".join(settings.buildings),
                    "database": campus.core.databases.place_of("campus"),
                },
            )
            if announces:
                await announce(campus.plan, campus.core)
            tasks.start_soon(campus.run_jobs)
            tasks.start_soon(campus.run_services)

            def started() -> None:
                tasks.start_soon(_settle, campus)
                on_serving(campus)

            if operators:
                proxies = settings.operators_proxies
                served = partial(serve_app, trusted_proxies=proxies, name="operator", grace_seconds=1, takes_signals=False)
                tasks.start_soon(served, open_admin(campus), operators)
            await serve_app(
                app,
                listener,
                trusted_proxies=settings.server.trusted_proxies,
                on_started=started,
                on_stopping=campus.stopping.set,
                requests=campus.metrics.requests,
            )
            tasks.cancel_scope.cancel()


async def _settle(campus: Campus) -> None:
    """Load the rest, let threads take turns sooner, and exempt all objects from garbage collection: calls rarely leave cycles."""
    sys.setswitchinterval(SWITCH_SECONDS)
    await campus.warm()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def job_command(file: Path, settings: Config, logged: Sequence[str], name: str) -> Sequence[str]:
    """The command by which a server runs a job in a process of its own, with the server's own address and log."""
    place = ("--host", settings.server.host, "--port", str(settings.server.port))
    return own_group("job-process", name, "--config", str(file), *place, *logged)


def run(
    job: Annotated[str, Parameter(help="BUILDING.JOB, such as cve.refresh.")],
    /,
    *options: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="The job's own options; `campus run BUILDING.JOB -- --help` lists them.")
    ],
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Run a job once, now, with or without a running server."""
    log_to_stderr("info")
    try:
        anyio.run(_run, config, job, options)
    except CampusError:  # its sentence is enough
        raise
    except Exception:  # a fault in a building's code
        log.exception("job failed", extra={"job": job})
        sys.exit(1)


async def _run(file: ConfigFile, name: str, words: tuple[str, ...]) -> None:
    config = read_place(file)
    plan = await make_plan(config, installed_buildings())
    job = plan.jobs.get(name)
    if job is None:
        raise JobRefused(f"there is no job {name!r}; the jobs are: {', '.join(sorted(plan.jobs)) or 'none'}")
    options = parsed_options(name, job, words)  # before a database is opened
    async with assemble(config, exclusive=False, plan=plan) as campus:
        await campus.run_job(name, **options)


def parsed_options(name: str, job: Job, words: tuple[str, ...]) -> dict[str, Any]:
    """The job's options from its signature: `--day 2026-11-20 --accept`; `-- --help` lists them, and ends the command."""
    capture = _capturing(job.run)
    app = App(name=f"campus run {name}", default_command=capture, result_action="return_value")
    try:
        result = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        there_are = ", ".join(f"--{option.replace('_', '-')}" for option in capture.__annotations__) or "none"
        raise JobRefused(f"{name}: {str(error).rstrip('.')}; its options are: {there_are}") from None
    if result is None:
        sys.exit(0)
    assert isinstance(result, dict)
    return result


def _capturing(run: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A function with the job's parameters, except the site, that returns its arguments."""

    def capture(**options: Any) -> dict[str, Any]:
        return options

    signature = inspect.signature(run, eval_str=True)
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in list(signature.parameters.values())[1:]]
    vars(capture)["__signature__"] = signature.replace(parameters=parameters, return_annotation=dict)
    capture.__annotations__ = {one.name: one.annotation for one in parameters}
    capture.__doc__ = run.__doc__
    return capture


def check(
    place: Place = None,
    /,
    *,
    config: ConfigFile = CAMPUS_TOML,
    strict: Annotated[bool, Parameter(negative="", help="Fail for warnings too, such as a tool without a description.")] = False,
    as_json: AsJson = False,
) -> None:
    """Report what is wrong with the configuration, the database and what the buildings depend on; exit code 1 if there are errors."""
    report(anyio.run(ask, place or config, "check"), as_json=as_json, strict=strict)


def audit(*, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Check the stored data for consistency; exit code 1 when anything is inconsistent."""
    report(anyio.run(ask, config, "audit"), as_json=as_json)


def migrate(
    *,
    contract: Annotated[
        bool, Parameter(negative="", help="Run also the steps with which servers of the release before cannot serve; stop those first.")
    ] = False,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Bring every database to the installed release, as its first server does; the log says what is done, and what waits for --contract.

    On PostgreSQL, servers of the release before go on serving, except with --contract; a server on SQLite must be stopped first.
    """
    log_to_stderr("info")
    anyio.run(_migrate, read_place(config), contract)


async def _migrate(config: Config, contract: bool) -> None:
    tables = await tables_of(config)
    async with open_databases(config, exclusive=True, migrates=True, contracts=contract) as databases:
        await databases.check(tables)
        await databases.refuse_lost("campus", others=config.buildings)
        for name, each in tables.items():
            await databases.storage_of(name, each)


async def tables_of(config: Config) -> dict[str, type[SQLModel]]:
    """The tables of campus itself and of the buildings of campus.toml, by the names of their databases."""
    plan = await make_plan(config, installed_buildings())
    return {
        "campus": CoreTables,
        **feature_tables(),
        **{one.name: one.loaded.building.tables for one in plan.opened if one.loaded.building.tables},
    }


def report(found: list[dict[str, str]], *, as_json: bool, strict: bool = False) -> None:
    """Print findings, and notes to standard error; exits with code 1 if there are errors, or where it is `strict` warnings."""
    grave = [row for row in found if row["severity"] != "note"]
    if grave or as_json:
        show(found if as_json else grave, as_json=as_json)
    else:
        print("all is well")
    for row in found:
        _print_note(row["problem"] if row["severity"] == "note" and not as_json else None)
    if any(strict or row["severity"] == "error" for row in grave):
        sys.exit(1)


async def ask(config: ConfigFile, on: str) -> list[dict[str, str]]:
    async with assemble(read_place(config), exclusive=False, reading=True, closes_failed=on == "check") as campus:
        rows = [
            {"building": name, "severity": getattr(sentence, "severity", "error"), "problem": sentence}
            for name, sentences in (await campus.ask(on)).items()
            for sentence in sentences
        ]
        if on == "check":
            backup = campus.core.databases.backup_note() if campus.plan.config.server.public_url else None
            notes = {
                **{f"[{name}]": part.note for name, part in campus.plan.parts.items()},
                "[storage]": backup,
                "[seller]": shop_note(campus.plan),
            }
            rows += [{"building": table, "severity": "note", "problem": note} for table, note in notes.items() if note]
        return rows


def _print_note(note: str | None) -> None:
    """What is no mistake, and is often overlooked; not among the rows, which programs read."""
    if note is not None:
        print(f"note: {note}", file=sys.stderr)


def tools(place: Place = None, /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """List every tool of every building with its route, tier and price; opens no database."""
    plan = anyio.run(open_servers, read_place(place or config))
    rows = [
        {
            "building": entry.name,
            "tool": tool.name,
            "tier": tool.tier,
            "price": tool.price,
            "scope": tool.key_scope,
            "http": tool.http if as_json else ", ".join(tool.http),
        }
        for entry in plan.directory.buildings()
        for tool in entry.tools
    ]
    show(rows, as_json=as_json)
    for part in plan.parts.values():
        _print_note(part.note)


def migration(
    building: Annotated[str, Parameter(help="The name of an installed building.")],
    text: Annotated[str, Parameter(help="What the step does, in a few words.")],
    /,
) -> None:
    """Write the next step of a building's database history from its tables; read it before you commit it."""
    from campus.storage.alembic_runner import write_revision

    name = building.removeprefix("campus.")  # as a feature's history is called
    feature = installed_features().get(name)
    tables = feature.table_base if feature else find(building, installed_buildings()).tables
    if tables is None:
        raise LoadError(f"building {building!r} has no tables=, so there is nothing to migrate")
    print(write_revision(tables, place_of(name) if feature else building, text))
