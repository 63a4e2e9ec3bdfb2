"""A tool's result: what is published of it, as far as its annotation can promise it; the check that each keeps it; and its bytes.

FastMCP publishes what pydantic says of an annotation, and strict clients throw away what differs: a time without its zone is none of
the format date-time, a part of a second none of the format duration, and what a serializer without a return type makes is unknown.
The bytes are those that HTTP sends as the body and MCP as structuredContent.
"""

import inspect
import json
import logging
import re
import types
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import orjson
from fastmcp.tools import FunctionTool, Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.function_parsing import ParsedFunction
from fastmcp.utilities.json_schema import compress_schema, dereference_refs
from fastmcp.utilities.prefab import is_prefab_app, is_prefab_component
from fastmcp.utilities.types import Audio, File, Image, get_cached_typeadapter
from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, TextContent
from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_json

from twins.fastmcp import OutputSchemas, function_of
from twins.problems import Problem
from twins.tool.schemas import PublishedSchema, describes_object

Schema = dict[str, Any]
WRAPS = "x-fastmcp-wrap-result"  # Marks an output schema whose only member `result` is what the tool returns.
BROKEN = "what the tool returned is not what it publishes; nothing is charged, and the log of the server says what is wrong"
HALF = "a text holds half of a character (a lone surrogate)"
LONGEST_SHOWN = 600
CONTENT = (ContentBlock, Image, Audio, File, bytes)
FINISHED = (ToolResult, CallToolResult, InputRequiredResult)
PLAIN_KINDS = frozenset(
    (
        *("model", "model-fields", "model-field", "definitions", "definition-ref", "function-before", "function-after"),
        *("str", "int", "float", "bool", "none", "date", "datetime", "literal", "list", "tuple", "dict", "nullable", "union", "default"),
    )
)
"""pydantic's kinds of which no code of an author writes anything."""
NO_SCHEMAS = frozenset(("metadata", "default", "expected", "cls", "config", "function"))
"""Members of pydantic's core schemas that hold no schema."""
VALUE = re.compile(r"input_value=.*, (?=input_type)", re.DOTALL)
"""What pydantic repeats of a value, which may be a caller's secret."""
MadeT = TypeVar("MadeT")
logger = logging.getLogger(__name__)


class TrueSchemas(OutputSchemas):
    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> Schema:
        made = super().datetime_schema(schema)
        return made if schema.get("tz_constraint") == "aware" else _without_format(made)

    def time_schema(self, schema: core_schema.TimeSchema) -> Schema:
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


def has_half(text: str) -> bool:
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


def json_of(value: Any, *, option: int | None = None, fallback: Callable[[Any], Any] | None = None) -> bytes:
    """A JSON value as JSON: by orjson, and what it cannot write by slower ones. `fallback` makes JSON values of other objects."""
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        pass
    try:
        return to_json(value, inf_nan_mode="null", fallback=fallback)  # an integer beyond 64 bits
    except PydanticSerializationError:
        return json.dumps(value, default=fallback).encode()  # half of a character (a lone surrogate), which is escaped


class KeptLast(Generic[MadeT]):
    """Keeps what `make` made of the last object that a tool returned, and returns it again for the very same object.

    Only for a frozen model that is plain, so that no code of its author writes it, and whose values can all be hashed: such an
    object cannot change, nor what is written of it. And from its second return on. The object is kept too, so that no other
    object can get its identity.
    """

    __slots__ = ("_is_plain", "_last", "_made", "_make")

    def __init__(self, make: Callable[[Any], MadeT], *, is_plain: bool) -> None:
        self._make = make
        self._is_plain = is_plain
        self._last: Any = None
        self._made: MadeT | None = None

    def of(self, value: Any) -> MadeT:
        if value is not self._last:
            self._last = value if self._is_plain and _is_frozen(value) else None
            self._made = None
            return self._make(value)
        if self._made is None:
            made = self._make(value)
            if value is None or not _can_be_hashed(value):
                return made
            self._made = made
        return self._made


