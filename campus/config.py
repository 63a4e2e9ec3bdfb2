"""Reads campus.toml into frozen tables; [server], [products] and [buildings] are here, the others in config_tables.py.

An unknown key is an error that lists the known ones.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Self, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from campus.addresses import (
    LOOPBACK_PROXIES,
    Listen,
    is_loopback,
    read_listen,
    read_listening_host,
    read_network,
    read_origin,
    read_shop,
    url_host,
)
from campus.colours import Accent, read_accent
from campus.config_tables import (
    PriceText,
    StorageTable,
    WebTable,
)
from campus.errors import ConfigError, LoadError
from campus.feature import Settings
from campus.installed import OpenFeature, feature_paths, installed_features, written_servers
from campus.keys.allowances import Allowance, Meter, Per
from campus.keys.sales import Term
from campus.pricing import Price, read_access

NAME = r"^[a-z][a-z0-9_]*$"
RESERVED = frozenset(
    {
        *(".well-known", "all", "campus", "errors", "healthz", "mcp", "metrics", "openapi", "readyz", "register", "static", "v1"),
    }
)
"""The names with which the core's own addresses begin."""
Exposed = Literal["resources", "prompts", "routes", "methods"]
Grant = Literal["keys"]
SERVER_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")
REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
"""In the server of a building: what the environment has under this name."""
HOW_TO_WRITE = {
    "write a list, in [ and ]": ("tuple_type", "frozen_set_type", "list_type", "set_type"),
    "write a table": ("dict_type", "model_type", "model_attributes_type"),
    "write a text, in quotes": ("string_type",),
    "write a whole number": ("int_type", "int_parsing", "int_from_float"),
    "write a number": ("float_type", "float_parsing"),
    "write true or false": ("bool_type", "bool_parsing"),
    "write a date, such as 2026-08-19": ("date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"),
}
"""What to do about a value of the wrong type, by pydantic's types of errors."""
EVERY_HOST = ("0.0.0.0", "::")  # noqa: S104  # compared with, not listened on


def _read_admin(address: Any) -> Listen | None:
    if address is None or address == "off":
        return None
    return address if isinstance(address, Listen) else read_listen(str(address))


def _read_colour(colour: Any) -> Accent | None:
    return colour if colour is None or isinstance(colour, Accent) else read_accent(str(colour))


DirectMode = Literal["on", "off", "explain"]


class ServerTable(Settings):
    """[server]: the service's name and addresses."""

    name: str = Field(default="campus", min_length=1, max_length=60)
    """The service's name on its pages and in its documents."""
    title: str = Field(default="Tools for you and for your agents", min_length=1, max_length=100)
    """The heading of the start page, and its title."""
    tagline: str = Field(
        default="Each tool is a page for you and a call for your AI agent. There are no accounts.", min_length=1, max_length=300
    )
    """The sentence below that heading, which search engines show too: say to somebody who knows no acronym what there is."""
    logo: str | None = Field(default=None, pattern=r"\.(svg|png)$", examples=["logo.svg"])
    """An SVG or PNG file, relative to campus.toml, beside the name on every page; it is shown 28 pixels high."""
    colour: Annotated[Accent | None, BeforeValidator(_read_colour)] = None
    """The colour of links and buttons, such as "#0b5cad", on pages and in e-mails; a shade of it that can be read is used on dark pages."""
    templates: str | None = Field(default=None, examples=["templates"])
    """A folder beside campus.toml, whose files replace the templates of the same names: home.html is the start page; see pages.md."""
    public_url: Annotated[str, AfterValidator(read_origin)] | None = None
    """The address that callers use, such as https://campus.example; default: http://host:port."""
    host: Annotated[str, AfterValidator(read_listening_host)] = "127.0.0.1"
    """The address to listen on: `0.0.0.0` is every IPv4 network, `::` every network of both families."""
    port: int = Field(default=8000, ge=1, le=65535)
    """The port to listen on."""
    openapi: str = "cve"
    """The building whose document /openapi.json is."""
    admin: Annotated[Listen | None, BeforeValidator(_read_admin)] = None
    """The operator's listener, for metrics and the details of /readyz; `off` is the same as leaving it out."""
    trusted_proxies: tuple[Annotated[str, AfterValidator(read_network)], ...] = LOOPBACK_PROXIES
    """Proxies in front of campus, whose headers about the caller's address and scheme are trusted."""
    direct_mcp: DirectMode = "on"
    """Whether plain MCP requests are answered without the MCP server; `explain` also says which way each took, in a header."""
    job_niceness: int = Field(default=19, ge=0, le=19)
    """How much the processes of jobs, such as the refresh, give way to calls: at 19 they delay them least, at 0 they share equally."""

    @model_validator(mode="after")
    def listens_once_at_an_address(self) -> Self:
        if self.admin is not None and self.admin.port == self.port and self.host in (self.admin.host, *EVERY_HOST):
            raise ValueError("admin and port are the same address; set a different one for each")
        return self


