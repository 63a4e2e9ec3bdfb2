"""Renders pages: a building's templates inside campus's layout, as HTML, Markdown or JSON, with the headers of each; and problems."""

import html
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from jinja2 import BaseLoader, ChoiceLoader, DictLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, TemplateSyntaxError
from markupsafe import Markup, escape
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from campus.colours import ACCENT, Accent
from campus.context import context_of
from campus.directory import SellerEntry
from campus.durations import in_words
from campus.layout.accept import Form, form_for
from campus.layout.answers import FORM, NAME, PostedForm, unpacked
from campus.layout.assets import Asset, asset_of, made_asset, read_assets
from campus.layout.forms import FIELD, PRIVATE, Cookies, is_from_here, is_token_of, new_secret, new_token, read_fields
from campus.layout.graphics import bar, chart, intervals, slots, sparkline
from campus.layout.kept import Kept
from campus.layout.markdown import markdown_of
from campus.problems import EXPLAINED_AT, fixed_problem
from campus.shares import LatestEntries
from twins import Answer, Problem, etag_of, or_not_modified

SHIPPED = "shipped/"  # Before the name of a template that its replacement in the operator's folder extends.
TEMPLATES = Path(__file__).parent / "templates"
CONTENT_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
ProblemPage = Callable[[Scope, Mapping[str, Any], Form, str], bytes | None]
"""Renders a problem for a person: the request's scope, the problem's members, the form, its Retry-After; see Layout.problem_page."""
SENT_AS: Mapping[Form, str] = {
    "html": "text/html; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "json": "application/json",
}
FORMS = "campus.forms"  # In a request's scope what the tokens of its answer's forms are made from.
STORED_PAGES = 64
TURNS = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")
Made = TypeVar("Made", bytes, Markup)
StoredKey = tuple[str, str, Form, bool]
"""Template, path and form of a stored page, and whether its visitor was signed in; a part of a page has no path."""


class Link(NamedTuple):
    href: str
    label: str
    signed_in: str = ""  # The label for a visitor who is signed in, if it is another.
    place: int = 0  # Where it stands among the others: see campus.building.Page.


@dataclass
class Rendering:
    """A page, or a part of one: those of one request share the secret of its forms."""

    request: Request | None
    cookies: Cookies

    @property
    def signed_in(self) -> bool:
        """Whether the visitor came with a session, which may have ended meanwhile."""
        return self.request is not None and self.cookies.sent(self.request, self.cookies.session) is not None

    @property
    def secret(self) -> str | None:
        """What the forms' tokens are made from; None while there is no form."""
        return self.request.scope.get(FORMS) if self.request else None

    def form_token(self) -> str:
        if self.request is None:
            raise ValueError("a form needs its visitor: pass the request to site.part")
        secret: str = self.request.scope.setdefault(FORMS, self.cookies.secret_of(self.request) or new_secret())
        return new_token(secret)


_current: ContextVar[Rendering] = ContextVar("rendering")


