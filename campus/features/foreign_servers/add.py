"""campus add NAME, campus add openapi URL: tries a server of a package index, or an API, and writes its table into campus.toml."""

import os
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from getpass import getpass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter

from campus.catalog.loader import installed_buildings, load
from campus.catalog.server import OpenBuilding, open_server, summary_of
from campus.cli.options import CAMPUS_TOML, ConfigFile, show
from campus.cli.places import building_name
from campus.config import NAME, config_of, reserved_names
from campus.errors import CampusError, ConfigError, LoadError, Unreachable
from campus.features.foreign_servers.environments import FOLDER, Environment, Package, environment_for, locked_in
from campus.features.foreign_servers.written import append_tables, text_of, toml_key, toml_value
from campus.pricing import Price
from twins import is_read_only

START_SECONDS = 60.0
PRICES = {True: "0.001", False: "0.005"}
"""What is suggested for a call of a tool that only reads, and of one that may change something, in US dollars."""
VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
MCP_2 = re.compile(r"^mcp==[2-9]", re.MULTILINE)
OF_MCP_1 = re.compile(r"\b(ImportError|ModuleNotFoundError|AttributeError|TypeError)\b")
"""How a server ends that was written for mcp 1 and does not say so in its requirements."""
app = App(name="add", version_flags=[])


