"""The documentation of campus at /docs: the Markdown files that the distribution carries, in campus's layout."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from campus.building import Building
from campus.catalog.plan import Plan
from campus.http.service_routes import not_found, own_page
from campus.http_parts import HttpPart
from campus.layout.assets import read_assets
from campus.layout.renderer import content, first_sentence
from twins import RouteEntry

PATH = "/docs"
PACKAGE = Path(__file__).parents[2]
FOLDER = next(folder for folder in (PACKAGE / "docs", PACKAGE.parent / "docs") if folder.is_dir())
"""In the wheel a part of the package; in a checkout beside it."""
NAMES = frozenset(path.stem for path in FOLDER.glob("*.md"))
CODE = Markup(
    '<div class="code">\n<div class="code-head"><span>{label}</span>'
    '<button type="button" class="copy" data-copy hidden aria-label="Copy: {label}">Copy</button></div>\n'
    '<pre tabindex="0"><code>{text}</code></pre>\n</div>\n'
)
TITLED = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Document:
    title: str
    about: str
    html: Markup


class DocumentPages(HttpPart):
    """The pages below /docs. Those of tools, at /docs/api, are another's."""

    notices = True
    places: Mapping[str, str] = {"documentation": PATH}

    async def show(self, request: Request) -> Response:
        name = request.path_params.get("name", "index")
        if name not in NAMES:
            raise not_found(self.directory)
        found = document(name)
        contents = _contents(f"{PATH}/{name}") if name != "index" else Markup("")
        return self.pages.page("document.html", request, title=found.title, about=found.about, html=found.html, contents=contents)

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        pictures = [asset.route for asset in read_assets(FOLDER).values()]
        return [own_page(["GET"], PATH, self.show), own_page(["GET"], f"{PATH}/{{name}}", self.show), *pictures]


@cache
def document(name: str) -> Document:
    """A document by one of the NAMES, such as tutorial. It is made once: the files do not change while a process runs."""
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")
    tokens = parser.parse((FOLDER / f"{name}.md").read_text("utf-8"))
    titles, texts = [], []
    for token, inside in pairwise(tokens):
        if token.type == "paragraph_open":
            texts.append(_plain(inside))
        if token.type == "heading_open":
            titles.append(_plain(inside))
            token.attrSet("id", anchor_of(titles[-1]))
        for child in token.children or ():
            _lead(child)
    html = Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704  # the distribution's own files, and no HTML in them
    return Document(titles[0], first_sentence(next(filter(None, texts))), html)


@cache
def _contents(path: str) -> Markup:
    listed = re.sub(r"</a>: [^<]*</li>", "</a></li>", document("index").html.partition("<h2")[2])
    html = re.sub(r"<(/?)h2[^>]*>", r"<\1p>", f"<h2{listed}").replace(f'href="{path}"', f'href="{path}" aria-current="page"')
    return Markup(html)  # noqa: S704  # as above


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as others who render Markdown make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _plain(inside: Token) -> str:
    return "".join(child.content for child in inside.children or () if child.type in ("text", "code_inline"))


def _lead(token: Token) -> None:
    target = str(token.attrGet("href" if token.type == "link_open" else "src") or "")
    page, mark, anchor = target.partition("#")
    if token.type == "link_open" and page.endswith(".md"):
        name = page.removesuffix(".md")
        token.attrSet("href", f"{PATH}{'' if name == 'index' else f'/{name}'}{mark}{anchor}")
    elif token.type == "image":
        token.attrSet("src", read_assets(FOLDER)[target].path)


class _Renderer(RendererHTML):
    """Code that can be copied, and tables that scroll by themselves, as elsewhere in campus."""

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        title = TITLED.search(token.info)
        return CODE.format(label=title[1] if title else token.info or "text", text=content(token.content.rstrip("\n")))

    def table_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return '<div class="table" tabindex="0" role="region" aria-label="Table">\n<table>\n'

    def table_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "</table>\n</div>\n"


building = Building(http=DocumentPages)
