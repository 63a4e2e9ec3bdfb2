"""How values travel to either database."""

import json
from typing import Any


def to_json(value: Any) -> str:
    """Compact JSON; ValueError for NaN and the infinities, which PostgreSQL refuses and SQLite would take."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


OPTIONS: dict[str, Any] = {"json_serializer": to_json, "hide_parameters": True}
"""For every engine; hidden parameters: an error that is logged tells no secrets."""