@app.default
def add(
    package: Annotated[
        str | None,
        Parameter(help="Of PyPI, as x or x==1.2; of npm, as npm:x, npm:x@1.2 or @scope/x; or a file or folder, such as ./x."),
    ] = None,
    /,
    *arguments: Annotated[str, Parameter(help="What the server's command is started with; after -- if it begins with -.")],
    name: Annotated[str | None, Parameter(help="What to call the building; default: the package's name.")] = None,
    command: Annotated[str | None, Parameter(help="Which of the package's commands starts the server, if it has several.")] = None,
    env: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A variable of the environment that the server gets; campus.toml names it, without its value."),
    ] = (),
    extra: Annotated[
        tuple[str, ...], Parameter(name="--with", negative="", help='A further package or bound, such as "lxml" or "mcp<2".')
    ] = (),
    python: Annotated[str | None, Parameter(help="Which Python runs it: a version, for uv, or a path; default: that of campus.")] = None,
    price: Annotated[str | None, Parameter(help="US dollars for a call of any tool, instead of what is suggested.")] = None,
    free: Annotated[bool, Parameter(negative="", help="Everybody may call all of its tools.")] = False,
    locked: Annotated[bool, Parameter(negative="", help="Install what the locks say, of all buildings or of --name; add nothing.")] = False,
    yes: Annotated[bool, Parameter(negative="", help="Ask nothing, also on a terminal.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print what would be written; keep nothing.")] = False,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Install a server of PyPI or npm in an environment of its own, start it, list its tools, and write its table into campus.toml.

    The environment is in servers/NAME beside campus.toml, with a lock: `campus add --locked` installs the same on another machine. It
    is made by uv where it is installed, else by pip; npm's by npm. No value of a secret is written.
    """
    folder = config.resolve().parent / FOLDER
    if locked:
        _install_locked(folder, name)
        return
    if package is None:
        raise ConfigError("name the package of a server, or --locked to install what was added elsewhere")
    wanted = Package.parse(package)
    building = name or building_name(wanted.short_name)
    check_is_new(building, config)
    price = read_price(price, is_free=free)
    with ExitStack() as stack:
        if dry_run:
            folder = Path(stack.enter_context(TemporaryDirectory()))
        server = NewServer(building, config, wanted, folder / building)
        server.install(extra, python)
        server.choose(command, arguments)
        opened = server.tried(env, asks=not yes and sys.stdin.isatty())
        prices = prices_of(opened, price, is_free=free)
        table = f"{server.table}{tools_table(building, prices)}"
        if dry_run:
            print(table.replace(f"{folder}/", f"./{FOLDER}/"))
            return
        append_tables(config, table)
    print(*server.report(opened), sep="\n")


def read_price(text: str | None, *, is_free: bool) -> str | None:
    if text is not None and is_free:
        raise ConfigError("--free and --price contradict each other; give one of them")
    try:
        return None if text is None else str(Price.parse(text))
    except ValueError as error:
        raise ConfigError(f"--price: {error}") from None


def check_is_new(building: str, config: Path) -> None:
    """ConfigError if campus.toml has the building, or cannot have one of this name."""
    if not re.fullmatch(NAME, building) or building in reserved_names():
        raise ConfigError(f"{building!r} cannot name a building; choose lower-case letters, digits and _, a letter first, with --name")
    if building in tomllib.loads(text_of(config)).get("buildings", {}):
        raise ConfigError(
            f"[buildings.{building}] is in {config} already; choose another name with --name, or take that table and"
            f" {FOLDER}/{building} away first; `campus add --locked` installs what it needs"
        )


def _install_locked(folder: Path, name: str | None) -> None:
    locks = [one for one in locked_in(folder) if name in (None, one.lock.parent.name)]
    if not locks:
        raise LoadError(f"there is no lock in {folder / (name or '')}; `campus add PACKAGE` writes one")
    for one in locks:
        print(f"installing {one.lock}", flush=True)
        one.install()


class NewServer:
    """A server that is being added."""

    def __init__(self, building: str, config: Path, package: Package, folder: Path) -> None:
        self._building = building
        self._config = config
        self._package = package
        self._folder = folder
        self._server: dict[str, object] = {}
        self._wanted: Sequence[str] = ()
        self._is_bound = False
        self._environment: Environment

    def install(self, extra: Sequence[str], python: str | None) -> None:
        """Make its environment: from the lock of the same package if there is one, with the versions that were added elsewhere."""
        self._wanted = [self._package.wanted, *extra]
        self._environment = environment_for(self._folder, is_npm=self._package.is_npm, python=python)
        is_new = not self._folder.exists()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / ".gitignore").write_text(".venv/\nnode_modules/\n", encoding="utf-8")
        except OSError as error:
            raise LoadError(f"{self._folder} cannot be written: {error.strerror}") from None
        print(f"installing {self._package.wanted} in {self._folder}", flush=True)
        try:
            if self._environment.wanted != " ".join(self._wanted):
                self._environment.resolve(self._wanted)
            self._environment.install()
        except CampusError:
            if is_new:
                shutil.rmtree(self._folder)
            raise

    def choose(self, command: str | None, arguments: Sequence[str]) -> None:
        """Which of the package's commands starts the server; LoadError if that is not clear."""
        there = self._environment.commands(self._package)
        alike = [each for each in there if _letters(each) == _letters(self._package.name.rpartition("/")[2])]
        named = [command] if command else (alike or list(there))
        if len(named) != 1 or named[0] not in there:
            found = f"its commands are: {', '.join(sorted(there))}; name one with --command" if there else "it has no command"
            raise LoadError(f"{self._package.name} does not say which command starts its server: {found}")
        path, home = there[named[0]], self._config.resolve().parent
        name = f"./{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
        self._server = {"command": name} | ({"args": list(arguments)} if arguments else {})

    @property
    def table(self) -> str:
        """Its table in campus.toml, but for its tools."""
        return f"\n[buildings.{self._building}]  # {self._package.wanted}\nserver = {toml_value(self._server)}\n"

    def tried(self, variables: Sequence[str], *, asks: bool) -> OpenBuilding:
        """The building as campus serves it. LoadError, with what the server wrote, if it does not answer."""
        values = {name: os.environ.get(name, "") for name in variables}
        if unset := [name for name, value in values.items() if not value]:
            raise ConfigError(f"the environment has no {unset[0]}, which --env names; set it for this command and for `campus serve`")
        while True:
            if values:
                self._server["env"] = {name: f"${{{name}}}" for name in values}
            try:
                return anyio.run(opened_building, self._building, tomllib.loads(self.table), self._config, {**os.environ, **values})
            except Unreachable as error:
                message = str(error)
            if self._has_other_mcp_now(message):
                continue
            named = [each for each in dict.fromkeys(VARIABLE.findall(message)) if each not in values]
            given = _asked(named) if asks else {}
            if not given:
                raise LoadError(self._start_failure(message, named))
            values |= given

    def _has_other_mcp_now(self, error: str) -> bool:
        """Installs mcp 1 for a server that seems to need it, which its package does not say, and returns True; else False."""
        has_mcp_2 = not self._package.is_npm and MCP_2.search(self._environment.lock.read_text(encoding="utf-8"))
        if self._is_bound or not has_mcp_2 or not OF_MCP_1.search(error):
            return False
        self._is_bound = True
        print("it does not start with mcp 2, which its package allows; installing mcp 1 for it", flush=True)
        self._environment.resolve(self._wanted, bounds=["mcp<2"])
        self._environment.install()
        return True

    def _start_failure(self, error: str, named: Sequence[str]) -> str:
        hint = f"it names {', '.join(named)}: if it needs them, set them and add {' '.join(f'--env {each}' for each in named)}"
        words = f"nothing is written into {self._config}; {self._folder} is kept for the next try"
        return "\n".join([f"{self._package.wanted} does not start as a server", error, *([hint] if named else []), words])

    def report(self, opened: OpenBuilding) -> Sequence[str]:
        """What was done, and what is next."""
        variables = self._server.get("env")
        return [
            f"[buildings.{self._building}] is in {self._config}: {len(opened.tools)} tools. `campus serve` serves it at {opened.mcp_path}",
            f"keep {self._environment.lock} with {self._config}: `campus add --locked` installs the same elsewhere",
            *([f"`campus serve` needs in its environment: {', '.join(map(str, variables))}"] if isinstance(variables, dict) else []),
        ]


