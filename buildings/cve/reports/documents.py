"""Decodes what was sent. Pure."""

from json import JSONDecodeError, JSONDecoder
from typing import Any

from pydantic_core import from_json

from buildings.cve.reports.findings import Document


def decode(sent: bytes | str) -> Document:
    text = (sent.decode("utf-8", "replace") if isinstance(sent, bytes) else sent).lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")):
        return Document("text", text)
    try:
        return Document("json", from_json(text.encode("utf-8", "replace")))
    except ValueError:
        values = _stream(text)
        return Document("json", values) if values else Document("text", text)


def _stream(text: str) -> list[Any]:
    values, place, decoder = [], 0, JSONDecoder()
    try:
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            values.append(value)
            place += len(text[place:]) - len(text[place:].lstrip())
    except (JSONDecodeError, RecursionError):
        return []
    return values
