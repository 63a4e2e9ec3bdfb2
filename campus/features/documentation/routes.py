"""The documentation of campus at /docs: the Markdown files that the distribution carries, in campus's layout."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

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
from campus.layout.documents import Document, document_of
from twins import RouteEntry

PATH = "/docs"
PACKAGE = Path(__file__).parents[2]
FOLDER = next(folder for folder in (PACKAGE / "docs", PACKAGE.parent / "docs") if folder.is_dir())
"""In the wheel a part of the package; in a checkout beside it."""
NAMES = frozenset(path.stem for path in FOLDER.glob("*.md"))


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
    return document_of((FOLDER / f"{name}.md").read_text("utf-8"), _lead)


@cache
def _contents(path: str) -> Markup:
    listed = re.sub(r"</a>: [^<]*</li>", "</a></li>", document("index").html.partition("<h2")[2])
    html = re.sub(r"<(/?)h2[^>]*>", r"<\1p>", f"<h2{listed}").replace(f'href="{path}"', f'href="{path}" aria-current="page"')
    return Markup(html)  # noqa: S704  # as above


def _lead(token: Token) -> None:
    target = str(token.attrGet("href" if token.type == "link_open" else "src") or "")
    page, mark, anchor = target.partition("#")
    if token.type == "link_open" and page.endswith(".md"):
        name = page.removesuffix(".md")
        token.attrSet("href", f"{PATH}{'' if name == 'index' else f'/{name}'}{mark}{anchor}")
    elif token.type == "image":
        token.attrSet("src", read_assets(FOLDER)[target].path)


building = Building(http=DocumentPages)