MOST_CALLS_OF_A_KEY = 10**12


class ProductTable(Settings):
    """[products.NAME]: a key that can be bought."""

    scope: str
    """The scope of the buildings that it opens; `all` opens every one, also those opened later."""
    price: PriceText
    """US dollars, such as "19" or "0.50"."""
    term: str
    """How long a key is valid: "30 days" or "12 months"."""
    calls: int | None = Field(default=None, ge=1, le=MOST_CALLS_OF_A_KEY)
    """The allowance: how many calls a key opens in each period `per`, before its `credits` pay. Without both it opens any number."""
    per: Per = "month"
    """The period of `calls`: a calendar day or month, in UTC."""
    credits: PriceText | None = None
    """US dollars that its key spends on calls of tools with a price, at that price. Each purchase and renewal adds as much."""
    title: str = Field(default="", max_length=60)
    """What people read for it, such as "Team pass"; default: its name in words."""
    description: str = Field(default="", max_length=300)
    """Whom it is for, in a sentence, for its card on /pricing."""
    url: Annotated[str, AfterValidator(read_shop)] | None = None
    """Where a person buys it: a checkout page."""
    recommended: bool = False
    """True marks its card on /pricing, of one product at most."""

    @property
    def allowance(self) -> Allowance | None:
        """How many calls a key opens in a period; None without a bound."""
        return None if self.calls is None else Allowance(self.calls, self.per)

    @property
    def meter(self) -> Meter | None:
        """What a key's calls take from it; None if it opens any number of calls."""
        return Meter(self.allowance, self.credits is not None) if self.calls or self.credits else None

    @model_validator(mode="after")
    def has_calls_for_a_period(self) -> Self:
        if self.calls is None and "per" in self.model_fields_set:
            raise ValueError(f'per = "{self.per}" is the period of calls; add calls = 10000, or remove per')
        return self

    @field_validator("price", "credits")
    @classmethod
    def is_a_price(cls, text: str | None) -> str | None:
        return None if text is None else str(Price.parse(text))

    @field_validator("term")
    @classmethod
    def is_a_term(cls, text: str) -> str:
        return str(Term.parse(text))


LARGEST_BODY = 1024 * 1024
LARGEST_WHOLE_BODY = 20 * 1024 * 1024
"""Of a body that is one argument as it stands, such as a file, of a caller whose key opens the tool."""
"""The bytes of the largest body that campus reads."""


class ToolTable(Settings):
    """[buildings.NAME.tools] PATTERN = {…}: the operator's settings for the tools that match the pattern."""

    price: PriceText | dict[str, PriceText] | None = None
    """US dollars for one call; or { base = "0.01", per = "ids", each = "0.0002" }: the base, and so much for each member of a list, or each
    one of a whole number, that the argument `per` has."""
    key: Literal["opens", "optional", "never"] | None = None
    """Whether a key opens the tool, adds to what it answers, or does nothing, so that each call is paid for."""
    scope: str | None = None
    """The scope of the keys that open it, instead of the building's."""
    free: bool = False
    """True makes it free, whatever its author asks for it."""
    hidden: bool = False
    """True leaves it out: no caller sees or calls it."""
    route: str | None = None
    """Its HTTP route, such as "GET /v1/dice/{sides}"."""
    body_limit: int | None = Field(default=None, ge=1, le=LARGEST_BODY)
    """The bytes that the body of a call may have, instead of what the tool declares (65,536 if it declares nothing)."""
    fails_if: str | dict[str, Any] | None = None
    """Which results are failures, and not charged: those in which a JSON pointer leads to something; {at, equals}, {at, matches}; never."""

    @property
    def says_access(self) -> bool:
        """True if it overrides the author's price and key rule."""
        return self.free or self.price is not None or self.key is not None

    def model_post_init(self, context: object, /) -> None:
        read_access(self.model_dump(include={"price", "key", "free", "fails_if"}, exclude_none=True))


