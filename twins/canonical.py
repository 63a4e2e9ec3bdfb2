"""The canonical form of a call's arguments: equal calls are equal, however they are written. Validated, without defaults. Pure."""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python


def canonical_arguments(
    sent: Mapping[str, Any], validated: Mapping[str, Any], defaults: Mapping[str, Any], *, required: Collection[str]
) -> dict[str, Any]:
    """The arguments that were sent, as JSON values of their `validated` form, without those that equal their default."""
    values = {name: _plain_or(sent[name], validated[name]) for name in sent if name in validated}
    return {name: value for name, value in values.items() if name in required or not _is_default(name, value, defaults)}


def without_nulls(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without nulls, for a tool whose server validates them: most defaults are null."""
    return {name: value for name, value in sent.items() if value is not None}


def plain(value: Any) -> Any:
    """A validated value as JSON values: the same for equal values, for sets in any order and for 5.0 as for 5."""
    match value:
        case BaseModel():
            return plain(dict(value))
        case SecretStr() | SecretBytes():
            return plain(value.get_secret_value())
        case Mapping():
            return {str(plain(key)): plain(member) for key, member in value.items()}
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=_text)
        case list() | tuple():
            return [plain(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return to_jsonable_python(value, bytes_mode="base64")


def _plain_or(sent: Any, validated: Any) -> Any:
    try:
        return plain(validated)
    except PydanticSerializationError:  # an object of the author's own class, which has no JSON form
        return sent


def _is_default(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    return name in defaults and _text(_plain_or(None, defaults[name])) == _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
