"""What a plugin author declares: a Building is a FastMCP server with its settings, tables, jobs, pages and checks."""

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction, ismethod, signature
from typing import Any, Literal, get_args

from sqlmodel import SQLModel
from starlette.responses import Response

from campus.feature import Settings

__all__ = ["CONTRACT", "Building", "Check", "Holding", "Holdings", "Job", "Page", "Service", "Settings", "ToolCall"]

CONTRACT = 1
"""The version of what campus and buildings expect of each other: it changes when a building that was right no longer is."""
CODE = re.compile(r"[a-z][a-z0-9_]*")
TAG, MOST_TAGS = re.compile(r"[0-9A-Za-z][0-9A-Za-z -]{0,31}"), 5
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
Processes = Literal["one", "each"]
Occasion = Literal["check", "ready", "audit"]


def check_function(kind: str, function: object, *arguments: str, whole: bool = True) -> None:
    """Raises TypeError, with the line to write, unless campus can await `function(*arguments)`; `whole`: without further arguments."""
    name = getattr(function, "__name__", repr(function))
    line = f"write async def {name}({', '.join(arguments)})"
    if not callable(function):
        raise TypeError(f"the {kind} is {function!r}, which cannot be called; name a function: async def …({', '.join(arguments)})")
    if (isfunction(function) or ismethod(function)) and not iscoroutinefunction(function):
        raise TypeError(f"the {kind} {name} is not async; {line}")
    takes = signature(function)
    try:
        (takes.bind if whole else takes.bind_partial)(*arguments)
    except TypeError:
        raise TypeError(
            f"the {kind} {name} takes ({', '.join(takes.parameters)}), and campus calls it with ({', '.join(arguments)}); {line}"
        ) from None


def is_fastmcp(value: object) -> bool:
    """Whether it is a FastMCP server; nothing is as long as FastMCP was not imported."""
    module = sys.modules.get("fastmcp")
    return module is not None and isinstance(value, module.FastMCP)


def check_choice(name: str, given: object, choices: object) -> None:
    """Raises ValueError, with the choices, for a value that is none of a Literal's."""
    if given not in get_args(choices):
        raise ValueError(f"{name}={given!r} is unknown; the values are: {', '.join(map(repr, get_args(choices)))}")


@dataclass(frozen=True)
class Job:
    """Scheduled work: `async def run(site, **options)`. The job has the function's name.

    Without `every` and `daily_at` (HH:MM, UTC) it runs on command only: `campus run <building>.<job> --option value`. Where the
    operator chooses the time, `daily_at` is a function of the building's settings: `daily_at=lambda settings: settings.refresh_at`.
    It runs once in the whole campus, or with `on="each"` in every process that serves. A missed run starts at the next start of
    campus, and the first run starts with the first one. A run on command with options does not replace a scheduled run.

    A `shared` job runs only where several processes may serve the same data, so not on SQLite.

    The end of each run is a line of the log. For a run that found nothing to do, return False: the line is then logged at the level
    debug, unless the run before failed.

    `own_process` is for work that takes more than a few milliseconds of CPU at a time, which would delay every call: a server runs
    the job in a process of its own. There `site.state` is opened anew, `site.directory` has this building only, and nothing is paid.
    """

    run: Callable[..., Awaitable[bool | None]]
    _: KW_ONLY
    every: timedelta | None = None
    daily_at: str | Callable[[Any], str] | None = None
    on: Processes = "one"
    own_process: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        check_function("job", self.run, "site", whole=self.every is not None or self.daily_at is not None)
        check_choice("on", self.on, Processes)
        if self.every is not None and not isinstance(self.every, timedelta):
            raise TypeError(f"the job {self.name} has every={self.every!r}; write every=timedelta(hours=1)")

    @property
    def name(self) -> str:
        """Its name for `campus run`."""
        return self.run.__name__

    def time_of_day(self, settings: Any) -> str | None:
        """When it runs each day, as HH:MM in UTC, with these settings; None for a job that is not daily."""
        return self.daily_at(settings) if callable(self.daily_at) else self.daily_at


@dataclass(frozen=True)
class Service:
    """Work that goes on all the time while a process serves: `async def run(site)`, which ends only when it is cancelled.

    Every process that serves runs it, from its start to its end; `campus run` and `campus check` do not. When it raises or returns,
    that is logged and shown in /readyz, and it is started again, after a second at first and after a minute at most.
    """

    run: Callable[..., Awaitable[None]]
    shared: bool = False
    """Only where several processes may serve the same data, so not on SQLite."""

    def __post_init__(self) -> None:
        check_function("service", self.run, "site")

    @property
    def name(self) -> str:
        """What logs and findings call it."""
        return self.run.__name__