ANSWER_LIMIT = 1024 * 1024
"""The bytes that another server may send in one call: as many as mcp takes for one event of a stream."""


def _is_server(value: Any) -> Any:
    if value is not None and not isinstance(value, str | dict):
        raise ValueError(f"write {written_servers()}")
    return value


class BuildingTable(BaseModel):
    """[buildings.NAME]: opens a building; keys beyond these are the building's own settings."""

    model_config = ConfigDict(frozen=True, extra="allow")

    path: str | None = Field(default=None, pattern=r"^/([a-z0-9_-]+)?$", examples=["/tides"])
    """Where it is served over MCP: /tides/mcp for "/tides"; default: its name."""
    scope: str | None = None
    """The scope of the keys that open it; default: its name."""
    title: str | None = Field(default=None, min_length=1, max_length=100)
    """What people read for its name, in the directory, on pages and in clients; default: what its server says."""
    about: str | None = Field(default=None, min_length=1)
    """What it does, in the directory and on pages; default: what its server says of itself, else the names of its tools."""
    server: Annotated[str | dict[str, Any] | None, BeforeValidator(_is_server)] = None
    """A FastMCP server that is no installed building: "./file.py:server", "module:server", {command = "…"}, {url = "https://…/mcp"} or, for
    an API, {openapi = "https://…/openapi.json"}."""
    answer_limit: int = Field(default=ANSWER_LIMIT, ge=1024, le=256 * ANSWER_LIMIT)
    """The bytes that a server behind {command = "…"} or {url = "…"} may send in one call, and for its whole list of tools; and those of an
    API's answer, and of its document."""
    expose: tuple[Exposed, ...] = ()
    """What callers reach besides tools, all closed by default: `resources`, `prompts`, `routes`, `methods`. No price guards it."""
    sessions: bool = False
    """Clients of versions with a handshake keep a session in this process, in which tools may ask them."""
    grants: tuple[Grant, ...] = ()
    """Extra permissions of the building: `keys` lets it sell keys."""
    tools: dict[str, ToolTable] = {}
    """Settings for single tools, by patterns of their names; the most specific pattern counts."""

    @property
    def settings(self) -> dict[str, Any]:
        """The building's own keys."""
        return dict(self.model_extra or {})