class ResultWriter:
    """Writes the return values of one tool as JSON, and lets none pass that is not what the tool publishes.

    `typed` is true if the tool has an output schema, `wraps` if a result becomes a member of an object, and `is_plain` if no code of an
    author writes any part of what the tool declares to return.
    """

    def __init__(self, tool: Tool, *, reveals: bool = False) -> None:
        """For `reveals` see ResultContract; then every result is compared, also one of a model that says that it always conforms."""
        self.contract = ResultContract(tool, reveals=reveals)
        self.typed = tool.output_schema is not None
        self.wraps = bool(tool.output_schema and tool.output_schema.get(WRAPS))
        self._adapter = _adapter_of(tool)
        self._serializer = self._adapter.serializer
        kinds = frozenset(kinds_in(self._adapter.core_schema)) if self.typed else frozenset()
        self.is_plain = self.typed and kinds <= PLAIN_KINDS
        self._has_floats = not self.is_plain or "float" in kinds
        self._conforming = conforming(tool.return_type) if self.is_plain and not reveals else frozenset()

    def is_data(self, value: Any) -> bool:
        """True for a value that is written as JSON here; False for finished results, Prefab's interfaces, images and the like."""
        if isinstance(value, FINISHED) or is_prefab_app(value) or is_prefab_component(value):
            return False
        return self.typed or not _is_content(value)

    def write(self, value: Any) -> bytes:
        """The value as JSON. Raises InvalidResultProblem; PydanticSerializationError for what FastMCP sends in a form of its own."""
        body = self._written(value)
        if type(value) in self._conforming:
            return body
        if self._has_floats and (b"null" in body or b"NaN" in body or b"Infinity" in body):
            self._require_finite(value)
        if self.typed:
            self.contract.check(b'{"result":%b}' % body if self.wraps else body)
        return body

    def _require_finite(self, value: Any) -> None:
        """A number that JSON has not is no null, even where null is published: a caller would read that there is none."""
        body = self._with_constants.to_json(value, warnings=False)
        if b"NaN" in body or b"Infinity" in body:
            try:
                json.loads(body, parse_constant=_refuse)
            except NotFiniteError:
                raise self.contract.broken("", "a number is not finite (NaN or an infinity), which JSON has not", repr(value)) from None

    @cached_property
    def _with_constants(self) -> SchemaSerializer:
        """Writes NaN and the infinities by their names, but where the author's own model says how to write them."""
        return SchemaSerializer(self._adapter.core_schema, config={"ser_json_inf_nan": "constants"})

    def _written(self, value: Any) -> bytes:
        try:
            body = self._serializer.to_json(value, warnings=False)
            if b"NaN" in body or b"Infinity" in body:  # perhaps numbers, as ser_json_inf_nan may have them; JSON has none of them
                return to_json(self._serializer.to_python(value, mode="json"), inf_nan_mode="null")
        except ValueError as error:
            fault = unsendable(value) or (VALUE.sub("", str(error)) if self.typed else None)
            if fault is None:
                raise
            raise self.contract.broken("", fault, repr(value)) from error
        return body


class NotFiniteError(Exception):
    """A JSON text has NaN or an infinity in a number's place."""


def _refuse(name: str) -> None:
    raise NotFiniteError(name)


def conforming(annotation: Any) -> frozenset[type]:
    """The models among the alternatives of a return type that say `always_conforms = True`: their makers vouch for every instance.

    pydantic checks an instance when it is made, and nothing that is put into it by model_construct, model_copy or assignment. So only
    one whose class says so goes without a check in each call; their author's tests check them all.
    """
    arms = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return frozenset(arm for arm in arms if isinstance(arm, type) and issubclass(arm, BaseModel) and getattr(arm, "always_conforms", False))


def _adapter_of(tool: Tool) -> TypeAdapter[Any]:
    """The adapter with which FastMCP serializes a tool's results, so that both frames send the same."""
    says_nothing = tool.return_type in (None, ...) or isinstance(tool.return_type, str)
    try:
        adapter: TypeAdapter[Any] = get_cached_typeadapter(Any if says_nothing else tool.return_type)
    except PydanticSchemaGenerationError:
        return get_cached_typeadapter(Any)
    return adapter


def _is_content(value: Any) -> bool:
    return isinstance(value, CONTENT) or (isinstance(value, list | tuple) and any(isinstance(item, CONTENT) for item in value))


def _is_frozen(value: Any) -> bool:
    return isinstance(value, BaseModel) and bool(value.model_config.get("frozen"))


def _can_be_hashed(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def kinds_in(node: Any) -> Iterator[str]:
    """pydantic's names of all kinds within a core schema; "open" where members have any name, "own" where an author serializes."""
    is_schema = isinstance(node, dict) and isinstance(node.get("type"), str)
    if is_schema:
        yield node["type"]
        if "allow" in (node.get("extra_behavior"), node.get("config", {}).get("extra_fields_behavior")):
            yield "open"
        if "serialization" in node:
            yield "own"
    parts = node.items() if isinstance(node, dict) else enumerate(node)
    for name, part in parts:
        if isinstance(part, dict | list | tuple) and not (is_schema and name in NO_SCHEMAS):
            yield from kinds_in(part)
