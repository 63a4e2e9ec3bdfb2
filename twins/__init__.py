"""HTTP routes, OpenAPI and problems for any FastMCP server, made from its tools; simple MCP requests are answered directly.

    app = attach(mcp)                                     # MCP at /mcp, every tool's twin, /openapi.json
    twins = await Twins.open(mcp, gate=gate)              # or in parts: operations, and a table of their routes
    operations = await operations_of(mcp)                 # or step by step: the operations first,
    twins = Twins.of(mcp, operations, gate=gate)          # their twins later

Where to look: a tool declares its route (tool.annotation) and becomes an operation (tool.operation), which knows where each
argument is sent and how its text is decoded; of its schemas (tool.schemas) examples are made (tool.examples). Arguments are read
(http.arguments, http.json_reader) and checked against what the tool publishes (tool.arguments). A call passes the gate (http.call) and
runs the tool's function (tool.direct_call, within tool.context) or goes through its server; if its caller hangs up it is cancelled
(tool.hang_up), and what it raises becomes a problem (tool.errors, problems). The result is held against what is published of it and
becomes JSON (tool.results) and an answer (http.responses). http.routes finds the endpoint of a path, documents describes all operations,
and attach puts everything together. Over MCP, bodies are measured first (mcp.bodies), and plain requests take the same way without their
server (mcp.endpoint): read strictly (mcp.messages), called through a gate and answered (mcp.call, mcp.exchange). Whether all this still
describes the server, catalog asks before each call. What FastMCP keeps to itself is used in the module fastmcp; where a release lacks
something of it, tool.context says so, and the server answers every call.
"""

from twins.attach import Twins, attach, operation_from, operations_of
from twins.catalog import Catalog, WhileItHolds
from twins.documents.openapi import openapi, problem_response
from twins.fastmcp import (
    RAW_RESULTS,
    extensions_of,
    hides_tools,
    is_crash,
    raw_result,
    result_as_json,
    runs_as_task,
    serve_schemas,
    server_info,
    synthetic_tools,
)
from twins.http.call import Call, Gate, ToolOnServer
from twins.http.json_reader import has_too_many_values, read_json, require_storable, unstorable_reason
from twins.http.responses import (
    CONTENT_MEMBER,
    Answer,
    CurrentFormat,
    body_of_result,
    etag_of,
    json_answer,
    or_not_modified,
    problem_answer,
    send_answer,
    spreadsheet_text,
)
from twins.http.routes import ANY, MethodTable, RouteEntry, RouteTable
from twins.mcp.bodies import McpBodies
from twins.mcp.call import McpCall, McpGate, McpResult, with_meta
from twins.mcp.endpoint import DirectMcp
from twins.mcp.exchange import kept_alive
from twins.mcp.messages import ServerAnswers
from twins.problems import FieldError, Problem, invalid_request, is_refusal, pointer_to, problem_schema
from twins.tool.annotation import ROUTE_META, is_read_only, route
from twins.tool.arguments import ArgumentChecker
from twins.tool.context import requested_with, why_slow
from twins.tool.direct_call import THREADS, DirectTool, RequestDependency
from twins.tool.errors import problem_of, problem_of_result, upstream_failed, upstream_late, upstream_too_long
from twins.tool.hang_up import Begun, ClientDisconnectedError
from twins.tool.operation import QUERY_METHODS, Operation, Parameter, operation_of
from twins.tool.results import as_published, invalid_result
from twins.tool.schemas import resolve_reference, resolved, with_parts

__all__ = [
    "ANY",
    "CONTENT_MEMBER",
    "QUERY_METHODS",
    "RAW_RESULTS",
    "ROUTE_META",
    "THREADS",
    "Answer",
    "ArgumentChecker",
    "Begun",
    "Call",
    "Catalog",
    "ClientDisconnectedError",
    "CurrentFormat",
    "DirectMcp",
    "DirectTool",
    "FieldError",
    "Gate",
    "McpBodies",
    "McpCall",
    "McpGate",
    "McpResult",
    "MethodTable",
    "Operation",
    "Parameter",
    "Problem",
    "RequestDependency",
    "RouteEntry",
    "RouteTable",
    "ServerAnswers",
    "ToolOnServer",
    "Twins",
    "WhileItHolds",
    "as_published",
    "attach",
    "body_of_result",
    "etag_of",
    "extensions_of",
    "has_too_many_values",
    "hides_tools",
    "invalid_request",
    "invalid_result",
    "is_crash",
    "is_read_only",
    "is_refusal",
    "json_answer",
    "kept_alive",
    "openapi",
    "operation_from",
    "operation_of",
    "operations_of",
    "or_not_modified",
    "pointer_to",
    "problem_answer",
    "problem_of",
    "problem_of_result",
    "problem_response",
    "problem_schema",
    "raw_result",
    "read_json",
    "requested_with",
    "require_storable",
    "resolve_reference",
    "resolved",
    "result_as_json",
    "route",
    "runs_as_task",
    "send_answer",
    "serve_schemas",
    "server_info",
    "spreadsheet_text",
    "synthetic_tools",
    "unstorable_reason",
    "upstream_failed",
    "upstream_late",
    "upstream_too_long",
    "why_slow",
    "with_meta",
    "with_parts",
]
