"""Strings that break out of pages which do not escape them, and the check that a page is unharmed."""

from html.parser import HTMLParser

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'-alert(1)-'`${alert(1)}`{{ 7 * 7 }}{% raw %}",
    "</code></pre></main><svg onload=document.title='owned'>",
    "javascript:document.title='owned'//\u202egnp.exe",
    f"{'W' * 600}",
)
ALL_AT_ONCE = " ".join(HOSTILE)
SCRIPT_PATHS, IMAGES_PATH = ("/static/campus.", "/static/drop."), "/static/"


class _Reader(HTMLParser):
    """Notes what a strict page does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open_main = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_ours = (given.get("src") or "").startswith({"script": SCRIPT_PATHS, "img": IMAGES_PATH}.get(tag, "\0"))
        if tag in ("script", "style", "iframe", "object", "embed", "base", "img") and not is_ours:
            self.found.append(f"<{tag} {given}>")
        self.found += [f"{name}={value}" for name, value in given.items() if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            if (given.get(name) or "").strip().lower().startswith(("javascript:", "data:")):
                self.found.append(f"{name}={given[name]}")
        self.open_main += tag == "main"


def harm_in(html: str) -> list[str]:
    reader = _Reader()
    reader.feed(html)
    return reader.found + ([] if reader.open_main == 1 else ["main"])
