"""HTTP routes, OpenAPI and problems for any FastMCP server, made from its tools."""

from twins.annotation import route
from twins.attach import Twins, attach
from twins.call import Call, Gate
from twins.fastmcp_internals import serve_schemas
from twins.injection import Instant
from twins.json_reader import hostile, read_json
from twins.openapi import openapi, problem_response
from twins.operation import Operation, Parameter
from twins.problems import FieldError, Problem
from twins.responses import Answer, problem_answer, send_answer
from twins.routes import Entry, RouteTable

__all__ = [
    "Answer",
    "Call",
    "Entry",
    "FieldError",
    "Gate",
    "Instant",
    "Operation",
    "Parameter",
    "Problem",
    "RouteTable",
    "Twins",
    "attach",
    "hostile",
    "openapi",
    "problem_answer",
    "problem_response",
    "read_json",
    "route",
    "send_answer",
    "serve_schemas",
]
