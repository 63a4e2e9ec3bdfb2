"""Nothing in the core names a feature: no identifier, attribute or string is the name of one, and no page leads to one by itself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from campus.installed import feature_paths

CAMPUS = Path(__file__).parents[2] / "campus"
FEATURES = {folder.name for folder in (CAMPUS / "features").iterdir() if (folder / "feature.py").is_file()}
WORDS = {
    "cards": "how Markdown shows rows of a table",
    "connect": "what sockets and databases do",
    "credits": "what a key of a product pays with, which keys have",
    "limits": "those of connections, bodies and deliveries",
    "operator": "who runs the service",
    "seller": "who sells, as the plan, the directory and all pages know it",
    "status": "of a response, a problem or a job",
    "tasks": "a task group of anyio",
    "usage": "what a building says that a key uses of it",
}
"""Names of features that are words of the core too: what they mean there."""
PLACES = {
    ("checks.py", "alerts"): "what a shop lacks whose buildings alert",
    ("checks.py", "mail"): "what a shop lacks whose buildings alert",
    ("cli/running.py", "workers"): "`campus serve --workers`, which the feature with a supervisor answers",
    ("outbound/public_hosts.py", "documentation"): "a range of addresses",
    ("outbound/public_hosts.py", "mail"): "a name of hosts inside",
    ("feature.py", "traces"): "the methods that begin one",
}
PARTS_OF_ANSWERS = {"failure_rules.py"}
"""Files in which what looks like an address is a place in an answer."""


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(name)):
                yield name


def test_the_code_of_the_core_has_the_name_of_no_feature_but_as_a_word_that_is_allowed() -> None:
    files = {path.relative_to(CAMPUS).as_posix(): path for path in CAMPUS.rglob("*.py") if CAMPUS / "features" not in path.parents}
    found = {(place, name) for place, path in files.items() for name in names_in(ast.parse(path.read_text())) if name in FEATURES}
    assert {(place, name) for place, name in found if name not in WORDS} == PLACES.keys()
    assert {name for _, name in found} >= WORDS.keys()


def test_no_page_or_code_of_the_core_has_an_address_of_a_feature() -> None:
    ends = "|".join(re.escape(path.rstrip("/")) for path in feature_paths())
    written = re.compile(rf"""["'](?:{ends})(?:[/?#"'{{]|$)""")
    files = [path for kind in ("py", "html", "js") for path in CAMPUS.rglob(f"*.{kind}") if CAMPUS / "features" not in path.parents]
    assert len(files) > 100
    assert {path.relative_to(CAMPUS).as_posix() for path in files if written.search(path.read_text())} == PARTS_OF_ANSWERS
