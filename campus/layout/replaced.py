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
    if parent := _extended_by(tree):
        yield from _dead_blocks(path, tree, environment, parent)
    given = _variables(environment, environment.parse(shipped))
    for strange in sorted(_variables(environment, tree) - given):
        line = min(node.lineno for node in tree.find_all(nodes.Name) if node.name == strange)
        yield f"{path}, line {line}: the page is not given {strange}; it is given {', '.join(sorted(given)) or 'nothing'}"


def _dead_blocks(path: Path, tree: nodes.Template, environment: Environment, parent: str) -> Iterator[str]:
    """A sentence for each block that the extended template does not have: what is in it is shown nowhere."""
    own = {block.name: block for block in tree.find_all(nodes.Block)}
    nested = {inner.name for block in own.values() for inner in block.find_all(nodes.Block)}
    known, above = set[str](), parent
    while above and (source := _source(environment, above)) is not None:
        try:
            extended = environment.parse(source)
        except TemplateSyntaxError:  # a finding of its own
            return
        known |= {block.name for block in extended.find_all(nodes.Block)}
        above = _extended_by(extended)
    for name in sorted(own.keys() - known - nested):
        yield f"{path}, line {own[name].lineno}: {parent} has no block {name}; it has {', '.join(sorted(known)) or 'none'}"


def _extended_by(tree: nodes.Template) -> str:
    """The template that another one extends; "" if none."""
    found = tree.find(nodes.Extends)
    return str(found.template.value) if found and isinstance(found.template, nodes.Const) else ""


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
