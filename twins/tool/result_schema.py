"""What a tool publishes of its results, as far as its annotation can promise it; and the check that each result keeps it.

FastMCP publishes what pydantic says of an annotation, and strict clients throw away what differs: a time without its zone is none of
the format date-time, a part of a second none of the format duration, and what a serializer without a return type makes is unknown.
"""

import inspect
import logging
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property, lru_cache
from typing import Any

import orjson
from fastmcp.tools import FunctionTool, Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.function_parsing import ParsedFunction
from fastmcp.utilities.json_schema import compress_schema, dereference_refs
from fastmcp.utilities.types import get_cached_typeadapter
from mcp_types import TextContent
from pydantic import PydanticSchemaGenerationError
from pydantic.errors import PydanticUserError
from pydantic_core import core_schema, to_json

from twins.fastmcp import function_of
from twins.fastmcp_names import OutputSchemas
from twins.problems import Problem
from twins.tool.operation import describes_object
from twins.tool.published_schema import PublishedSchema

Schema = dict[str, Any]
WRAPS = "x-fastmcp-wrap-result"
"""Marks an output schema whose only member `result` is what the tool returns."""
BROKEN = "what the tool returned is not what it publishes; nothing is charged, and the log of the server says what is wrong"
LONGEST_SHOWN = 600
logger = logging.getLogger(__name__)


class TrueSchemas(OutputSchemas):
    """JSON schemas that promise no more than every value of a type keeps."""

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> Schema:
        """Of the format only with a zone."""
        made = super().datetime_schema(schema)
        return made if schema.get("tz_constraint") == "aware" else _without_format(made)

    def time_schema(self, schema: core_schema.TimeSchema) -> Schema:
        """Of the format only with a zone."""
        made = super().time_schema(schema)
        return made if schema.get("tz_constraint") == "aware" else _without_format(made)

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> Schema:
        """Never of the format: that has no parts of a second and nothing below zero."""
        return _without_format(super().timedelta_schema(schema))

    def ser_schema(self, schema: Any) -> Schema | None:
        """Anything for a serializer that does not say what it returns."""
        says_nothing = schema["type"] == "function-plain" and schema.get("return_schema") is None
        return {} if says_nothing else super().ser_schema(schema)


def _without_format(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "format"}


def as_published(tool: Tool) -> Tool:
    """The tool with an output schema that all values of its return type keep. One that its author wrote stays as it is."""
    if type(tool) is not FunctionTool or tool.output_schema is None or "InputRequired" in str(tool.return_type):
        return tool
    try:
        true = _true_schema(tool.return_type)
    except TypeError:  # an annotation that cannot be hashed
        true = _true_schema.__wrapped__(tool.return_type)
    own = None if true is None else ParsedFunction.from_function(tool.fn).output_schema
    if true is None or own is None or tool.output_schema not in (own, whole := dereference_refs(own)):
        return tool
    if own.get(WRAPS):
        inner = {name: value for name, value in true.items() if name != "$defs"}
        roots = {"$defs": true["$defs"]} if "$defs" in true else {}
        true = {"type": "object", "properties": {"result": inner}, "required": ["result"], WRAPS: True, **roots}
    elif not describes_object(true, true):
        true = {"type": "object"}
    published = compress_schema(deepcopy(true), prune_titles=True)
    return tool.model_copy(update={"output_schema": dereference_refs(published) if tool.output_schema == whole else published})


@lru_cache(maxsize=1_000)
def _true_schema(annotation: Any) -> Schema | None:
    """What is true of all values of a type; None if that is what FastMCP publishes, or if it publishes nothing."""
    try:
        adapter = get_cached_typeadapter(annotation)
        said, true = (
            adapter.json_schema(mode="serialization", by_alias=False, schema_generator=each) for each in (OutputSchemas, TrueSchemas)
        )
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None
    return None if said == true else true


class InvalidResultProblem(Problem):
    """500 `invalid_result`: the tool returned what it does not publish."""

    def __init__(self, detail: str = BROKEN) -> None:
        super().__init__(500, "invalid_result", detail)


