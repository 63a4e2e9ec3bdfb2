"""The features that are installed: entry points of the group `campus.features`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points, version
from typing import Any

from campus.errors import LoadError
from campus.feature import Feature, ServerForm, Settings

GROUP = "campus.features"
NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


@cache
def own_version() -> str:
    return version("mcp-campus")


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
        """What it gives. LoadError if that cannot be imported, or is none."""
        found = self.feature.opened
        if not hasattr(found, "steps") or found.server is not None:
            raise LoadError(f"{self.feature.building} of the feature {self.name} is no Building without a server, but {found!r}")
        return found


def place_of(feature: str) -> str:
    return f"campus.{feature}"


@cache
def installed_features() -> Mapping[str, Feature]:
    """Every feature by its name. LoadError for one that is none."""
    found: dict[str, Feature] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            feature = entry.load()
        except Exception as error:  # whatever a stranger's module raises at import is told the operator
            raise LoadError(f"the feature {entry.name} ({entry.value}) cannot be imported: {type(error).__name__}: {error}") from error
        if not isinstance(feature, Feature):
            raise LoadError(f"the entry point {entry.name} = {entry.value} of {GROUP} names {feature!r}, not a campus.feature.Feature")
        if entry.name in found or not NAME.fullmatch(entry.name):
            rule = "the name is of another feature, or not of small letters, digits and _, a letter first"
            raise LoadError(f"the entry point {entry.name} = {entry.value} of {GROUP}: {rule}")
        found[entry.name] = feature
    return found


def feature_paths() -> list[str]:
    return [path for feature in installed_features().values() for path in feature.paths]


def server_forms() -> Mapping[str, ServerForm]:
    return {form.key: form for feature in installed_features().values() for form in feature.servers}


def server_adapters() -> Mapping[str, str]:
    return {kind: maker for feature in installed_features().values() for kind, maker in feature.adapters.items()}


def written_servers() -> str:
    forms = ['"./file.py:server"', '"module:server"', *(form.example for form in server_forms().values())]
    return f"{', '.join(forms[:-1])} or {forms[-1]}"
