"""OpenAPI 3.0.3 documents, made from operations: nothing about a tool is written twice."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from twins.openapi_components import PROBLEM, Components, in_capitals
from twins.openapi_schema import Schema, without_null, without_own_title
from twins.operation import QUERY_METHODS, Operation, Parameter
from twins.problems import PROBLEM_JSON, title_of

JSON = "application/json"
Additions = Callable[[Operation], Mapping[str, Any]]
Grouped = Iterable[Operation] | Mapping[str, Iterable[Operation]]


def openapi(
    operations: Grouped,
    *,
    title: str,
    version: str,
    description: str = "",
    servers: Sequence[str] = (),
    responses: Additions = lambda operation: {},
    extras: Additions = lambda operation: {},
    components: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of these operations, as plain data.

    The operations of several servers are given by name: a name is their tag and goes before their operationIds, which
    otherwise are the tools' names. `servers` are base addresses. `responses` gives further responses of an operation
    by status (`problem_response` makes one), `extras` further members of it (security, x-…), `components` further
    components (securitySchemes, schemas). HEAD, which every GET that only reads has, is not listed.

    Raises ValueError where two operations would have one operationId.
    """
    given = dict(components or {})
    book = Components(given.pop("schemas", {}))
    paths: dict[str, dict[str, Any]] = {}
    for identity, operation, method, group in _identified(operations):
        said = _operation(operation, method, book) | {"operationId": identity} | ({"tags": [group]} if group else {})
        said["responses"] |= responses(operation)
        path = paths.setdefault(operation.path, {})
        if method.lower() in path:
            raise ValueError(f"two operations are at {method} {operation.path}; one of them is {identity!r}")
        path[method.lower()] = said | dict(extras(operation))
    info = {"title": title, "version": version} | ({"description": description} if description else {})
    document: dict[str, Any] = {"openapi": "3.0.3", "info": info}
    if servers:
        document["servers"] = [{"url": url} for url in servers]
    return document | {"paths": paths, "components": {"schemas": book.schemas, **given}}


def problem_response(description: str) -> dict[str, Any]:
    """A response whose body is a problem."""
    return {"description": description, "content": {PROBLEM_JSON: {"schema": {"$ref": f"#/components/schemas/{PROBLEM}"}}}}


def _identified(operations: Grouped) -> list[tuple[str, Operation, str, str]]:
    """Each operation under each of its methods, with its operationId and the name of its group."""
    groups = operations if isinstance(operations, Mapping) else {"": operations}
    taken: dict[str, tuple[str, Operation, str, str]] = {}
    for group, members in groups.items():
        for operation in members:
            for index, method in enumerate(operation.methods):
                parts = [group, operation.name, method.lower() if index else ""]
                identity = "_".join(part for part in parts if part)
                if identity in taken:
                    other = taken[identity][1].path
                    raise ValueError(f"{other} and {operation.path} would both have the operationId {identity!r}; name their servers apart")
                taken[identity] = identity, operation, method, group
    return list(taken.values())


def _operation(operation: Operation, method: str, book: Components) -> dict[str, Any]:
    said: dict[str, Any] = {}
    text = (operation.tool.description or "").strip()
    if summary := operation.tool.title or text.partition("\n")[0]:
        said["summary"] = summary
    if text:
        said["description"] = text
    in_query = method in QUERY_METHODS
    if parameters := [_parameter(each, operation, book) for each in operation.parameters if each.in_path or in_query]:
        said["parameters"] = parameters
    sent_in_body = [each for each in operation.parameters if not each.in_path]
    if sent_in_body and not in_query:
        said["requestBody"] = _body(sent_in_body, operation, book)
    said["responses"] = _responses(operation, method, book)
    return said


def _parameter(parameter: Parameter, operation: Operation, book: Components) -> dict[str, Any]:
    # Nothing spells null: whoever means it leaves the parameter out.
    sent = parameter.schema if parameter.decoder.as_json else without_null(parameter.schema)
    schema = book.inline(without_own_title(parameter.name, sent), operation)
    said: dict[str, Any] = {
        "name": parameter.wire,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.required or parameter.in_path,
    }
    if description := schema.pop("description", None):
        said["description"] = description
    if parameter.decoder.as_json:
        return said | {"content": {JSON: {"schema": schema}}}
    return said | {"schema": schema or {"type": "string"}}


def _body(sent: Sequence[Parameter], operation: Operation, book: Components) -> dict[str, Any]:
    required = [each.name for each in sent if each.required]
    schema: Schema = {
        "type": "object",
        "properties": {each.name: book.inline(without_own_title(each.name, each.schema), operation) for each in sent},
    }
    if required:
        schema["required"] = required
    if operation.route.any_of:
        schema["allOf"] = [{"anyOf": [_with_argument(each, operation, book) for each in sent if each.name in operation.route.any_of]}]
    if not operation.accepts_unknown:
        schema["additionalProperties"] = False
    return {"required": bool(required), "content": {JSON: {"schema": schema}}}


def _with_argument(parameter: Parameter, operation: Operation, book: Components) -> Schema:
    """An object that has this argument, and not as null.

    Within an allOf: an anyOf beside the properties makes openapi-python-client forget these.
    """
    schema = book.inline(without_null(parameter.schema), operation)
    said = {name: value for name, value in schema.items() if name not in ("description", "title")}
    return {"type": "object", "required": [parameter.name], "properties": {parameter.name: said}}


def _responses(operation: Operation, method: str, book: Components) -> dict[str, Any]:
    output = operation.tool.output_schema
    schema = book.named(_result_name(operation), output, operation) if output else {"type": "object"}
    found: dict[str, Any] = {str(operation.status): {"description": title_of(operation.status), "content": {JSON: {"schema": schema}}}}
    return found | {"default": problem_response("Why the call was not answered.")}


def _result_name(operation: Operation) -> str:
    """A result's component is called as its class, or after its tool."""
    kind = operation.tool.return_type
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.__name__
    return f"{in_capitals(operation.name)}Result"
