"""MCP Apps: a tool's result as a page that the caller's host shows, made of the layout's style and of a script that talks to the host."""

from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from fastmcp import FastMCP
from fastmcp.apps.config import UI_MIME_TYPE, AppConfig

from campus.layout.assets import FOLDER

SCHEME = "ui://"  # Resources of this scheme are apps: anybody may read them, for they hold no data.
HOST_SCRIPT = Path(__file__).with_name("app.js")


def add_app(server: FastMCP[Any], uri: str, *, title: str, body: str) -> AppConfig:
    """Add an app to `server` as the resource `uri`, such as ui://tides/table.html; pass the result as `app=` to the tools that it shows.

    `body` is HTML, trusted as code is. Its script calls `app.start({show})`: `show(result, view)` receives each structured result and
    puts it into the element `view`. `app.element(tag, content, attributes)` makes elements whose texts are no HTML; `app.call(tool,
    arguments)` calls a tool of the same server by way of the host, and `app.open(url)` opens a page. Such a page has no network
    of its own.
    """
    page = _page(title, body)

    @server.resource(uri, name=title, mime_type=UI_MIME_TYPE, app=AppConfig(prefers_border=True))
    def app_page() -> str:
        return page

    return AppConfig(resource_uri=uri)


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>\n<style>{_style()}</style>\n'
        f"<script>{HOST_SCRIPT.read_text()}</script></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


@cache
def _style() -> str:
    """The layout's style, without what makes a page as high as its window: the host makes the frame as high as the page."""
    return (FOLDER / "campus.css").read_text() + "body { min-height: 0; padding: .75rem; }\n"
