"""What OpenAPI documents say of background tasks: the answer that accepts one, and the route where it is polled and cancelled."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from campus.catalog.authors import task_path
from campus.catalog.parts import PlanPart, unserved
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.pricing import Offer
from twins import Operation, RouteEntry, problem_response

TEXT = {"type": "string"}
TIME = TEXT | {"format": "date-time"}
TASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A background task.",
    "required": ["id", "tool", "status", "url", "created_at", "deadline", "poll_interval_ms"],
    "properties": {
        "id": TEXT | {"description": "Its id, which nobody can guess. If it was begun without a key, whoever knows it may see the task."},
        "tool": TEXT | {"description": "The tool that runs."},
        "status": TEXT | {"enum": ["working", "completed", "failed", "cancelled"], "description": "How far it is."},
        "url": TEXT | {"format": "uri", "description": "GET it for the state or the result; DELETE it to cancel the task."},
        "created_at": TIME | {"description": "When it was begun."},
        "deadline": TIME | {"description": "When it is stopped if it still runs; nothing is charged then."},
        "poll_interval_ms": {"type": "integer", "description": "How many milliseconds to wait before asking again."},
    },
}
HEADERS = {
    "Location": {"description": "Where the task is polled and cancelled.", "schema": TEXT},
    "Retry-After": {"description": "Seconds to wait before asking again.", "schema": TEXT},
}


def _task_response(description: str, headers: dict[str, Any]) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Task"}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}


ACCEPTED = _task_response("The tool runs as a background task; GET the address in Location for its result.", HEADERS)
ON_REQUEST = _task_response("With `Prefer: respond-async`, the tool runs as a background task; GET the address in Location.", HEADERS)


class TasksPlan(PlanPart):
    """The part of one plan."""

    def __init__(self, config: Config, settings: None, opened: Sequence[OpenBuilding]) -> None:
        self._names = [one.name for one in opened if one.has_tasks]
        self.components = {"schemas": {"Task": TASK_SCHEMA}} if self._names else {}

    def routes(self) -> Iterable[RouteEntry]:
        """Where tasks are polled and cancelled."""
        return [RouteEntry(("GET", "DELETE"), task_path(name), unserved, f"the background tasks of {name}") for name in self._names]

    def responses(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        """202 of a tool that runs as a task, or does so on request."""
        mode = operation.tool.task_config.mode
        return {} if mode == "forbidden" else {"202": ACCEPTED if mode == "required" else ON_REQUEST}

    def paths(self, opened: OpenBuilding, *, grouped: bool) -> Mapping[str, Any]:
        """The route of a building's tasks. With `grouped`, the building is its tag, and the prefix of its operationIds."""
        name = opened.name
        return {task_path(name): _path_item(f"{name}_" if grouped else "", [name] if grouped else [])} if opened.has_tasks else {}


def _path_item(prefix: str, tags: list[str]) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "security": [{"key": []}, {}],
        "parameters": [{"name": "task_id", "in": "path", "required": True, "schema": TEXT, "description": "The task's id."}],
    } | ({"tags": tags} if tags else {})
    failed = {"default": problem_response("Why the tool did not answer, or why there is no such task for this caller.")}
    result = {"description": "The tool's own answer.", "content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        "get": shared
        | {
            "operationId": f"{prefix}poll_background_task",
            "summary": "The result of a background task, once there is one",
            "responses": {"200": result, "202": _task_response("It is running.", HEADERS)} | failed,
        },
        "delete": shared
        | {
            "operationId": f"{prefix}cancel_background_task",
            "summary": "Cancel a background task",
            "responses": {"200": _task_response("The task, cancelled unless it had ended.", {})} | failed,
        },
    }