class ResultContract:
    """Compares the results of one tool with the output schema that it publishes."""

    def __init__(self, tool: Tool, *, reveals: bool = False) -> None:
        """With `reveals` a problem says what was returned and what was published, which is for the tool's author alone."""
        self._tool = tool
        self._reveals = reveals

    @cached_property
    def _schema(self) -> PublishedSchema | None:
        """Made for the first result. None, and logged, for a schema that is not checked."""
        if self._tool.output_schema is None:
            return None
        try:
            return PublishedSchema(self._tool.output_schema, is_own=function_of(self._tool) is not None, formats=True)
        except ValueError as error:
            logger.warning("results are not checked", extra={"tool": self._tool.name, "reason": str(error)[:200]})
            return None

    def check(self, structured: bytes) -> None:
        """Raises InvalidResultProblem for structured content, as JSON, that is not what the tool publishes."""
        if self._schema is None:
            return
        try:
            content = orjson.loads(structured)
            if self._schema.accepts(content):
                return
        except orjson.JSONDecodeError:
            raise self.broken("", "it is nested too deeply", structured.decode(errors="replace")) from None
        except ValueError:  # too long to be checked here
            return
        raise self.broken(*self._schema.fault_of(content), structured.decode())

    def check_result(self, result: ToolResult) -> None:
        """The same for a whole result; one that is an error or asks for input promises nothing."""
        if result.is_error or isinstance(result, InputRequiredToolResult):
            return
        if result.structured_content is not None:
            try:
                self.check(to_json(result.structured_content, inf_nan_mode="null"))
            except ValueError as error:
                raise self.broken("", str(error), repr(result.structured_content)) from None
        elif self._schema is not None:
            raise self.broken("", "it has no structured content", repr(result.content))
        for block in result.content:
            if isinstance(block, TextContent) and has_half(block.text):
                raise self.broken("", HALF, ascii(block.text))

    def broken(self, pointer: str, fault: str, returned: str) -> InvalidResultProblem:
        """The problem, which is logged here with the place of the tool's function."""
        place = place_of(self._tool)
        sentence = f"{pointer or 'the whole'}: {fault}"
        if self._reveals:
            published = _part(self._tool.output_schema or {}, pointer)
            sentence += f"; {place or self._tool.name} returned {_short(returned)} and publishes {_short(published)}"
        logger.error("a tool's result is not what it publishes: %s", sentence, extra={"tool": self._tool.name, "at": place})
        return InvalidResultProblem(f"the tool's result is not what it publishes: {sentence}" if self._reveals else BROKEN)


def invalid_result(tool: Tool, fault: str) -> InvalidResultProblem:
    """The problem for a result of a tool that something else found to be wrong, logged."""
    return ResultContract(tool).broken("", fault, "")


HALF = "a text holds half of a character (a lone surrogate)"


def has_half(text: str) -> bool:
    """Whether a text holds half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def unsendable(value: Any) -> str | None:
    """Why nothing can be sent of a value that has a form FastMCP would guess; None if it can be: a coroutine, and half of a character."""
    awaited: list[Any] = []

    def note(each: Any) -> None:
        if inspect.isawaitable(each):
            awaited.append(each)

    try:
        to_json(value, fallback=note)
    except ValueError as error:
        return HALF if "surrogate" in str(error) else f"it cannot be written as JSON ({type(error).__name__})"
    for each in awaited:
        if inspect.iscoroutine(each):
            each.close()  # nobody else will, and Python would warn of it
    return "a coroutine was returned that nobody awaited: write await before the call that made it" if awaited else None


def place_of(tool: Tool) -> str:
    """Where the tool's function, and so its return type, is written: file and line; "" for a tool of another server."""
    function = function_of(tool)
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None) if function else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _part(schema: Mapping[str, Any], pointer: str) -> str:
    """The schema at a place of the result, as JSON; of one that alternatives or references hide, the nearest around it."""
    part: Any = schema
    for step in pointer.split("/")[1:]:
        below = part.get("properties", {}).get(step) or part.get("items") or part.get("additionalProperties")
        if not isinstance(below, Mapping):
            break
        part = below
    return orjson.dumps(part, default=str).decode()


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
