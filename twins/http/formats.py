"""Other formats of an answer, such as CSV: a result model that can write itself in them, and the choice by the Accept header.

A tool's result model names its formats and the methods that write them:

    class Tides(BaseModel):
        other_formats: ClassVar = {"text/csv": "as_csv"}

        def as_csv(self) -> str: ...

Texts go into CSV by `spreadsheet_text`. JSON stays the format of every answer that the gate sees, that is stored and that MCP sends:
another format is written from it last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp.tools import Tool
from pydantic import BaseModel
from starlette.types import Scope

from twins.http.responses import JSON_HEADER, Answer

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How texts begin that a spreadsheet runs."""
JSON_RANGES = ("application/json", "application/*", "*/*")
VARY = (b"vary", b"Accept")


@dataclass(frozen=True)
class Formats:
    """The other formats of one tool's answers: its result model, and the name of the method that writes each media type."""

    model: type[BaseModel]
    writers: Mapping[str, str]

    def negotiated(self, answer: Answer, scope: Scope) -> Answer:
        """The answer in the format that the request prefers; problems, and whatever is not JSON, as they are."""
        if answer.status != 200 or JSON_HEADER not in answer.headers:
            return answer
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        chosen = preferred(accept, self.writers)
        headers = (*answer.headers, VARY)
        if chosen is None:
            return answer._replace(headers=headers)
        text: str = getattr(self.model.model_validate_json(answer.body), self.writers[chosen])()
        named = (b"content-type", f"{chosen}; charset=utf-8".encode())
        kept = (named if header == JSON_HEADER else header for header in headers if header[0] != b"etag")  # that is of the JSON
        return answer._replace(body=text.encode(), headers=tuple(kept))


def formats_of(tool: Tool) -> Formats | None:
    """The other formats that a tool's result model names; None if there are none."""
    model: Any = tool.return_type
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    writers = getattr(model, "other_formats", None)
    return Formats(model, dict(writers)) if writers else None


def preferred(accept: str, available: Mapping[str, Any]) -> str | None:
    """The available media type that an Accept header prefers, the first of equals; None for JSON, also if nothing fits."""
    ranges = [part.strip().lower() for part in accept.split(",") if part.strip()]
    acceptable = [(quality, one.partition(";")[0].strip()) for one in ranges if (quality := _quality(one)) > 0]
    for _, media_range in sorted(acceptable, key=lambda pair: -pair[0]):
        if media_range in JSON_RANGES:
            return None
        if found := next((one for one in available if media_range in (one, f"{one.partition('/')[0]}/*")), None):
            return found
    return None


def _quality(media_range: str) -> float:
    for parameter in media_range.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def spreadsheet_text(text: str) -> str:
    """A text for CSV: with an apostrophe before it if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
