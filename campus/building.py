"""What a building is: a FastMCP server, and what campus is to run beside it."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from inspect import iscoroutinefunction, isfunction
from typing import Any, Literal

from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from sqlmodel import SQLModel
from starlette.responses import Response

from campus.values import read_number

CODE = re.compile(r"[a-z][a-z0-9_]*")
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


class Settings(BaseModel):
    """Base of a building's settings: the keys of its table in campus.toml.

    A field of type SecretStr is read from the environment only, as CAMPUS_<BUILDING>_<FIELD>.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def is_no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refused before pydantic makes 1 of true."""
        return read_number(value, cls.model_fields[str(info.field_name)].annotation)


@dataclass(frozen=True)
class Job:
    """Work beside the calls: `async def run(site, **options)`; its name is the function's.

    With neither `every` nor `daily_at` (HH:MM, UTC) it runs by hand: `campus run <building>.<job> --option value`.
    It runs once in the whole campus, or with `on="each"` in every process that serves. A run that was missed is made up at
    the next start, and so the first one begins with the first start; a run by hand with options stands for no other.
    """

    run: Callable[..., Awaitable[None]]
    _: KW_ONLY
    every: timedelta | None = None
    daily_at: str | None = None
    on: Literal["one", "each"] = "one"

    def __post_init__(self) -> None:
        if isfunction(self.run) and not iscoroutinefunction(self.run):
            raise TypeError(f"the job {self.name} is not async; write async def {self.name}(site)")

    @property
    def name(self) -> str:
        """What `campus run` calls it."""
        return self.run.__name__


@dataclass(frozen=True)
class Page:
    """An HTTP route beside the tools, for people: `Page("GET /v1/x/{id}.svg", answer)`, `async def answer(request, site) -> Response`."""

    route: str
    answer: Callable[..., Awaitable[Response]]

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not METHODS.issuperset(self.methods):
            raise ValueError(f"{self.route!r} is no route of a page; write GET /v1/x or GET|POST /v1/x")

    @property
    def methods(self) -> tuple[str, ...]:
        """GET, unless the route says others: "GET|POST /v1/x"."""
        methods, separator, _ = self.route.rpartition(" ")
        return tuple(methods.split("|")) if separator else ("GET",)

    @property
    def path(self) -> str:
        """The path with its {placeholders}."""
        return self.route.rpartition(" ")[2]


@dataclass(frozen=True)
class Check:
    """A question about the building's health: `async def run(site)` gives a sentence for each thing that is wrong.

    Asked by `campus check`, by /readyz (`on="ready"`: cheap, no call outside) or by `campus audit` (stored truth).
    """

    run: Callable[..., Awaitable[Sequence[str]]]
    on: Literal["check", "ready", "audit"] = "check"


@dataclass(frozen=True)
class Building:
    """What an entry point of the group `campus.buildings` names.

    `server` is a module-level FastMCP server, which stays as it is, or a factory `(settings) -> FastMCP`.
    `state` makes what the tools share in one process: a value, or an async context manager that gives it.
    `problems` explains the codes of the problems that its tools raise, `{code: text}`: served at /errors/<code>.
    """

    server: FastMCP[Any] | Callable[..., FastMCP[Any]]
    _: KW_ONLY
    settings: type[Settings] = Settings
    tables: type[SQLModel] | None = None
    state: Callable[..., object] | None = None
    jobs: Sequence[Job] = ()
    pages: Sequence[Page] = ()
    checks: Sequence[Check] = ()
    problems: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, given, kind in (("jobs", self.jobs, Job), ("pages", self.pages, Page), ("checks", self.checks, Check)):
            if strangers := [one for one in given if not isinstance(one, kind)]:
                raise TypeError(f"{name}= takes {kind.__name__}(…) only, and was given {strangers[0]!r}")
        names = [job.name for job in self.jobs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two jobs are called {twice.pop()}; a job is called as its function")
        for code, text in self.problems.items():
            if not CODE.fullmatch(code) or not isinstance(text, str) or not text.strip():
                raise ValueError(f"problems= takes a sentence for each snake_case code, and was given {code!r}: {text!r}")
        if self.tables is SQLModel:
            raise ValueError("tables= wants a base of the building's own: class Tables(SQLModel, registry=registry())")
