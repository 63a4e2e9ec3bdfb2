"""The operator's folder of templates: its files replace the shipped ones of the same names, and are tried once with stand-ins for data."""

import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, TemplateError, TemplateNotFound, TemplateSyntaxError, meta, nodes
from starlette.requests import Request

from campus.layout.renderer import SHIPPED, Pages

REQUEST = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}


class StandIn:
    """In place of whatever a page is given: it has every attribute, is called, counted and compared, and shows nothing."""

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **named: object) -> "StandIn":
        return self

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return ""

    def __format__(self, spec: str) -> str:
        return ""

    def _same(self, other: object = None) -> "StandIn":
        return self

    def _no(self, other: object) -> bool:
        return False

    __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __mod__ = __neg__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _no


def mistakes_in(folder: Path, pages: Mapping[str, Pages]) -> Iterator[str]:
    """A sentence for each file that replaces nothing or cannot be rendered; `pages` are those of features and buildings.

    A file whose name begins with _ is one that others include.
    """
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        part, _, file = name.rpartition("/")
        users = [one for key, one in pages.items() if part in ("", key) and _source(one.environment, SHIPPED + file) is not None]
        if users:
            yield from _mistakes(users[0], name, file, folder)
        elif not file.startswith("_"):
            yield f"{path} replaces no template; name it as one of those that campus has, or begin its name with _ if others include it"


def _variables(environment: Environment, tree: nodes.Template) -> set[str]:
    """What a template needs from its page; what it imports, or sets outside of its blocks, is known in them."""
    imported = {name if isinstance(name, str) else name[1] for found in tree.find_all(nodes.FromImport) for name in found.names}
    imported |= {found.target for found in tree.find_all(nodes.Import)}
    assigned = {name.name for found in tree.find_all(nodes.Assign) for name in found.find_all(nodes.Name) if name.ctx == "store"}
    return meta.find_undeclared_variables(tree) - environment.globals.keys() - imported - assigned


def _source(environment: Environment, name: str) -> str | None:
    assert environment.loader is not None
    try:
        return environment.loader.get_source(environment, name)[0]
    except TemplateError:
        return None


def _mistakes(pages: Pages, name: str, file: str, folder: Path) -> Iterator[str]:
    environment = pages.environment
    source, shipped = (folder / name).read_text("utf-8", "replace"), _source(environment, SHIPPED + file) or ""
    try:
        tree = environment.parse(source)
        wanted, given = _variables(environment, tree), _variables(environment, environment.parse(shipped))
        for strange in sorted(wanted - given):
            line = min(node.lineno for node in tree.find_all(nodes.Name) if node.name == strange)
            yield f"{folder / name}, line {line}: the page is not given {strange}; it is given {', '.join(sorted(given)) or 'nothing'}"
        if not wanted - given:
            pages.rendered(file, Request({**REQUEST}), **dict.fromkeys(wanted | given, StandIn()))
    except TemplateSyntaxError as error:
        yield f"{folder / name}, line {error.lineno}: {error.message}"
    except TemplateNotFound as error:
        yield f"{folder / name} needs the template {error}, and there is none"
    except Exception as error:  # whatever an author's template raises
        trace = traceback.extract_tb(error.__traceback__)
        own = [place for place in trace if place.filename.startswith(str(folder))]
        if own and (isinstance(error, TemplateError) or own[-1] is trace[-1]):  # else a stand-in was not enough for a filter
            yield f"{own[-1].filename}, line {own[-1].lineno}: {error}"
