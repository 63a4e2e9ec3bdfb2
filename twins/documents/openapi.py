"""OpenAPI 3.0.3 documents, made from operations: paths, parameters, bodies and responses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from fastmcp.tools import FunctionTool
from fastmcp.tools.base import ToolResult
from mcp_types import CallToolResult
from pydantic import BaseModel

from twins.documents.schema import PROBLEM, Components, Conversions, Schema, in_capitals, used_of, without_null, without_own_title
from twins.http.responses import CONTENT_MEMBER, formats_of
from twins.problems import NO_TYPE, PROBLEM_JSON, Problem, internal_error, title_of
from twins.tool.operation import QUERY_METHODS, Operation, Parameter

JSON = "application/json"
REQUEST_ID = "5f1c9a7e2b8d4360c7a91e5b"  # of examples
DEFAULT = "default"
HEADERS = {
    "Retry-After": {"description": "Seconds to wait before the call is sent again.", "schema": {"type": "integer"}},
    "WWW-Authenticate": {"description": "How the call is authorized (RFC 9110).", "schema": {"type": "string"}},
}
"""Headers that problems are sent with. Others are given as components."""
Additions = Callable[[Operation], Mapping[str, Any]]
Grouped = Iterable[Operation] | Mapping[str, Iterable[Operation]]


def openapi(
    operations: Grouped,
    *,
    title: str,
    version: str,
    description: str = "",
    servers: Sequence[str] = (),
    responses: Callable[[Operation], Iterable[Mapping[str, Any]]] = lambda operation: (),
    extras: Additions = lambda operation: {},
    components: Mapping[str, Any] | None = None,
    conversions: Conversions | None = None,
    problem_types: str = NO_TYPE,
) -> dict[str, Any]:
    """The document of these operations, as plain data.

    The operations of several servers are given as a mapping from server names: a name is the tag of its operations, and
    the prefix of their operationIds, which otherwise are the tools' names. `servers` are base URLs. `responses` returns more
    responses of an operation by status (`problem_response` makes one): what several say of one status is joined. `extras` returns more
    members of it (security, parameters, x-…). `components` has more components (securitySchemes, schemas, headers): those that
    nothing refers to are left out. HEAD, which every read-only GET has, is not listed. Several documents of the same operations
    take half the time when they are given the same dict as `conversions`, empty at first. For `problem_types` see `Problem.body`.

    Raises ValueError if two operations have the same operationId, or the same method and path.
    """
    more = dict(components or {})
    schemas = Components(more.pop("schemas", {}), {} if conversions is None else conversions)
    why = {DEFAULT: problem_response("Why the call was not answered.", internal_error(), types=problem_types)}
    paths: dict[str, dict[str, Any]] = {}
    for identity, operation, method, group in _identified(operations):
        described = _operation(operation, method, schemas) | {"operationId": identity} | ({"tags": [group]} if group else {})
        found = _joined([described["responses"], why, *responses(operation)])
        described["responses"] = {status: _shared(found[status], status, schemas, operation) for status in sorted(found)}
        path = paths.setdefault(operation.path, {})
        if method.lower() in path:
            raise ValueError(
                f'route "{method} {operation.path}" is used by two operations, one of them {identity}; give one of them a different route'
            )
        members = dict(extras(operation))
        if parameters := [*described.get("parameters", ()), *members.pop("parameters", ())]:
            members["parameters"] = parameters
        path[method.lower()] = described | members
    info = {"title": title, "version": version} | ({"description": description} if description else {})
    document: dict[str, Any] = {"openapi": "3.0.3", "info": info}
    if servers:
        document["servers"] = [{"url": url} for url in servers]
    more["headers"] = HEADERS | more.get("headers", {})
    return document | {"paths": paths, "components": used_of(paths, {"schemas": schemas.schemas, "responses": schemas.responses, **more})}


def problem_response(description: str, *examples: Problem, schema: str = PROBLEM, types: str = NO_TYPE) -> dict[str, Any]:
    """A response whose body is a problem: one of these, with their headers. `schema` is the name of its component."""
    media: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    if examples:
        media["examples"] = {each.code: {"value": each.body(types, request_id=REQUEST_ID)} for each in examples}
    headers = {name: {"$ref": f"#/components/headers/{name}"} for each in examples for name in each.headers}
    return {"description": description, **({"headers": headers} if headers else {}), "content": {PROBLEM_JSON: media}}


def _joined(several: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The responses of an operation by status, each with all that was said of it; the last has the word where two differ."""
    found: dict[str, dict[str, Any]] = {}
    for status, response in chain.from_iterable(each.items() for each in several):
        found[status] = _both(found.get(status, {}), response)
    return found


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    inner = [name for name in one.keys() & other.keys() if isinstance(other[name], Mapping) and "value" not in other[name]]
    return {**one, **other, **{name: _both(one[name], other[name]) for name in inner}}


def _shared(response: dict[str, Any], status: str, components: Components, operation: Operation) -> dict[str, Any]:
    """A response with a problem, which many operations have, as a component."""
    if PROBLEM_JSON not in response.get("content", {}):
        return response
    return components.response("Refused" if status == DEFAULT else title_of(int(status)), response, operation)


