"""OpenAPI 3.0.3 documents, made from operations: nothing about a tool is written twice."""

from collections.abc import Iterable, Mapping
from typing import Any

from twins.operation import Operation


def openapi(operations: Iterable[Operation] | Mapping[str, Iterable[Operation]], *, title: str, version: str, description: str = "") -> dict[str, Any]:
    return {"openapi": "3.0.3", "info": {"title": title, "version": version}, "paths": {}}
