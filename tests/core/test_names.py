"""Nothing in the core names a feature: no identifier, attribute or string is the name of one, and no page of its leads to one."""

import ast
from collections.abc import Iterator
from pathlib import Path

CAMPUS = Path(__file__).parents[2] / "campus"
FEATURES = {folder.name for folder in (CAMPUS / "features").iterdir() if (folder / "feature.py").is_file()}
ALLOWED: dict[tuple[str, str], str] = {}


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(name)):
                yield name


def test_no_file_of_the_core_has_the_name_of_a_feature_beyond_the_words_that_are_allowed() -> None:
    found = set()
    for path in CAMPUS.rglob("*.py"):
        place = path.relative_to(CAMPUS)
        if place.parts[0] != "features":
            found |= {(place.as_posix(), name) for name in names_in(ast.parse(path.read_text())) if name in FEATURES}
    assert found == ALLOWED.keys()
