"""What campus knows of a feature before it is opened: its table in campus.toml, its commands, and where the rest of it is.

Every command imports this, so it imports little: FastMCP takes a second, SQLAlchemy a quarter of one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, field_validator

from campus.addresses import read_number
from campus.errors import CampusError, LoadError

__all__ = ["Command", "Feature", "ServerForm", "Settings"]


class Settings(BaseModel):
    """Base of a building's settings: the keys of its table in campus.toml.

    A field of type SecretStr is read from the environment only, as CAMPUS_<BUILDING>_<FIELD>.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def is_no_text_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse texts and booleans for numbers, and the like, before pydantic converts them."""
        return read_number(value, cls.model_fields[str(info.field_name)].annotation)


@dataclass(frozen=True)
class Command:
    """A command `campus NAME`: `function` is "module:name" of a function or of a cyclopts App, imported when the command is used."""

    name: str
    function: str
    help: str = ""
    is_shown: bool = True


@dataclass(frozen=True)
class ServerForm:
    """A form of `server = {…}` in [buildings.NAME], known by its `key`; `example` is how an operator is told to write it.

    `opener` is "module:name" of a function that makes the LateServer of campus.catalog.loader, imported when a building has such a server:
    `opener(name, target, *, folder, answer_limit, is_local)`. It raises ConfigError for what cannot be one.
    """

    key: str
    example: str
    opener: str


@dataclass(frozen=True)
class Feature:
    """What an entry point of the group `campus.features` names; the entry point's name is that of the feature.

    `building` is "module:name" of a Building without a server, with everything that runs; it is imported when the feature is opened.
    A feature without one only adds commands and servers.
    `settings` are its table [NAME] of campus.toml, which opens it; one without settings has no table. With `always` it is opened without
    the table too: by the defaults, or where a key has none without settings, jobs, services and checks. `commands` are there whether it
    is opened or not.
    `tables` is "module:name" of the base of its tables. They are in campus's own database, with a history of their own, in the folder
    `migrations` beside that module, so that one transaction writes them and a key. Each is named as the feature is, or begins with its
    name and `_`. They are made whether it is opened or not, for its commands.
    `delegates` is "module:name" of what finds the clients that it lets call with a key, as makers of things; see campus.keys.makers.
    With `sells`, calls can be paid for where it has its table. Its `variables` of the environment are secrets, each with a sentence; one
    that is named as a key of its table, CAMPUS_<FEATURE>_<KEY>, replaces that key. `spans` names the methods that are spans of traces, each
    as "module:Class" and its name; those of `traces` begin a trace, where there is none, as often as requests do.
    `paths` are its addresses, with everything below them, or with a slash at the end only what is below: no building has them, and none
    is named as they begin. `check_secrets` is asked when campus.toml is read, and raises ConfigError for a secret that cannot be used.
    `supervisor` is "module:name" of what serves with several processes: `(count, file, read, words)`, as `campus serve --workers` asks it.
    `servers` are forms of buildings' servers. `adapters` make a FastMCP server of an author's server of another class: by "module:class",
    "module:name" of a function that takes the building's name and that server. `headers` are those of responses that web pages may read.
    """

    building: str | None = None
    settings: type[Settings] | None = None
    tables: str | None = None
    commands: Sequence[Command] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    spans: Mapping[tuple[str, str], str] = field(default_factory=dict)
    traces: Mapping[tuple[str, str], str] = field(default_factory=dict)
    always: bool = False
    sells: bool = False
    paths: Sequence[str] = ()
    check_secrets: Callable[[Mapping[str, SecretStr]], object] | None = None
    supervisor: str | None = None
    delegates: str | None = None
    servers: Sequence[ServerForm] = ()
    adapters: Mapping[str, str] = field(default_factory=dict)
    headers: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.settings is not None and not (isinstance(self.settings, type) and issubclass(self.settings, Settings)):
            raise TypeError(f"settings= takes a class derived from campus.feature.Settings, not {self.settings!r}")
        for name in ("building", "tables", "supervisor", "delegates"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or ":" not in text):
                raise TypeError(f'{name}= takes a text "module:name", which is imported when it is needed, not {text!r}')

    @cached_property
    def opened(self) -> Any:
        """Its Building; None if nothing of it runs."""
        return self.building and named(self.building)

    @cached_property
    def table_base(self) -> Any:
        """The base class of its tables; None if it has none."""
        return None if self.tables is None else named(self.tables)


def named(text: str) -> Any:
    """What "module:name" names. LoadError if it cannot be imported."""
    module, _, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except CampusError:
        raise
    except Exception as error:  # whatever a stranger's module raises at import is told the operator
        raise LoadError(f"{text} cannot be imported: {type(error).__name__}: {error}") from error
