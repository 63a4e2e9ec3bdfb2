"""The features that are installed: entry points of the group `campus.features`, each a Building without a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from campus.building import Building
from campus.errors import LoadError

GROUP = "campus.features"


@dataclass(frozen=True)
class OpenFeature:
    """A feature of campus.toml with its settings. It stands where a building does, whose jobs, services, checks and gauges campus runs."""

    name: str
    building: Building
    settings: Any

    @property
    def loaded(self) -> "OpenFeature":
        """Itself: of a building, what is known before it is opened."""
        return self

    @property
    def place(self) -> str:
        """What the storage calls its history, in campus's own database."""
        return place_of(self.name)


def place_of(feature: str) -> str:
    """What the storage calls a feature's history."""
    return f"campus.{feature}"


@cache
def installed_features() -> Mapping[str, Building]:
    """Every feature by its name. LoadError for one that is none."""
    found: dict[str, Building] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        feature = entry.load()
        if not isinstance(feature, Building) or feature.server is not None or entry.name in found:
            raise LoadError(f"the entry point {entry.value!r} of {GROUP} names no Building without a server, or its name is taken")
        found[entry.name] = feature
    return found