@dataclass(frozen=True)
class Page:
    """An HTTP route for people: `Page("GET /tides", board)` with `async def board(request, site) -> Response`.

    `site.page("board.html", request, …)` renders a template of the folder `templates` beside the function's module, inside campus's
    layout. With a `label` the page is in the navigation, at its `place`: 0 is that of buildings' pages, 1 of prices, 2 of what is for
    agents, 3 of the visitor's key. What a form sends is refused unless it carries the visitor's token, which the macro `form` adds;
    `cross_site=True` accepts requests of other sites and programs, such as the unsubscription of a mail program.
    A form is answered once, so that a reloaded page does nothing twice; `repeats=True` answers again, for one that changes nothing.
    `any_body=True` answers whatever the size of a body: one that says it is over campus's limit must not be read.
    """

    route: str
    answer: Callable[..., Awaitable[Response]]
    _: KW_ONLY
    label: str | None = None
    place: int = 0
    cross_site: bool = False
    repeats: bool = False
    any_body: bool = False

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not METHODS.issuperset(self.methods):
            raise ValueError(f"{self.route!r} is not the route of a page; write GET /v1/x or GET|POST /v1/x")
        check_function("page", self.answer, "request", "site")
        if "{" in self.path and self.label is not None:
            raise ValueError(f"the page {self.path} has a label, but the navigation cannot link to a placeholder; leave label= out")

    @property
    def methods(self) -> tuple[str, ...]:
        """GET, unless the route names others: "GET|POST /v1/x"."""
        methods, separator, _ = self.route.rpartition(" ")
        return tuple(methods.split("|")) if separator else ("GET",)

    @property
    def path(self) -> str:
        """The path with its {placeholders}."""
        return self.route.rpartition(" ")[2]