class Config(Settings):
    """The whole of campus.toml."""

    server: ServerTable = ServerTable()
    storage: StorageTable = StorageTable()
    products: dict[str, ProductTable] = Field(default_factory=dict)
    buildings: dict[Annotated[str, Field(pattern=NAME)], BuildingTable] = Field(default_factory=dict)
    web: WebTable = WebTable()
    folder: Path = Field(default=Path(), exclude=True)
    secrets: Mapping[str, SecretStr] = Field(default={}, exclude=True)
    is_locked: bool = Field(default=False, exclude=True)
    """True under `campus dev`, which holds the lock of the data: while one version takes over from another, both serve."""
    is_authors: bool = Field(default=False, exclude=True)
    """True under `campus dev` and in campus.testing: who is told what a tool returned, and not what it publishes, is its author."""

    @property
    def meters(self) -> dict[str, Meter | None]:
        """What calls take from a key, by its product; None for those whose keys open any number of calls."""
        return {name: table.meter for name, table in self.products.items()}

    @model_validator(mode="after")
    def has_its_files(self) -> Self:
        if self.logo and not self.logo.is_file():
            raise ValueError(f"server.logo: there is no file {self.logo}")
        if self.templates and not self.templates.is_dir():
            raise ValueError(f"server.templates: there is no folder {self.templates}")
        return self

    @model_validator(mode="after")
    def recommends_one_product(self) -> Self:
        if len(found := [name for name, table in self.products.items() if table.recommended]) > 1:
            raise ValueError(f"products: {' and '.join(found)} are recommended; leave one of them so")
        return self

    def locked(self) -> Self:
        """The same for a process whose parent, `campus dev`, holds the lock of the data."""
        return self.model_copy(update={"is_locked": True, "is_authors": True})

    def features(self) -> list[OpenFeature]:
        """The features that are opened: those that have a table, and those that need none."""
        found = [OpenFeature(name, feature, vars(self).get(name)) for name, feature in installed_features().items()]
        return [one for one in found if one.feature.building and (one.settings is not None or one.feature.always)]

    @property
    def sells_calls(self) -> bool:
        """Whether calls can be paid for one by one here."""
        return any(one.feature.sells and one.settings is not None for one in self.features())

    @property
    def has_credits(self) -> bool:
        """Whether a product's keys pay for calls by credits."""
        return any(product.credits for product in self.products.values())

    @property
    def url(self) -> str:
        """The public address, without a slash at its end."""
        return self.server.public_url or f"http://{url_host(self.server.host)}:{self.server.port}"

    @property
    def logo(self) -> Path | None:
        return self.folder / self.server.logo if self.server.logo else None

    @property
    def templates(self) -> Path | None:
        return self.folder / self.server.templates if self.server.templates else None

    @property
    def is_local(self) -> bool:
        """Whether the service has no address that was given to others."""
        url = urlsplit(self.server.public_url or "")
        return url.scheme != "https" and (not url.hostname or is_loopback(url.hostname))

    @property
    def operators_proxies(self) -> tuple[str, ...]:
        """The proxies that the operator's listener trusts: those that campus.toml names, and none by default.

        Whoever is on this machine could otherwise name another address for each guess of the password.
        """
        return self.server.trusted_proxies if "trusted_proxies" in self.server.model_fields_set else ()

    def serving_at(self, host: str | None = None, port: int | None = None, *, admin: str | None = None) -> Self:
        """The configuration with the addresses of the command line."""
        asked = {"host": host, "port": port, "admin": admin}
        changes = {name: value for name, value in asked.items() if value is not None}
        try:
            server = ServerTable.model_validate({name: getattr(self.server, name) for name in self.server.model_fields_set} | changes)
        except ValidationError as error:
            raise ConfigError(explain(error, ServerTable, under=("server",))) from None
        return self.model_copy(update={"server": server})

    def only(self, building: str) -> Self:
        """The configuration with one of its buildings, or for a job of a feature with all of them, which sells nothing."""
        without: dict[str, Any] = {name: None for name, feature in installed_features().items() if feature.sells and name != building}
        if building in self.buildings:
            server = self.server.model_copy(update={"openapi": building})
            without |= {"server": server, "buildings": {building: self.buildings[building]}}
        return self.model_copy(update=without)


def reserved_names() -> frozenset[str]:
    """The names that no building can have: addresses of campus begin with them, or a feature is named so."""
    of_features = (name for name, each in installed_features().items() if each.building)
    return RESERVED.union((path.split("/")[1] for path in feature_paths()), of_features)


def has_defaults(table: type[Settings]) -> bool:
    return not any(key.is_required() for key in table.model_fields.values())


@cache
def config_model() -> type[Config]:
    """The form of campus.toml: that of the core, with a table for each feature that is installed."""
    if taken := {name for name in installed_features() if name in Config.model_fields or hasattr(Config, name)}:
        raise LoadError(f"the feature {min(taken)} has the name of a table of campus.toml that campus itself reads; rename its entry point")
    fields: dict[str, Any] = {}
    for name, each in installed_features().items():
        if (table := each.settings) is not None:
            fields[name] = (table, table()) if each.always and has_defaults(table) else (table | None, None)
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, **fields)


def read_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read campus.toml; secrets come from CAMPUS_… in the environment. Raises ConfigError with a sentence for each mistake."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}; name another with --config FILE, or write one with `campus init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    return config_of(data, path, environ)