def _identified(operations: Grouped) -> list[tuple[str, Operation, str, str]]:
    groups = operations if isinstance(operations, Mapping) else {"": operations}
    taken: dict[str, tuple[str, Operation, str, str]] = {}
    for group, members in groups.items():
        for operation in members:
            for index, method in enumerate(operation.methods):
                parts = [group, operation.name, method.lower() if index else ""]
                identity = "_".join(part for part in parts if part)
                if identity in taken:
                    other = taken[identity][1].path
                    raise ValueError(
                        f"{other} and {operation.path} both have the operationId {identity!r}; give their servers different names"
                    )
                taken[identity] = identity, operation, method, group
    return list(taken.values())


def _operation(operation: Operation, method: str, schemas: Components) -> dict[str, Any]:
    described: dict[str, Any] = {}
    text = (operation.tool.description or "").strip()
    if summary := operation.tool.title or text.partition("\n")[0]:
        described["summary"] = summary
    if text:
        described["description"] = text
    in_query = method in QUERY_METHODS
    beside_text = operation.by_wire_name_beside_text.values()
    sent_in_url = [each for each in operation.parameters if each.in_path or in_query or each in beside_text]
    if sent_in_url:
        parameters = [_parameter(each, operation, schemas) for each in sent_in_url]
        described["parameters"] = [one if in_query or one["in"] == "path" else _beside_text(one) for one in parameters]
    sent_in_body = [each for each in operation.parameters if not each.in_path]
    if sent_in_body and not in_query:
        described["requestBody"] = _body(sent_in_body, operation, schemas)
    described["responses"] = _responses(operation, method, schemas)
    return described


def _beside_text(described: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter that is only for a body of text: without a default, which generated clients would send beside a body in JSON too."""
    schema = {keyword: value for keyword, value in described.get("schema", {}).items() if keyword != "default"}
    return {**described, "required": False, **({"schema": schema} if schema else {})}


def _parameter(parameter: Parameter, operation: Operation, schemas: Components) -> dict[str, Any]:
    # null cannot be written in a URL: the caller leaves the parameter out instead.
    sent = parameter.schema if parameter.decoder.as_json else without_null(parameter.schema)
    schema = schemas.inline(without_own_title(parameter.name, sent), operation)
    described: dict[str, Any] = {
        "name": parameter.wire,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.required or parameter.in_path,
    }
    if description := schema.pop("description", None):
        described["description"] = description
    if parameter.decoder.as_json:
        return described | {"content": {JSON: {"schema": schema}}}
    return described | {"schema": schema or {"type": "string"}}


def _body(sent: Sequence[Parameter], operation: Operation, schemas: Components) -> dict[str, Any]:
    required = [each.name for each in sent if each.required]
    schema: Schema = {
        "type": "object",
        "properties": {each.name: schemas.inline(without_own_title(each.name, each.schema), operation) for each in sent},
    }
    if required:
        schema["required"] = required
    if operation.route.any_of:
        schema["allOf"] = [{"anyOf": [_with_argument(each, operation, schemas) for each in sent if each.name in operation.route.any_of]}]
    if not operation.accepts_unknown:
        schema["additionalProperties"] = False
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if operation.route.body is not None:
        # client generators know no text as a body, but they send a file
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"required": bool(required), "content": content}


def _with_argument(parameter: Parameter, operation: Operation, schemas: Components) -> Schema:
    """An object that has this argument, with a value other than null.

    It is used within an allOf: with an anyOf next to the properties, openapi-python-client ignores the properties.
    """
    schema = schemas.inline(without_null(parameter.schema), operation)
    bare = {name: value for name, value in schema.items() if name not in ("description", "title")}
    return {"type": "object", "required": [parameter.name], "properties": {parameter.name: bare}}


def _responses(operation: Operation, method: str, schemas: Components) -> dict[str, Any]:
    output = operation.answer_schema
    schema = schemas.named(_result_name(operation), output, operation) if output else {"type": "object"}
    formats = formats_of(operation.tool)
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if (example := operation.examples.answer()) is not None:
        content[JSON]["example"] = example
    content |= {name: {"schema": {"type": "string"}} for name in (formats.writers if formats else ())}
    may_have_content = bool(output) and (
        not isinstance(operation.tool, FunctionTool) or operation.tool.return_type in (ToolResult, CallToolResult)
    )
    more = f"; images, links and the like that come with it are in its member {CONTENT_MEMBER}, as in MCP" if may_have_content else ""
    return {str(operation.status): {"description": f"{title_of(operation.status)}{more}", "content": content}}


def _result_name(operation: Operation) -> str:
    kind = operation.tool.return_type
    is_wrapped = (operation.tool.output_schema or {}).get("x-fastmcp-wrap-result")
    if isinstance(kind, type) and issubclass(kind, BaseModel) and not is_wrapped:
        return kind.__name__
    return f"{in_capitals(operation.name)}Result"
