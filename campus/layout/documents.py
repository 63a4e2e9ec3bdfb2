"""Markdown files as parts of pages: a document's title, its first sentence, and its HTML. HTML in a file is shown as text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from campus.layout.renderer import content, first_sentence

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


def document_of(text: str, lead: Callable[[Token], None] = lambda token: None) -> Document:
    """The document in a Markdown text; `lead` changes where its links and pictures lead. Title and first sentence may be missing: ""."""
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")
    tokens = parser.parse(text)
    titles, texts = [], []
    for token, inside in pairwise(tokens):
        if token.type == "paragraph_open":
            texts.append(_plain(inside))
        if token.type == "heading_open":
            titles.append(_plain(inside))
            token.attrSet("id", anchor_of(titles[-1]))
        for child in token.children or ():
            lead(child)
    html = Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704  # escaped: the parser passes no HTML on
    sentence = next(filter(None, texts), "")
    return Document(titles[0] if titles else "", sentence and first_sentence(sentence), html)


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as others who render Markdown make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _plain(inside: Token) -> str:
    return "".join(child.content for child in inside.children or () if child.type in ("text", "code_inline"))


class _Renderer(RendererHTML):
    """Code that can be copied, and tables that scroll by themselves, as elsewhere in campus."""

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        title = TITLED.search(token.info)
        return CODE.format(label=title[1] if title else token.info or "text", text=content(token.content.rstrip("\n")))

    def table_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        env["tables"] = env.get("tables", 0) + 1  # each has a name of its own
        return f'<div class="table" tabindex="0" role="region" aria-label="Table {env["tables"]}">\n<table>\n'

    def table_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "</table>\n</div>\n"
