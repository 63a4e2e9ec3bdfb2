"""The sheet: an index of all pictures, by page and state, with what was found wrong first."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from lab.pictures.painting import Picture

STYLE = """body{font:14px system-ui;margin:16px;background:#777;color:#fff}h1,h2{margin:24px 0 8px}h3{margin:12px 0 4px;font-size:14px}
nav{columns:4}a{color:#fff}.row{display:flex;gap:8px;align-items:flex-start}.row img{max-height:600px;border:1px solid #000}
.phone img{width:195px}.desktop img{width:480px}figure{margin:0;overflow:hidden;max-height:640px}
figcaption{font-size:11px}.bad{color:#fd0}"""


def written(pictures: Sequence[Picture], folder: Path) -> Path:
    ordered = sorted(pictures, key=lambda one: one.view.group)
    groups = [(group, list(some)) for group, some in groupby(ordered, key=lambda one: one.view.group)]
    parts = [f"<!doctype html><meta charset=utf-8><title>Pictures</title><style>{STYLE}</style><h1>{len(pictures)} pictures</h1>"]
    parts += [f"<p class=bad>{escape(line)}" for line in complaints(pictures)]
    parts += ["<nav>", *(f'<a href="#{escape(group)}">{escape(group)}</a><br>' for group, _ in groups), "</nav>"]
    for group, some in groups:
        parts.append(f'<h2 id="{escape(group)}">{escape(group)}</h2>')
        for name in dict.fromkeys(one.view.name for one in some):
            shown = [one for one in some if one.view.name == name]
            parts.append(f"<h3>{escape(name)} <small>{escape(shown[0].view.path)} {shown[0].size:,} B</small></h3><div class=row>")
            parts += [_figure(one) for one in shown]
            parts.append("</div>")
    index = folder / "index.html"
    index.write_text("\n".join(parts))
    return index


def _figure(one: Picture) -> str:
    caption = f"{one.look}, {one.height:,} px" + "".join(f"<br><b class=bad>{escape(each)}</b>" for each in one.complaints)
    size = one.look.partition("-")[0]
    return f'<figure class={size}><figcaption>{caption}</figcaption><a href="{one.file}"><img loading=lazy src="{one.file}"></a></figure>'


def complaints(pictures: Sequence[Picture]) -> list[str]:
    return [f"{one.view.group}, {one.view.name}, {one.look}: {each}" for one in pictures for each in one.complaints]
