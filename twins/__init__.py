"""HTTP routes, OpenAPI and problems for any FastMCP server, made from its tools.

    app = attach(mcp)                                     # MCP at /mcp, every tool's twin, /openapi.json
    twins = await Twins.open(mcp, gate=gate)              # or by parts: operations and a table of routes

Where to look: a tool says its route (annotation), becomes an operation, whose arguments are read (arguments, spelling,
json_reader), and is called past a gate (call) by the quick way (direct) or through its server; what it returns becomes
bytes (results, responses); endpoint and routes are the ASGI side; openapi tells it all.
"""

from twins.annotation import route
from twins.attach import Twins, attach
from twins.call import Call, Gate
from twins.fastmcp_internals import serve_schemas
from twins.field_errors import FieldError
from twins.injection import RequestDependency
from twins.json_reader import Unstorable, read_json, storable, unstorable_reason
from twins.openapi import openapi, problem_response
from twins.operation import Operation, Parameter
from twins.problems import Problem
from twins.responses import Answer, problem_answer, send_answer
from twins.routes import RouteEntry, RouteTable

__all__ = [
    "Answer",
    "Call",
    "FieldError",
    "Gate",
    "Operation",
    "Parameter",
    "Problem",
    "RequestDependency",
    "RouteEntry",
    "RouteTable",
    "Twins",
    "Unstorable",
    "attach",
    "openapi",
    "problem_answer",
    "problem_response",
    "read_json",
    "route",
    "send_answer",
    "serve_schemas",
    "storable",
    "unstorable_reason",
]
