"""What its author gets wrong in a feature is one sentence that says what to write."""

import re
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from campus import Building
from campus.config import config_model
from campus.errors import LoadError
from campus.feature import Feature
from campus.installed import OpenFeature, installed_features
from campus.steps import in_order


class Named:
    name = "quiet"


class Misspelt(Named):
    def admited(self) -> None: ...


class Awaited(Named):
    async def arrived(self) -> None: ...


class Nameless:
    def arrived(self) -> None: ...


class First:
    name, before, after = "first", ("second",), ("second",)

    def arrived(self) -> None: ...


class Second(Nameless):
    name = "second"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([Misspelt()], "has admited, which is no moment of a call; write admitted"),
        ([Awaited()], "has async def arrived, which nobody awaits"),
        ([Nameless()], "has no name"),
        ([Named()], "has none of the moments of a call"),
        ([Second(), Second()], "two steps of a call have one name"),
        ([First(), Second()], "follow each other in a circle"),
    ],
)
def test_a_step_that_would_not_be_asked_is_refused(steps: list[Any], said: str) -> None:
    with pytest.raises(LoadError, match=re.escape(said)):
        in_order(steps)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("quiet", "campus.nothing:feature", "the feature quiet (campus.nothing:feature) cannot be imported: ModuleNotFoundError"),
        ("quiet", "campus.errors:LoadError", "names <class 'campus.errors.LoadError'>, not a campus.feature.Feature"),
        ("No-Name", "campus.features.limits.feature:feature", "another feature has that name, or it is none"),
        ("server", "campus.features.limits.feature:feature", "has the name of a table of campus.toml that campus itself reads"),
    ],
)
def test_an_entry_point_that_names_no_feature_is_one_sentence(name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campus.installed.entry_points", lambda group: [EntryPoint(name, value, group)])
    for kept in (installed_features, config_model):
        kept.cache_clear()
    try:
        with pytest.raises(LoadError, match=re.escape(said)):
            config_model()
    finally:
        for kept in (installed_features, config_model):
            kept.cache_clear()


def test_what_a_feature_names_is_a_building_without_a_server() -> None:
    for text, said in (("campus.nothing:building", "cannot be imported"), ("campus.errors:LoadError", "is no Building without a server")):
        with pytest.raises(LoadError, match=said):
            print(OpenFeature("quiet", Feature(text), None).building)
    with pytest.raises(TypeError, match="steps= takes a function or class"):
        Building(steps=[Second()])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match='building= takes a text "module:name"'):
        Feature(Building())  # type: ignore[arg-type]
