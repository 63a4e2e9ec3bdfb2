"""HTTP routes, OpenAPI and problems for any FastMCP server, made from its tools; simple MCP requests are answered directly.

    app = attach(mcp)                                     # MCP at /mcp, every tool's twin, /openapi.json
    twins = await Twins.open(mcp, gate=gate)              # or in parts: operations, and a table of their routes
    operations = await operations_of(mcp)                 # or step by step: the operations first,
    twins = Twins.of(mcp, operations, gate=gate)          # their twins later

Where to look: a tool declares its route (annotation) and becomes an operation (operation), which knows where each argument
is sent and how its text is decoded. Arguments are read (http_arguments, json_reader) and checked (argument_checks). A call
passes the gate (call) and runs the tool's function (direct_call, within tool_context) or goes through its server, and what
it raises becomes a problem (tool_errors, problems). The result becomes JSON (result_json) and an answer (responses, formats).
routes finds the endpoint of a path, openapi_document describes all operations, and attach puts everything together. Over
MCP, bodies are measured first (mcp_bodies), and plain requests take the same way without their server (mcp_endpoint): read
strictly (mcp_messages), called through a gate (mcp_call), and answered (mcp_results, mcp_exchange). What FastMCP keeps to
itself is used in fastmcp_internals only.
"""

from twins.annotation import ROUTE_META, route
from twins.argument_checks import ArgumentChecker
from twins.attach import Twins, attach, operations_of
from twins.call import Call, Gate
from twins.direct_call import RequestDependency
from twins.fastmcp_internals import is_crash, serve_schemas
from twins.formats import spreadsheet_text
from twins.json_reader import Unstorable, has_too_many_values, read_json, require_storable, unstorable_reason
from twins.mcp_bodies import McpBodies
from twins.mcp_call import McpCall, McpGate, McpResult, with_meta
from twins.mcp_endpoint import DirectMcp
from twins.mcp_exchange import Begun, kept_alive
from twins.mcp_messages import ServerAnswers
from twins.openapi_document import openapi, problem_response
from twins.operation import QUERY_METHODS, Operation, Parameter, operation_of, resolve_reference
from twins.problems import FieldError, Problem, invalid_request, is_refusal, pointer_to
from twins.responses import Answer, etag_of, json_answer, or_not_modified, problem_answer, send_answer
from twins.routes import RouteEntry, RouteTable
from twins.tool_errors import log_failure, problem_of_failure

__all__ = [
    "QUERY_METHODS",
    "ROUTE_META",
    "Answer",
    "ArgumentChecker",
    "Begun",
    "Call",
    "DirectMcp",
    "FieldError",
    "Gate",
    "McpBodies",
    "McpCall",
    "McpGate",
    "McpResult",
    "Operation",
    "Parameter",
    "Problem",
    "RequestDependency",
    "RouteEntry",
    "RouteTable",
    "ServerAnswers",
    "Twins",
    "Unstorable",
    "attach",
    "etag_of",
    "has_too_many_values",
    "invalid_request",
    "is_crash",
    "is_refusal",
    "json_answer",
    "kept_alive",
    "log_failure",
    "openapi",
    "operation_of",
    "operations_of",
    "or_not_modified",
    "pointer_to",
    "problem_answer",
    "problem_of_failure",
    "problem_response",
    "read_json",
    "require_storable",
    "resolve_reference",
    "route",
    "send_answer",
    "serve_schemas",
    "spreadsheet_text",
    "unstorable_reason",
    "with_meta",
]