@dataclass
class Layout:
    """What all pages of one campus share. `navigation` is replaced when a building is opened late."""

    name: str
    url: str
    kept: Kept
    navigation: Sequence[Link] = ()
    title: str = ""  # The heading of the start page.
    tagline: str = ""
    """What the service is, in a sentence: below that heading, and the description of each page that has none of its own."""
    logo: Path | None = None
    accent: Accent = ACCENT
    templates: Path | None = None
    """The operator's folder, whose files replace templates of the same names: layout.html, home.html, or gateway/home.html."""
    seller: SellerEntry | None = None  # Who offers the service; None without the table [seller].
    product_titles: Mapping[str, str] = field(default_factory=dict)
    """What people read for each key for sale; "" for its name in words."""
    assets: Mapping[str, Asset] = field(default_factory=read_assets)
    links: str = ""  # The Link header of every page: where machines find the documents.
    places: Mapping[str, str] = field(default_factory=dict)
    operator: bool = False
    tool_page: Callable[[str], str | None] = lambda path: None  # The page of the tool that is served at a path; None if none is.

    @property
    def contact(self) -> str | None:
        """Where people write to the operator."""
        return self.seller.contact if self.seller else None

    def place(self, name: str, **values: str) -> str:
        """Where a feature has something that pages lead to; "" if none has it. See HttpPart.places."""
        return self.places.get(name, "").format(**values)

    def lead(self, links: str, places: Mapping[str, str], navigation: Sequence[Link], tool_page: Callable[[str], str | None]) -> None:
        self.links = links
        self.places = places
        self.navigation = navigation
        self.tool_page = tool_page

    def __post_init__(self) -> None:
        if self.logo:
            self.assets = {**self.assets, "logo": asset_of(self.logo)}
        if self.accent != ACCENT:
            style = f":root {{ --accent: light-dark({', '.join(self.accent)}); }}\n"
            self.assets = {**self.assets, "accent.css": made_asset("accent.css", style.encode())}
        port = urlsplit(self.url).port
        owner = f"operator_{f'{port}_' if port else ''}" if self.operator else ""
        self.cookies = Cookies(secure=self.url.startswith("https://"), owner=owner)
        self._environment = Environment(
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_visible,
        )
        self._environment.globals.update(
            asset=lambda name: self.assets[name].path,
            bar=bar,
            campus=self,
            chart=chart,
            form_field=FIELD,
            intervals=intervals,
            form_token=lambda: _current.get().form_token(),
            place=self.place,
            slots=slots,
            sparkline=sparkline,
            here=_path,
            is_signed_in=lambda: _current.get().signed_in,
        )
        words = {"content": content, "first_sentence": first_sentence, "from_now": from_now, "moment": moment, "product": self.product}
        self._environment.filters.update(words, pretty=pretty_json, prose=prose)
        self.own = self.pages_of([TEMPLATES])

    def product(self, name: str) -> str:
        words = name.replace("-", " ").replace("_", " ")
        return self.product_titles.get(name) or words[:1].upper() + words[1:]

    def pages_of(self, folders: Iterable[Path], texts: Mapping[str, str] | None = None, *, name: str = "") -> "Pages":
        """The pages of the building `name`, whose templates are in these folders, or `texts`; its names cannot hide those of campus."""
        replaced = [self.templates] if self.templates else []
        shipped: BaseLoader = ChoiceLoader([DictLoader(texts or {}), FileSystemLoader(list(folders))])
        prefixes = {
            "campus": FileSystemLoader([*replaced, TEMPLATES]),
            SHIPPED.rstrip("/"): ChoiceLoader([FileSystemLoader(TEMPLATES), shipped]),
        }
        first = FileSystemLoader([path for folder in replaced for path in (folder / name, folder)])
        return Pages(self, self._environment.overlay(loader=ChoiceLoader([PrefixLoader(prefixes), first, shipped])))

    def cookies_of(self, request: Request | None) -> Cookies:
        """The cookies of a visitor. The operator's listener has no public address: the scheme of the request decides."""
        if not self.operator or request is None:
            return self.cookies
        return replace(self.cookies, secure=request.url.scheme == "https")

    async def checked_form(self, request: Request, *, repeats: bool = False) -> Mapping[str, str]:
        """The fields of a form with its visitor's token, which is answered once, or each time if it `repeats`; see campus.layout.answers.

        Problem 403 if the token is not the visitor's, and as read_fields. The page of a refusal repeats what was typed, with a new token
        if a page of this service sent it.
        """
        fields, cookies = await read_fields(request), self.cookies_of(request)
        token = fields.pop(FIELD, "")
        form = PostedForm(request, token, fields, cookies, self.kept, self._refused_form, repeats=repeats)
        if is_token_of(cookies.secret_of(request), token):
            await form.begin()
            request.scope[FORM] = form
            return fields
        if is_from_here(request):
            request.scope[FORM] = form
        raise fixed_problem("form_expired")

    def note_form(self, request: Request) -> None:
        """Keep the page that answers a form without a token, if a page of this service sent it: programs of mail follow no redirect."""
        if request.method not in ("GET", "HEAD") and is_from_here(request):
            request.scope[FORM] = PostedForm(request, "", {}, self.cookies_of(request), self.kept, self._refused_form, repeats=True)

    async def show_answer(self, request: Request) -> Response:
        """What a form of this browser was answered. Problem 404 for any other browser, and for any other name."""
        context_of(request.scope).is_personal = True
        name, cookies = request.path_params["name"], self.cookies_of(request)
        data = await self.kept.find(name, cookies.secrets_of(request)) if NAME.fullmatch(name) else None
        if data is None:
            raise fixed_problem("answer_over")
        secret = cookies.secret_of(request) or ""
        return unpacked(data, lambda: new_token(secret))

    def _refused_form(self, form: PostedForm, problem: Problem) -> Response:
        body = problem.body(types=EXPLAINED_AT, request_id=form.request.scope.get("request_id"))
        shown = self._shown(form.request.scope, body, problem.headers.get("Retry-After", ""), form)
        return self.own.page("error.html", form.request, status=problem.status, headers=problem.headers, **shown)

    def _shown(self, scope: Scope, problem: Mapping[str, Any], retry_after: str, form: PostedForm | None = None) -> dict[str, Any]:
        """The variables of the page of a problem."""
        keys = [one for one in problem.get("unlock") or () if "product" in one]
        return {"problem": problem, "keys": keys, "retry_after": retry_after, "tool": self.tool_page(scope["path"]), "form": form}

    def problem_page(self, scope: Scope, problem: Mapping[str, Any], form: Form, retry_after: str) -> bytes | None:
        """A problem as a page, with what a person can do about it; None for an agent that asked a tool for Markdown, which reads JSON."""
        tool = self.tool_page(scope["path"])
        if form == "markdown" and tool:
            return None
        page = self.own.run("error.html", Rendering(Request(scope), self.cookies), self._shown(scope, problem, retry_after))
        return (markdown_of(page) if form == "markdown" else page).encode()


