"""The operator's folder of templates, whose files replace the shipped ones of the same names: what `campus check` finds wrong there."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, TemplateError, TemplateSyntaxError, meta, nodes

from campus.layout.renderer import SHIPPED, Pages


def mistakes_in(folder: Path, pages: Mapping[str, Pages]) -> Iterator[str]:
    """A sentence for each file that replaces nothing, cannot be read, or needs what there is not; `pages` are those of features and
    buildings. A file whose name begins with _ is one that others include."""
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        part, _, file = name.rpartition("/")
        shipped = ((one.environment, _source(one.environment, SHIPPED + file)) for key, one in pages.items() if part in ("", key))
        replaced = next(((environment, source) for environment, source in shipped if source is not None), None)
        if replaced is not None:
            yield from _mistakes(path, *replaced)
        elif not file.startswith("_"):
            yield f"{path} replaces no template; name it as one of those that campus has, or begin its name with _ if others include it"


def _mistakes(path: Path, environment: Environment, shipped: str) -> Iterator[str]:
    try:
        tree = environment.parse(path.read_text("utf-8", "replace"))
    except TemplateSyntaxError as error:
        yield f"{path}, line {error.lineno}: {error.message}"
        return
    for name in meta.find_referenced_templates(tree):
        if name is not None and _source(environment, name) is None:
            yield f"{path} needs the template {name}, and there is none"
    given = _variables(environment, environment.parse(shipped))
    for strange in sorted(_variables(environment, tree) - given):
        line = min(node.lineno for node in tree.find_all(nodes.Name) if node.name == strange)
        yield f"{path}, line {line}: the page is not given {strange}; it is given {', '.join(sorted(given)) or 'nothing'}"


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