async def opened_building(name: str, tables: Mapping[str, Any], path: Path, environ: Mapping[str, str]) -> OpenBuilding:
    """The building as campus serves it, if its campus.toml had these tables."""
    config = config_of(tables, path, environ)
    loaded = load(name, config.buildings[name], config.secrets, installed_buildings(), folder=config.folder, is_local=config.is_local)
    return await open_server(loaded, per_call=True, seconds=START_SECONDS)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _asked(names: Sequence[str]) -> Mapping[str, str]:
    """The values of these variables, asked for on the terminal; none of those that are not to be given."""
    given: dict[str, str] = {}
    for name in names:
        if name in os.environ:
            print(f"the server names {name}, which this environment has; give it to the server? [y/N] ", end="", flush=True)
            value = os.environ[name] if sys.stdin.readline().strip().lower() in ("y", "yes") else ""
        else:
            value = getpass(f"the server names {name}; its value, which is not written anywhere (empty: none): ")
        given |= {name: value} if value else {}
    return given


def prices_of(opened: OpenBuilding, price: str | None, *, is_free: bool) -> Mapping[str, str | None]:
    """The price of each tool, by its name, shown to the operator: this one, or else what is suggested; None where it is free."""
    tools = opened.tools.values()
    prices = {tool.name: None if is_free else price or PRICES[is_read_only(tool)] for tool in tools}
    rows = [{"reads only": "yes" if is_read_only(tool) else "no", "price": prices[tool.name] or "free"} for tool in tools]
    shown = zip(tools, rows, strict=True)
    show([{"tool": tool.name, **row, "about": summary_of(tool)[:60]} for tool, row in shown], as_json=False)
    return prices


def tools_table(building: str, prices: Mapping[str, str | None]) -> str:
    """The table of the tools: the price of most for all, also for those that come later, and that of the tools that differ."""
    if not prices:
        return ""
    usual = Counter(prices.values()).most_common(1)[0][0]
    rows = {"*": usual} | {name: price for name, price in prices.items() if price != usual}
    lines = [f"{toml_key(name)} = {toml_value({'price': price}) if price else '{ free = true }'}\n" for name, price in rows.items()]
    return f"\n[buildings.{building}.tools]\n{''.join(lines)}"


@app.command
def openapi(
    document: Annotated[str, Parameter(help="The OpenAPI document, 3.0 or 3.1, JSON or YAML: its address, or a file.")],
    /,
    *,
    name: Annotated[str | None, Parameter(help="What to call the building; default: the API's title.")] = None,
    base_url: Annotated[str | None, Parameter(help="Where the API is, if its document does not say so.")] = None,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative="", help='A header of each call, as "X-Api-Key: ${PETS_KEY}": campus.toml names the variable, not its value.'),
    ] = (),
    price: Annotated[str | None, Parameter(help="US dollars for a call of any operation, instead of what is suggested.")] = None,
    free: Annotated[bool, Parameter(negative="", help="Everybody may call all of its operations.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print what would be written.")] = False,
    config: ConfigFile = CAMPUS_TOML,
) -> None:
    """Write the table of an API into campus.toml, whose operations become tools and routes, with a suggested price for each.

    Its document is read, and no operation is called. No value of a secret is written.
    """
    price = read_price(price, is_free=free)
    server: dict[str, object] = {"openapi": document if "://" in document else os.path.relpath(document, config.resolve().parent)}
    server |= ({"base_url": base_url} if base_url else {}) | ({"headers": dict(map(_read_header, header))} if header else {})
    tables = {"server": tomllib.loads(text_of(config)).get("server", {}), "buildings": {name or "api": {"server": server}}}
    opened = anyio.run(opened_building, name or "api", tables, config, os.environ)
    building = name or building_name(opened.server.name)
    check_is_new(building, config)
    prices = prices_of(opened, price, is_free=free)
    table = f"\n[buildings.{building}]\nserver = {toml_value(server)}\n{tools_table(building, prices)}"
    if dry_run:
        print(table)
        return
    append_tables(config, table)
    print(f"[buildings.{building}] is in {config}: {len(opened.tools)} tools. `campus serve` serves them at /v1/{building}/…")


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon and value.strip()):
        raise ConfigError('--header is written as "X-Api-Key: ${PETS_KEY}"')
    return name.strip(), value.strip()