def problem_headers(page: bytes, form: Form) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", SENT_AS[form].encode()),
        (b"content-length", b"%d" % len(page)),
        (b"content-security-policy", CONTENT_POLICY.encode()),
        (b"cache-control", b"no-store"),
        (b"vary", b"Accept"),
    ]


class Pages:
    def __init__(self, layout: Layout, environment: Environment) -> None:
        self.layout = layout
        self.environment = environment
        self._stored: LatestEntries[StoredKey, tuple[Mapping[str, Any], Any, Sequence[Link]]] = LatestEntries(STORED_PAGES)

    def findings(self) -> list[str]:
        found = []
        for name in self.environment.list_templates(filter_func=lambda name: not name.startswith(("campus/", SHIPPED))):
            try:
                self.environment.get_template(name)
            except TemplateSyntaxError as error:
                found.append(f"its template {name} cannot be read: line {error.lineno}: {error.message}")
        return found

    def page(
        self,
        template: str,
        request: Request,
        /,
        *,
        data: object = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **variables: Any,
    ) -> Response:
        offered: tuple[Form, ...] = ("html", "markdown") if data is None else ("json", "html", "markdown")
        form = form_for(request, offered)
        cookies = self.layout.cookies_of(request)
        rendering = Rendering(request, cookies)
        body = to_json(data) if form == "json" else self._rendered(template, form, rendering, variables)
        is_personal = rendering.signed_in or context_of(request.scope).is_personal
        is_private = rendering.secret is not None or is_personal or request.method not in ("GET", "HEAD")
        all_headers = {"vary": "Accept", "cache-control": "no-cache", **{name.lower(): value for name, value in (headers or {}).items()}}
        if form == "html":
            all_headers["content-security-policy"] = CONTENT_POLICY
        if is_private:
            all_headers["cache-control"] = PRIVATE
        if self.layout.links:
            all_headers["link"] = self.layout.links
        response = Response(body, status, headers=all_headers, media_type=SENT_AS[form])
        if rendering.secret is not None and rendering.secret != cookies.secret_of(request):
            cookies.put(response, cookies.form, rendering.secret)
        return response if is_private or status != 200 else unless_known(response, request)

    def part(self, template: str, request: Request | None = None, /, **variables: Any) -> Markup:
        rendering = Rendering(request, self.layout.cookies_of(request))
        return self._made((template, "", "html", False), rendering, variables, Markup)  # which its template escaped

    def _rendered(self, template: str, form: Form, rendering: Rendering, variables: Mapping[str, Any]) -> bytes:
        path = rendering.request.scope["path"] if rendering.request else ""
        key = template, path, form, rendering.signed_in
        return self._made(key, rendering, variables, lambda text: (markdown_of(text) if form == "markdown" else text).encode())

    def _made(self, key: StoredKey, rendering: Rendering, variables: Mapping[str, Any], made_of: Callable[[str], Made]) -> Made:
        """What is made of a rendered template: that of the last time, if that was from the same values, with the same navigation.

        None is kept that holds a visitor's token, or was made of objects that can change.
        """
        navigation = self.layout.navigation
        variables_then, stored, navigation_then = self._stored.get(key, ({}, None, ()))
        is_of_the_same = navigation_then is navigation and variables_then.keys() == variables.keys()
        if stored is not None and is_of_the_same and all(_is_same(variables_then[name], value) for name, value in variables.items()):
            return cast(Made, stored)
        made = made_of(self.run(key[0], rendering, variables))
        if rendering.secret is None and all(_is_settled(value) for value in variables.values()):
            self._stored[key] = variables, made, navigation
        return made

    def run(self, template: str, rendering: Rendering, variables: Mapping[str, Any]) -> str:
        reset = _current.set(rendering)
        try:
            return self.environment.get_template(template).render(variables)
        finally:
            _current.reset(reset)


