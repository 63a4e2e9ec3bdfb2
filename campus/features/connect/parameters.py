"""What is wrong with the parameters that a client sent, in plain words: the models are the mcp SDK's, whose errors are pydantic's."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationRequest
from mcp.server.auth.handlers.token import AuthorizationCodeRequest, RefreshTokenRequest
from mcp.shared.auth import OAuthClientMetadata
from pydantic import ValidationError
from pydantic_core import ErrorDetails

WORDS = {
    "is missing": ("missing",),
    "must be a text": ("string_type",),
    "must be a list": ("list_type",),
    "must not be empty": ("too_short",),
    "must be a URL, such as https://example.com": ("url_type", "url_parsing", "url_scheme", "url_syntax_violation", "url_too_long"),
}
"""By pydantic's types of errors. None repeats what was sent."""


def registration_fault(body: bytes) -> str | None:
    return _fault(lambda: OAuthClientMetadata.model_validate_json(body))


def authorization_fault(parameters: Mapping[str, Any]) -> str | None:
    return _fault(lambda: AuthorizationRequest.model_validate(parameters))


def token_fault(form: Mapping[str, Any]) -> str | None:
    model = RefreshTokenRequest if form.get("grant_type") == "refresh_token" else AuthorizationCodeRequest
    return _fault(lambda: model.model_validate(dict(form)))


def described(location: str, description: str) -> str:
    """The address of an OAuth error with another description."""
    parts = urlsplit(location)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "error_description"]
    return parts._replace(query=urlencode([*query, ("error_description", description)])).geturl()


def _fault(read: Callable[[], object]) -> str | None:
    try:
        read()
    except ValidationError as error:
        # of the errors at one place the last counts: of a member that may be one of some words or any text
        found = {_place(one): _words(one) for one in error.errors(include_url=False, include_input=False)}
        return "; ".join(f"{place} {words}" if place else "send a JSON object" for place, words in found.items())
    return None


def _place(error: ErrorDetails) -> str:
    """The parameter, and the number of the item if it is a list."""
    return ".".join(str(part) for number, part in enumerate(error["loc"]) if number == 0 or isinstance(part, int))


def _words(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error['ctx']['expected']}"
    return next((words for words, kinds in WORDS.items() if error["type"] in kinds), "is not valid")
