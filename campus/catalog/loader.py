"""Loads the building of each table in campus.toml: an installed one, a FastMCP server of a module or file, or a feature's LateServer."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from traceback import walk_tb
from typing import Any, Protocol, Self, get_args

from fastmcp import FastMCP
from mcp.server.lowlevel import Server as LowLevelServer
from pydantic import SecretStr, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import ErrorDetails

from campus.building import CONTRACT, Building, Settings
from campus.catalog.files import server_in
from campus.config import BuildingTable, filled, known_keys, read_file_target, reserved_names, sentence_of
from campus.errors import BuildingFailed, CampusError, ConfigError, LoadError
from campus.feature import named
from campus.installed import server_adapters, server_forms, written_servers
from campus.observability.logs import redacted

log = logging.getLogger(__name__)
GROUP = "campus.buildings"
LIBRARIES = frozenset(
    {
        *("alembic", "campus", "contextlib", "fastmcp", "importlib", "mcp", "pydantic"),
        *("sqlalchemy", "sqlmodel", "starlette", "twins"),
    }
)
"""What an author calls: an error that these raise has its cause in the line that called them."""

ALONE = "`campus add PACKAGE` runs a server of a package index in an environment of its own"


class Installed(Protocol):
    """An entry point, or a replacement for one in tests."""

    @property
    def name(self) -> str: ...

    def load(self) -> Any: ...


class LateServer(Protocol):
    """What stands behind a building and may be away: it opens late, changes, closes, and may be refused. Features bring them."""

    name: str
    rejection: str | None

    def reject(self, error: Exception) -> str:
        """Note why its tools cannot be served, log it if it is new, and return it."""
        ...

    def findings(self) -> Sequence[str]:
        """Why it cannot be reached or served; empty while all is well."""
        ...

    def server(self) -> FastMCP[Any]:
        """A server over its tools as they were listed when it was opened last."""
        ...

    async def open(self, *, seconds: float) -> None:
        """List its tools; raises Unreachable when it does not answer in time."""
        ...

    async def changed(self) -> None:
        """Return once it lists other tools than when it was opened."""
        ...


@dataclass(frozen=True)
class LoadedBuilding:
    name: str
    table: BuildingTable
    building: Building
    settings: Any
    server: FastMCP[Any]
    late: LateServer | None = None  # Whose tools they are, if not those of a server in this process.
    failure: str | None = None  # Why its own code could not be loaded; then it stays closed.

    @property
    def grants(self) -> Sequence[str]:
        return self.table.grants

    @classmethod
    def failed(cls, name: str, table: BuildingTable, error: BuildingFailed) -> Self:
        log.error("building cannot be opened", exc_info=error.__cause__, extra={"building": name, "reason": str(error)})
        server: FastMCP[Any] = FastMCP(name)
        return cls(
            name, table, Building(server), Settings(), server, failure=f"{error}; its code is not loaded again before campus restarts"
        )

    def findings(self) -> Sequence[str]:
        """Why it cannot be served, or its server not be reached; empty while all is well."""
        return [self.failure] if self.failure else self.late.findings() if self.late else []


def installed_buildings() -> Sequence[Installed]:
    return tuple(entry_points(group=GROUP))


def load(
    name: str,
    table: BuildingTable,
    secrets: Mapping[str, SecretStr],
    installed: Sequence[Installed],
    *,
    folder: Path,
    is_local: bool = False,
) -> LoadedBuilding:
    """Find one building and read its settings; ConfigError or LoadError says what is wrong and which choices there are.

    `folder` is that of campus.toml, `is_local` says whether the campus is for its machine alone.
    """
    if name in reserved_names():
        raise ConfigError(f"a building cannot have the name {name!r}, which campus uses itself; choose another name")
    if isinstance(table.server, dict):
        late = _late_server(name, table, filled(table.server, secrets, f"buildings.{name}.server"), folder, is_local=is_local)
        server = late.server()
        return LoadedBuilding(name, table, Building(server), Settings(), server, late)
    building = find(name, installed) if table.server is None else wrapped(name, table, table.server, folder=folder)
    if isinstance(building, FastMCP):
        return LoadedBuilding(name, table, Building(building), Settings(), building)
    if building.contract != CONTRACT:
        other = "a newer campus" if building.contract > CONTRACT else "an older campus"
        raise LoadError(
            f"building {name!r} is written for contract {building.contract} of campus, and this is contract {CONTRACT};"
            f" install {other}, or a version of the building for contract {CONTRACT}"
        )
    if clash := building.settings.model_fields.keys() & BuildingTable.model_fields.keys():
        raise LoadError(
            f"building {name!r} has a setting {min(clash)!r}, which campus itself uses as a key of the building's table; rename it"
        )
    settings = read_settings(name, building.settings, table.settings, secrets)
    server = building.server if isinstance(building.server, FastMCP) else _server_from(name, building.server, settings)
    return LoadedBuilding(name, table, building, settings, server)


def find(name: str, installed: Sequence[Installed]) -> Building:
    found = [one for one in installed if one.name == name]
    if not found:
        there = ", ".join(sorted({one.name for one in installed})) or "none"
        raise LoadError(
            f"no building {name!r} is installed; the installed buildings are: {there}. Install its package with pip; for any other server,"
            f" write server = {written_servers()}"
        )
    if len(values := sorted({str(getattr(one, "value", one)) for one in found})) > 1:
        raise LoadError(f"several installed packages have a building {name!r}: {', '.join(values)}; uninstall all but one")
    try:
        target = found[0].load()
    except (Exception, SystemExit) as error:  # whatever a plugin raises at import is reported to the operator
        raise BuildingFailed(f"building {name!r} cannot be imported: {error_with_place(error)}") from error
    target = as_fastmcp(name, target)
    if isinstance(target, FastMCP):
        return Building(target)
    if not isinstance(target, Building):
        raise LoadError(
            f"the entry point of building {name!r} names a {type(target).__name__}; it must name a Building or a FastMCP server"
        )
    return target


def wrapped(name: str, table: BuildingTable, target: str, *, folder: Path) -> FastMCP[Any] | Building:
    """The FastMCP server, Building or factory that `server = "module:name"` or `"./file.py:name"` names; a factory is called."""
    where = f"buildings.{name}.server = {target!r}"
    file = read_file_target(target, folder)
    try:
        attribute, found = server_in(*file) if file else _server_of(where, target)
    except CampusError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises at import is reported to the operator
        if file:
            raise BuildingFailed(f"{file[0]} cannot be loaded: {error_with_place(error)}; {_remedy(error)}") from error
        remedy = _remedy(error) if is_of_another_mcp(error) else f"write {written_servers()}"
        raise BuildingFailed(f"{where} cannot be imported: {error_with_place(error)}; {remedy}") from error
    if isinstance(found, LowLevelServer):
        raise LoadError(f"{where} is a low-level server of the SDK, which campus serves as a command only; {ALONE}")
    found = as_fastmcp(name, found)
    if isinstance(found, Building):
        return found
    if not isinstance(found, FastMCP) and not callable(found):
        what = f"has no {attribute!r}" if found is None else f"has {attribute!r}, which is a {type(found).__name__}"
        raise LoadError(f"{where}: {target.partition(':')[0]} {what}; name a FastMCP server, or a function that makes one")
    if isinstance(found, FastMCP) and table.settings:
        raise ConfigError(f"{target} is a server, not a factory: it takes no keys, but [buildings.{name}] has {min(table.settings)!r}")
    if isinstance(found, FastMCP):
        return found
    _check_arguments(name, target, found, table.settings)
    return _server_from(name, found, **table.settings)


def as_fastmcp(name: str, found: Any) -> Any:
    """A server of a class for which a feature has an adapter as a FastMCP server; anything else as it is."""
    adapters = server_adapters()
    makers = [maker for kind in type(found).__mro__ if (maker := adapters.get(f"{kind.__module__}:{kind.__qualname__}"))]
    return named(makers[0])(name, found) if makers else found


def _check_arguments(name: str, target: str, factory: Any, keys: Mapping[str, Any]) -> None:
    """ConfigError for a key that a factory does not take, or that it lacks."""
    try:
        takes = signature(factory).parameters
    except ValueError:  # of a callable that is written in C
        return
    lacks = [
        each.name for each in takes.values() if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if missing := [each for each in lacks if each not in keys]:
        raise ConfigError(f"{target} takes {missing[0]}: write it into [buildings.{name}] if campus.toml can say it; or {ALONE}")
    if any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        return
    if unknown := sorted(keys - takes.keys()):
        raise ConfigError(f"unknown key {unknown[0]!r} in [buildings.{name}]; {target} takes: {', '.join(takes) or 'none'}")


def _server_of(where: str, target: str) -> tuple[str, Any]:
    module, _, attribute = target.partition(":")
    if not attribute:
        raise ConfigError(f"{where} is not of the form module:server; write {written_servers()}")
    return attribute, getattr(import_module(module), attribute, None)


def is_of_another_mcp(error: BaseException) -> bool:
    return isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "mcp"


def _remedy(error: BaseException) -> str:
    if is_of_another_mcp(error):
        return f"it was written for another version of mcp than campus's own; {ALONE}"
    if isinstance(error, ModuleNotFoundError):
        return f"correct that name, or install it: {sys.executable} -m pip install …"
    return "correct that line"


def _late_server(name: str, table: BuildingTable, target: Mapping[str, Any], folder: Path, *, is_local: bool) -> LateServer:
    forms = server_forms()
    where, keys = f"buildings.{name}.server", [key for key in forms if key in target]
    if not keys:
        has = f"neither {' nor '.join(forms)}" if forms else "no form of a server that is installed"
        raise ConfigError(f"{where} has {has}; write {written_servers()}")
    if keys[1:]:
        raise ConfigError(f"{where} has both {' and '.join(keys)}; write one of them")
    if table.settings:
        known = ", ".join(BuildingTable.model_fields)
        raise ConfigError(f"unknown key {min(table.settings)!r} in [buildings.{name}]; the keys are: {known}")
    opener: Callable[..., LateServer] = named(forms[keys[0]].opener)
    return opener(name, target, folder=folder, answer_limit=table.answer_limit, is_local=is_local)


def _server_from(name: str, factory: Any, *args: object, **kwargs: Any) -> FastMCP[Any]:
    try:
        server = as_fastmcp(name, factory(*args, **kwargs))
    except CampusError:
        raise
    except (Exception, SystemExit) as error:  # an author's factory may raise anything; the operator is told
        raise BuildingFailed(f"the server of building {name!r} cannot be made: {error_with_place(error)}") from error
    if not isinstance(server, FastMCP):
        hint = f"; {ALONE}" if isinstance(server, LowLevelServer) else ""
        raise LoadError(f"the factory of building {name!r} returned a {type(server).__name__}; it must return a FastMCP server{hint}")
    return server


def error_with_place(error: BaseException) -> str:
    frames = [(frame.f_globals.get("__name__", ""), f"{frame.f_code.co_filename}:{line}") for frame, line in walk_tb(error.__traceback__)]
    places = [place for module, place in frames if module.partition(".")[0] not in LIBRARIES]
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename:  # its text has the file's name only
        places, text = [f"{error.filename}:{error.lineno}"], error.msg
    where = f" (at {places[-1]})" if places else ""
    if isinstance(error, PydanticSchemaGenerationError):  # pydantic's advice is for models
        text = f"{text.partition('. ')[0]}; give the parameter a type that JSON can express, such as a pydantic model"
    return f"{type(error).__name__}: {redacted(text)[:300]}{where}"


def read_settings(name: str, model: type[Settings], keys: Mapping[str, Any], secrets: Mapping[str, SecretStr]) -> Settings:
    secret_fields = secret_variables(name, model)
    if written := secret_fields.keys() & keys.keys():
        field = min(written)
        raise ConfigError(f"{field} in [buildings.{name}] is a secret: put it into the environment as {secret_fields[field]}")
    given = {field: secrets[variable] for field, variable in secret_fields.items() if variable in secrets}
    try:
        return model.model_validate({**keys, **given})
    except ValidationError as error:
        sentences = dict.fromkeys(_sentence(name, model, one) for one in error.errors(include_url=False))
        raise ConfigError("\n".join(sentences)) from None


def _sentence(name: str, model: type[Settings], error: ErrorDetails) -> str:
    secret_fields = secret_variables(name, model)
    field = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "missing" and field in secret_fields:
        return f"building {name!r} needs its secret {field}: set {secret_fields[field]} in the environment"
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        there = sorted({*known_keys(model, ()), *BuildingTable.model_fields} - secret_fields.keys())
        return f"unknown key {field!r} in [buildings.{name}]; the keys are: {', '.join(there)}"
    return sentence_of(error, model, ("buildings", name))


def secret_variables(name: str, model: type[Settings]) -> Mapping[str, str]:
    return {field: f"CAMPUS_{name}_{field}".upper() for field in model.model_fields if is_secret(model, field)}


def is_secret(model: type[Settings], field: str) -> bool:
    annotation = model.model_fields[field].annotation
    return annotation is SecretStr or SecretStr in get_args(annotation)