@dataclass(frozen=True)
class Check:
    """A check of the building's health: `async def run(site)` returns a sentence for each thing that is wrong.

    It runs in `campus check`, in /readyz (`on="ready"`: cheap, without calls to other services) or in `campus audit` (stored data).
    """

    run: Callable[..., Awaitable[Sequence[str]]]
    on: Occasion = "check"

    def __post_init__(self) -> None:
        check_function("check", self.run, "site")
        check_choice("on", self.on, Occasion)


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the building's own tools."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Something that a key owns and that goes on after the call that made it.

    `kind` and `name` say what it is, such as "feed address" and "news reader". `made_by` is the `Caller.maker` that was stored with it.
    `end` ends it for good, and `keep` makes its caller the maker.
    """

    id: str
    kind: str
    name: str
    made_at: datetime
    made_by: str
    end: ToolCall
    keep: ToolCall


@dataclass(frozen=True)
class Holdings:
    """What a building's tools make that goes on after their calls: `async def feeds_of(site, key)` returns a `Holding` for each.

    /keys lists them with who made each and a button that ends it, and keeps what a client or key made that has ended. The page that
    asks whether a client may connect says that it may make them; `what` names them, such as "feed addresses and watches". `stop` is
    False if they go on when their maker has ended, and the owner is only asked.
    """

    of: Callable[..., Awaitable[Sequence[Holding]]]
    _: KW_ONLY
    what: str
    stop: bool = True

    def __post_init__(self) -> None:
        check_function("holdings", self.of, "site", "key")


@dataclass(frozen=True)
class Building:
    """What an entry point of the group `campus.buildings` names; without a server, what a Feature names.

    `server` is a module-level FastMCP server, which campus does not change, or a factory `(settings) -> FastMCP`.
    `steps` makes its steps of every call, by `(site)`; see campus.steps. `http` makes what it adds to HTTP, by `(campus, site)`; see
    campus.http_parts. `plans` makes what it adds to the plan, by `(config, settings, opened)`; see campus.catalog.parts.
    `templates` are texts by name, for a feature of one file.
    `state` creates what the tools of one process share: a value, or an async context manager that yields it.
    `problems` explains the problem codes that its tools raise, `{code: text}`; served at /errors/<code>.
    `highlight` is its part of the start page: `async def top_three(request, site)` returns `site.part("top_three.html", request, …)`, an
    `h2` that says what a person gets, a glimpse of it, and one button. Without it a card has the server's title and its first sentence.
    `tags` are up to five words by which catalogs of paid tools list it.
    `gives` is what it gives to features, by their names; each feature says what it takes.
    `facts` says for the operator how it is doing: `async def facts(site)` returns texts by name, such as {"KEV": "1,463 entries"}.
    `gauges` are numbers for /metrics: `async def gauges(site)` returns them by the name of a metric and of its one label, then by the
    label's values, which are few: `{("boats", "state"): {"moored": 3}}` is `campus_<building>_boats{state="moored"} 3`.
    `usage` says for /keys what a key uses of it: `async def monitors_used(site, key)` returns a few words, such as "3 of 20 monitors".
    `includes` says for /pricing what a key that opens it includes, in a few words each, such as ("20 monitors",); where products differ, a
    function of the building's settings and the product's name does. `without_key` says in the same way what everybody has for nothing;
    by default the names of its free tools.
    `holdings` lists for /keys what a key's holder, and clients that it connected, made that goes on after the call.
    `contract` is the CONTRACT of the campus that it is written for, as a number; a campus with another one refuses the building.
    """

    server: Any = None
    """Not typed: FastMCP takes a second to import, which commands that open no server do without."""
    _: KW_ONLY
    settings: type[Settings] = Settings
    tables: type[SQLModel] | None = None
    state: Callable[..., object] | None = None
    jobs: Sequence[Job] = ()
    services: Sequence[Service] = ()
    pages: Sequence[Page] = ()
    checks: Sequence[Check] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    highlight: Callable[..., Awaitable[str]] | None = None
    gauges: Callable[..., Awaitable[Mapping[tuple[str, str], Mapping[str, float]]]] | None = None
    usage: Callable[..., Awaitable[str]] | None = None
    includes: Sequence[str] | Callable[[Any, str], Sequence[str]] = ()
    without_key: Sequence[str] | None = None
    holdings: Holdings | None = None
    tags: Sequence[str] = ()
    gives: Mapping[str, Any] = field(default_factory=dict)
    facts: Callable[..., Awaitable[Mapping[str, str]]] | None = None
    steps: Callable[..., Sequence[Any]] | None = None
    http: Callable[..., Any] | None = None
    plans: Callable[..., Any] | None = None
    templates: Mapping[str, str] = field(default_factory=dict)
    contract: int = 1

    def __post_init__(self) -> None:
        self._check_functions()
        if not (self.server is None or callable(self.server) or is_fastmcp(self.server)):
            raise TypeError(f"a Building begins with its FastMCP server, or a function (settings) -> FastMCP; not {self.server!r}")
        if not (isinstance(self.settings, type) and issubclass(self.settings, Settings)):
            raise TypeError(f"settings= takes a class derived from campus.Settings, not {self.settings!r}")
        for name, kind in (("jobs", Job), ("services", Service), ("pages", Page), ("checks", Check)):
            given = getattr(self, name)
            if isinstance(given, kind):
                raise TypeError(f"{name}= takes a list; write {name}=[{kind.__name__}(…)]")
            if strangers := [one for one in given if not isinstance(one, kind)]:
                raise TypeError(f"{name}= takes {kind.__name__}(…) only, not {strangers[0]!r}")
        names = [job.name for job in self.jobs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two jobs have the name {twice.pop()}; a job has the name of its function, so rename one")
        for code, text in self.problems.items():
            if not CODE.fullmatch(code) or not isinstance(text, str) or not text.strip():
                raise ValueError(f"problems= takes a sentence for each snake_case code, not {code!r}: {text!r}")
        if len(self.tags) > MOST_TAGS or not all(TAG.fullmatch(tag) for tag in self.tags):
            raise ValueError(f"tags= takes up to {MOST_TAGS} texts of 1 to 32 letters, digits, spaces and hyphens, not {self.tags!r}")
        if self.tables is not None and self.tables.metadata is SQLModel.metadata:
            raise ValueError("tables= needs a base class with a registry of its own: class Tables(SQLModel, registry=registry())")

    def _check_functions(self) -> None:
        for kind, function, arguments in (
            ("highlight", self.highlight, ("request", "site")),
            ("facts", self.facts, ("site",)),
            ("gauges", self.gauges, ("site",)),
            ("usage", self.usage, ("site", "key")),
        ):
            if function is not None:
                check_function(kind, function, *arguments)
        for name, takes in (("steps", "(site)"), ("http", "(campus, site)"), ("plans", "(config, settings, opened)")):
            if (value := getattr(self, name)) is not None and not callable(value):
                raise TypeError(f"{name}= takes a function or class {takes}, not {value!r}")
        if self.state is not None and not callable(self.state):
            raise TypeError(f"state= takes a function (site) that makes what the tools share, not {self.state!r}")
        if self.state is not None and (iscoroutinefunction(self.state) or isasyncgenfunction(self.state)):
            how = "decorate it with @asynccontextmanager, and yield the state"
            raise TypeError(f"the state {self.state.__name__} is async, and campus does not await it; {how}")

    @property
    def rendering_functions(self) -> Sequence[Callable[..., object]]:
        """The functions that render templates."""
        return [*(page.answer for page in self.pages), *filter(None, (self.highlight, self.http))]
