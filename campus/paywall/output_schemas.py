"""Output schemas as they are listed over MCP: a result or a refusal, in the form that all MCP clients accept."""

from collections.abc import Mapping
from typing import Any

PROBLEM_FIELDS: Mapping[str, dict[str, Any]] = {
    "type": {"type": "string"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "code": {"type": "string"},
    "request_id": {"type": "string"},
    "errors": {"type": "array"},
    "unlock": {"type": "array"},
    "x402Version": {"type": "integer"},
    "error": {"type": "string"},
    "resource": {"type": "object"},
    "accepts": {"type": "array"},
    "extensions": {"type": "object"},
}
"""Those of a problem, then those of x402's terms, which stand beside them in a 402."""
REFUSAL = {"required": ["code", "status", "detail"]}
STRICT = ("required", "additionalProperties", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else")
"""What a result must fulfil and a problem need not."""


def with_refusals(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, also true of a problem, with or without terms of payment.

    Some clients check a refusal's structured content against the tool's output schema and throw away what does not fit.
    So what a result must fulfil moves into one arm of an anyOf and the problem's members into the other, and a member
    that has another type in a problem may be of either type. Results themselves stay as strict as they are.
    """
    properties = {
        name: {"anyOf": [field, PROBLEM_FIELDS[name]]} if name in PROBLEM_FIELDS else field
        for name, field in schema.get("properties", {}).items()
    }
    widened = {key: value for key, value in schema.items() if key not in STRICT}
    result = {key: schema[key] for key in STRICT if key in schema and key != "additionalProperties"}
    return {**widened, "properties": properties, "anyOf": [result, REFUSAL]}
