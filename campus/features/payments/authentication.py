"""How campus shows a facilitator who it is: a plugin, an entry point of the group `campus.facilitators`, named as `auth` in campus.toml.

It names a function `(facilitator, secret)` that returns an httpx.Auth, or None. `facilitator` is its table of campus.toml;
`secret("TOKEN")` is the environment's CAMPUS_PAYMENTS_<NAME>_TOKEN, with the facilitator's name, and ConfigError where there is none.
"""

from collections.abc import Callable, Generator, Mapping
from importlib.metadata import entry_points
from typing import Protocol

import httpx
from pydantic import SecretStr

from campus.errors import ConfigError, LoadError
from campus.features.payments.feature import FacilitatorTable
from campus.secrets import is_sendable

GROUP = "campus.facilitators"


class Authentication(Protocol):
    """What an entry point of the group names."""

    def __call__(self, facilitator: FacilitatorTable, secret: Callable[[str], str], /) -> httpx.Auth | None: ...


class Bearer(httpx.Auth):
    """Sends a bearer token with each request; `token_for` returns that of a request."""

    def __init__(self, token_for: Callable[[httpx.Request], str]) -> None:
        self._token_for = token_for

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token_for(request)}"
        yield request


def none(facilitator: FacilitatorTable, secret: Callable[[str], str]) -> None:
    """Anybody may ask this facilitator."""


def bearer(facilitator: FacilitatorTable, secret: Callable[[str], str]) -> httpx.Auth:
    """A token that stays the same."""
    token = secret("TOKEN")
    if not is_sendable(token):
        raise ConfigError(f"payments.facilitators: the TOKEN of {facilitator.name} cannot be sent: it has spaces, or what is no ASCII")
    return Bearer(lambda request: token)


def authentication_of(facilitator: FacilitatorTable, secrets: Mapping[str, SecretStr]) -> httpx.Auth | None:
    """That of a facilitator. ConfigError if campus.toml names none that is installed, or if a secret is missing or cannot be used."""
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if (entry := installed.get(facilitator.auth)) is None:
        raise ConfigError(f"payments.facilitators: auth = {facilitator.auth!r} is not installed; there are: {', '.join(sorted(installed))}")

    def secret(name: str) -> str:
        variable = f"CAMPUS_PAYMENTS_{facilitator.name}_{name}".upper()
        if variable not in secrets:
            raise ConfigError(
                f"payments.facilitators: {facilitator.host} has auth = {facilitator.auth!r}, which needs {variable} in the environment"
            )
        return secrets[variable].get_secret_value()

    try:
        make: Authentication = entry.load()
    except Exception as error:  # whatever a stranger's module raises at import is told the operator
        raise LoadError(f"{entry.value} of {GROUP} cannot be imported: {type(error).__name__}: {error}") from error
    return make(facilitator, secret)
