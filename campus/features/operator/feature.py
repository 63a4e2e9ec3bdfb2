"""The operator's password, CAMPUS_OPERATOR_PASSWORD; there is no table in campus.toml."""

from collections.abc import Mapping

from pydantic import SecretStr

from campus.errors import ConfigError
from campus.feature import Feature

PASSWORD = "CAMPUS_OPERATOR_PASSWORD"  # noqa: S105  # the variable's name, not a password
SHORTEST_PASSWORD = 12


def password_of(secrets: Mapping[str, SecretStr]) -> str | None:
    """What opens the operator's pages; without it there are none. ConfigError if it cannot be used."""
    secret = secrets.get(PASSWORD)
    if secret is None or not (password := secret.get_secret_value()):
        return None
    if len(password) < SHORTEST_PASSWORD:
        raise ConfigError(
            f"{PASSWORD} has {len(password)} characters; use {SHORTEST_PASSWORD} or more, such as those of openssl rand -base64 18"
        )
    if not password.isprintable() or password != password.strip():
        raise ConfigError(
            f"{PASSWORD} has a blank at its edge, or characters that nobody can type into a form; take them out of the environment"
        )
    return password


feature = Feature(
    "campus.features.operator.opened:building",
    variables={PASSWORD: "Opens the operator's pages on the operator's listener; 12 characters or more. Without it there are none."},
    check_secrets=password_of,
    always=True,
)
