"""The Markdown form of a page: what its HTML has in <main>, as Markdown, without controls, graphics and most hidden parts."""

import re
from html.parser import HTMLParser
from urllib.parse import quote

HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
BLOCKS = frozenset({"p", "div", "section", "article", "header", "dl", "dt", "dd", "details", "summary", "figure", "ul", "ol", "table"})
OMITTED = frozenset({"script", "style", "svg", "form", "button", "nav", "template", "input", "select", "textarea", "option"})
VOID = frozenset({"br", "hr", "img", "input", "meta", "link", "wbr"})
MARKDOWN_ONLY = "data-markdown"
"""The attribute of what is hidden in HTML and stands in the Markdown form, such as the arguments, which a form shows in HTML."""
CARDS = "cards"  # The class of lists whose items are blocks with headings: they get no marks.
SPECIAL = str.maketrans({each: f"\\{each}" for each in r"\`*_[]<>|"})
FORMS = re.compile(r"<form\b.*?</form>", re.DOTALL)
"""Left out before anything is read: a field may hold a long text that the visitor typed."""
BACKTICKS = re.compile(r"`+")
IN_LINKS = "%/:?#@!$&'*+,;=[]~"
"""Characters of an address that stay as they are; parentheses and blanks would end the link."""


def markdown_of(html: str) -> str:
    parser = _Converter()
    parser.feed(FORMS.sub("", html))
    parser.close()
    lines = [line.rstrip() for line in "".join(parser.parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


class _Converter(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._in_main = 0
        self._omitted: list[str] = []
        self._code = False
        self._pre: int | None = None  # where the text of an open <pre> begins in `parts`
        self._links: list[str | None] = []
        self._lists: list[int | str | None] = []  # of each open list the next number, None for dashes, or CARDS
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_hidden = "hidden" in given and MARKDOWN_ONLY not in given
        if self._omitted or tag in OMITTED or is_hidden or given.get("aria-hidden") == "true":
            if tag not in VOID:
                self._omitted.append(tag)
            return
        if tag == "main":
            self._in_main += 1
        if self._in_main:
            self._open(tag, given)

    def handle_endtag(self, tag: str) -> None:
        if self._omitted:
            if tag == self._omitted[-1]:
                self._omitted.pop()
            return
        if self._in_main:
            self._close(tag)
        if tag == "main":
            self._in_main -= 1

    def handle_data(self, data: str) -> None:
        if not self._in_main or self._omitted:
            return
        if self._pre is not None:
            self.parts.append(data)
        elif self._code:
            self.parts.append(" ".join(data.split()).replace("`", "'"))
        else:
            text = re.sub(r"\s+", " ", data).translate(SPECIAL)
            self.parts.append(text.lstrip() if self._at_line_start() else text)

    def _open(self, tag: str, given: dict[str, str | None]) -> None:
        match tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self.parts.append(f"\n\n{HEADINGS[tag]} ")
            case "ul" | "ol":
                self._lists.append(CARDS if CARDS in (given.get("class") or "").split() else 1 if tag == "ol" else None)
                self.parts.append("\n\n" if len(self._lists) == 1 else "")
            case "li":
                self.parts.append(self._item())
            case "pre":
                self._pre = len(self.parts)
            case "code" if self._pre is None:
                self._code = True
                self.parts.append("`")
            case "a":
                self._links.append(given.get("href"))
                self.parts.append("[")
            case "strong" | "b" | "caption":
                self.parts.append("\n\n**" if tag == "caption" else "**")
            case "tr":
                self._cells = 0
                self.parts.append("\n|")
            case "th" | "td":
                self._cells += 1
                self.parts.append(" ")
            case "br":
                self.parts.append("<br>" if self._cells else "\n")  # a line of Markdown is a row of the table
            case _ if tag in BLOCKS and not self._cells:
                self.parts.append("\n\n")

    def _close(self, tag: str) -> None:
        match tag:
            case "ul" | "ol":
                if self._lists:
                    self._lists.pop()
            case "pre" if self._pre is not None:
                text = "".join(self.parts[self._pre :])
                fence = max(["``", *BACKTICKS.findall(text)], key=len) + "`"  # longer than any in the text, which could end it
                self.parts[self._pre :] = [f"\n\n{fence}\n{text}\n{fence}\n\n"]
                self._pre = None
            case "code" if self._pre is None:
                self._code = False
                self.parts.append("`")
            case "a":
                target = self._links.pop() if self._links else None
                self.parts.append(f"]({quote(target, safe=IN_LINKS)})" if target else "]")
            case "strong" | "b" | "caption":
                self.parts.append("**\n" if tag == "caption" else "**")
            case "th" | "td":
                self.parts.append(" |")
            case "thead":
                self.parts.append("\n|" + " --- |" * self._cells)
                self._cells = 0
            case "table":
                self._cells = 0
                self.parts.append("\n\n")
            case _ if (tag in BLOCKS and not self._cells) or tag in HEADINGS:
                self.parts.append("\n\n")

    def _item(self) -> str:
        indent = "  " * (len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        if number == CARDS:
            return "\n\n"
        if not isinstance(number, int):
            return f"\n{indent}- "
        self._lists[-1] = number + 1
        return f"\n{indent}{number}. "

    def _at_line_start(self) -> bool:
        return not self.parts or self.parts[-1].endswith(("\n", "# ", "- ", "[", "| ", ". ")) or self.parts[-1] in (" ", "|")
