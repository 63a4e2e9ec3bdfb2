"""The features that are installed: entry points of the group `campus.features`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from campus.errors import LoadError
from campus.feature import Feature, ServerForm, Settings

GROUP = "campus.features"


@dataclass(frozen=True)
class OpenFeature:
    """A feature with its settings. It stands where a building does: campus runs its jobs, services, checks and gauges as a building's."""

    name: str
    feature: Feature
    settings: Settings | None

    @property
    def loaded(self) -> "OpenFeature":
        """Itself: of a building, what is known before it is opened."""
        return self

    @property
    def runs(self) -> bool:
        """Whether it has jobs, services and checks: without a table that it needs it has none."""
        return self.settings is not None or self.feature.settings is None

    @property
    def grants(self) -> tuple[str, ...]:
        """It sells no keys as a building does."""
        return ()

    @property
    def building(self) -> Any:
        return self.feature.opened


def place_of(feature: str) -> str:
    return f"campus.{feature}"


@cache
def installed_features() -> Mapping[str, Feature]:
    """Every feature by its name. LoadError for one that is none."""
    found: dict[str, Feature] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        feature = entry.load()
        if not isinstance(feature, Feature) or entry.name in found:
            raise LoadError(f"the entry point {entry.name} = {entry.value!r} of {GROUP} names no Feature, or its name is taken")
        found[entry.name] = feature
    return found


def server_forms() -> Mapping[str, ServerForm]:
    return {form.key: form for feature in installed_features().values() for form in feature.servers}


def server_adapters() -> Mapping[str, str]:
    return {kind: maker for feature in installed_features().values() for kind, maker in feature.adapters.items()}


def written_servers() -> str:
    forms = ['"./file.py:server"', '"module:server"', *(form.example for form in server_forms().values())]
    return f"{', '.join(forms[:-1])} or {forms[-1]}"
