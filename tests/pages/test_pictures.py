"""`make pictures` knows every page: a route that is neither pictured nor named as something else fails here."""

import pytest
from lab.pictures.stages import staged
from lab.pictures.views import OF_OPERATOR, OPERATORS_OTHERS, PICTURED, PROGRAMS, WITHOUT_PICTURE

from campus.features.operator.routes import operators_pages

pytestmark = pytest.mark.anyio


async def test_each_route_of_a_page_is_pictured_or_named_as_something_else() -> None:
    async with staged() as stage:
        table = stage.campus.app
        every = {one.path: one.name for one in table._app._table.entries}  # type: ignore[attr-defined]
        _, entries = operators_pages(stage.campus.service, "a password of the operator")
    its = {one.path for one in entries if " page " in one.name}
    routes = {path for path, name in every.items() if " page " in name}
    assert {one for one in routes - {*PICTURED, *WITHOUT_PICTURE} if not PROGRAMS.search(one)} == set()
    assert {*PICTURED, *WITHOUT_PICTURE} - every.keys() == set(), "they are no routes any more"
    assert {one for one in its - {*OF_OPERATOR} if not OPERATORS_OTHERS.search(one)} == set()
    assert set(OF_OPERATOR) - its == set()