def unless_known(response: Response, request: Request) -> Response:
    """The response with an ETag, or 304 to a caller that has it."""
    etag = response.headers["ETag"] = etag_of(bytes(response.body))
    answer = Answer(response.status_code, b"", ((b"etag", etag.encode()),))
    if or_not_modified(answer, request.scope) is answer:
        return response
    headers = {name: value for name, value in response.headers.items() if name not in ("content-length", "content-type")}
    return Response(status_code=304, headers=headers)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Problem) and isinstance(other, Problem):
        return one.body() == other.body()
    return type(one) is type(other) and isinstance(one, str | int | float | date | BaseModel) and one == other


def _is_settled(value: Any) -> bool:
    """True for values that never change: plain ones, problems, frozen models whose members can be hashed, and tuples of such."""
    if isinstance(value, tuple):
        return all(map(_is_settled, value))
    if isinstance(value, BaseModel) and value.model_config.get("frozen"):
        try:
            hash(value)
        except TypeError:
            return False
        return True
    return value is None or isinstance(value, str | int | float | date | Problem)


def _path() -> str:
    request = _current.get().request
    return request.scope["path"] if request else ""


def moment(value: datetime | None) -> str:
    """A time for people, in UTC: 2026-11-22 13:30:05."""
    return f"{value:%Y-%m-%d %H:%M:%S}" if value else ""


def from_now(value: datetime | None, now: datetime) -> str:
    """How far away a time is: `in 5 min` or `5 min ago`; nothing for None."""
    if value is None:
        return ""
    return f"in {in_words(value - now)}" if value > now else f"{in_words(now - value)} ago"


def _visible(value: object) -> object:
    """What a template shows. Characters that turn the direction of the text around them are shown as JSON and Python escape them."""
    return TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", value) if type(value) is str and not value.isascii() else value


def first_sentence(text: str) -> str:
    text = text.partition(". ")[0].rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def pretty_json(value: object) -> str:
    """A value as indented JSON."""
    return json.dumps(json.loads(to_json(value, inf_nan_mode="null")), indent=2, ensure_ascii=False)


def content(text: str) -> Markup:
    """A text between tags, where quotes need no escape, which is five times their length."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(_visible(text)), quote=False))  # noqa: S704  # escaped


def prose(text: str) -> Markup:
    """Plain text with `names` in code quotes, as tools describe themselves; everything else in it is text."""
    parts = [escape(_visible(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a quote without its partner
        return escape(_visible(text))
    return Markup("").join(Markup("<code>%s</code>") % part if index % 2 else part for index, part in enumerate(parts))


def template_folders(functions: Iterable[Callable[..., Any]]) -> list[Path]:
    """For each function the nearest folder `templates` beside its module or above it, up to the top of its package."""
    found: dict[Path, None] = {}
    for function in functions:
        target = inspect.unwrap(function)
        file = Path(inspect.getfile(target))
        depth = max(target.__module__.count(".") + (file.name == "__init__.py"), 1)
        found |= dict.fromkeys([folder / "templates" for folder in file.parents[:depth] if (folder / "templates").is_dir()][:1])
    return list(found)