def config_of(data: Mapping[str, Any], path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The tables of campus.toml, whose path is `path`, as a configuration; ConfigError has a sentence for each mistake."""
    named = references_in(data)
    sent = {name: value.rstrip("\r\n") for name, value in environ.items() if name.startswith("CAMPUS_") or name in named}
    secrets = {name: SecretStr(value) for name, value in sent.items()}  # files end with a line's end, which is no part of a secret
    if surplus := data.keys() & {name for name, field in config_model().model_fields.items() if field.exclude}:
        raise ConfigError(f"{path}: unknown key {min(surplus)!r}; there are: {', '.join(known_keys(config_model(), ()))}")
    for name, feature in installed_features().items():
        for variable in feature.variables.keys() & secrets.keys() if isinstance(data.get(name), dict) else ():
            if feature.settings and (key := variable.removeprefix(f"CAMPUS_{name}_".upper()).lower()) in feature.settings.model_fields:
                data[name][key] = secrets[variable].get_secret_value()
    try:
        config = config_model().model_validate({**data, "folder": path.resolve().parent, "secrets": secrets})
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {sentence}" for sentence in explain(error, config_model()).splitlines())) from None
    for feature in installed_features().values():
        if feature.check_secrets:
            feature.check_secrets(secrets)
    return config


def references_in(data: Mapping[str, Any]) -> frozenset[str]:
    """The variables of the environment to which the servers of [buildings] refer, as ${NAME}."""
    buildings = data.get("buildings")
    servers = [table.get("server") for table in buildings.values() if isinstance(table, dict)] if isinstance(buildings, dict) else []
    return frozenset(name for server in servers if isinstance(server, dict) for name in REFERENCE.findall(str(server)))


def filled(value: Any, secrets: Mapping[str, SecretStr], where: str) -> Any:
    """A server of campus.toml with the values to which it refers; ConfigError if the environment lacks one."""
    match value:
        case dict():
            return {name: filled(each, secrets, f"{where}.{name}") for name, each in value.items()}
        case list():
            return [filled(each, secrets, where) for each in value]
        case str():
            if missing := [name for name in REFERENCE.findall(value) if name not in secrets]:
                raise ConfigError(f"{where} needs {missing[0]}: set it in the environment")
            return REFERENCE.sub(lambda found: secrets[found[1]].get_secret_value(), value)
    return value


def read_file_target(target: str, folder: Path) -> tuple[Path, str | None] | None:
    """The file of `./hello.py:mcp`, relative to `folder`, and the name in it; None for what names no file, such as `module:server`."""
    named = SERVER_FILE.fullmatch(target)
    return ((folder / named["path"]).resolve(), named["name"]) if named else None


def explain(error: ValidationError, model: type[BaseModel], *, under: tuple[str, ...] = ()) -> str:
    """Pydantic's errors, a sentence and a line each."""
    return "\n".join(dict.fromkeys(sentence_of(one, model, under) for one in error.errors(include_url=False)))


def sentence_of(error: ErrorDetails, model: type[BaseModel], under: tuple[str, ...]) -> str:
    """One of pydantic's errors about a value in the table `under`, of which `model` is the form."""
    loc = tuple(str(part) for part in error["loc"] if part != "[key]")
    where = ".".join((*under, *loc))
    if error["type"] == "extra_forbidden":
        table = ".".join((*under, *loc[:-1]))
        return f"unknown key {loc[-1]!r}{f' in [{table}]' if table else ''}; there are: {', '.join(known_keys(model, loc[:-1]))}"
    if error["type"] == "missing":
        return f"{where} is missing"
    if how := next((how for how, kinds in HOW_TO_WRITE.items() if error["type"] in kinds), None):
        return f"{where}: {how}{f', [{where}]' if how == 'write a table' else ''}"
    if error["type"] == "string_pattern_mismatch" and error["loc"][-1] == "[key]":
        return f"{where} cannot be a name: use lower-case letters, digits and _, a letter first"
    if error["type"] == "string_pattern_mismatch" and (example := example_at(model, loc)):
        return f"{where}: write it as in {example!r}"  # what was written may hold a password
    message = str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]
    return f"{f'{where}: ' if where else ''}{message[:1].lower()}{message[1:]}"


def example_at(model: type[BaseModel], loc: tuple[str, ...]) -> object:
    """The first of the examples that the field at `loc` below `model` declares; None if it declares none."""
    field = model_at(model, loc[:-1]).model_fields.get(loc[-1]) if loc else None
    return field.examples[0] if field and field.examples else None


def known_keys(model: type[BaseModel], loc: tuple[str, ...]) -> list[str]:
    """The keys of the table at `loc` below `model`."""
    return [name for name, field in model_at(model, loc).model_fields.items() if not field.exclude]


def model_at(model: type[BaseModel], loc: tuple[str, ...]) -> type[BaseModel]:
    """The model of the table at `loc` below `model`."""
    for part in loc:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        while annotation is not None and get_origin(annotation) is not None:
            annotation = [each for each in get_args(annotation) if each is not NoneType][-1]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return model
