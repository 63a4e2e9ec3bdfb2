"""A tool's return value as JSON: the bytes that HTTP sends as the body and MCP as structuredContent.

Plain pydantic models are written by orjson: the same bytes that pydantic writes, in a fifth of the time. A model is plain
if every member is a text, number, boolean, null, date, datetime, or a list, tuple, dict or plain model of these. A member
may have a serialization alias, or be left out on a condition (`exclude_if`). Other types are written by pydantic.
"""

import json
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, partial
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import orjson
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.prefab import is_prefab_app, is_prefab_component
from fastmcp.utilities.types import Audio, File, Image, get_cached_typeadapter
from mcp_types import CallToolResult, ContentBlock, InputRequiredResult
from pydantic import AwareDatetime, BaseModel, NaiveDatetime, PydanticSchemaGenerationError, RootModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaSerializer, to_json

from twins.tool.result_schema import WRAPS, ResultContract, unsendable

CONTENT = (ContentBlock, Image, Audio, File, bytes)
FINISHED = (ToolResult, CallToolResult, InputRequiredResult)
SCALARS = frozenset({str, int, float, bool, type(None), date, datetime, AwareDatetime, NaiveDatetime})
OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
ODD_SETTINGS = ("json_encoders", "ser_json_inf_nan", "ser_json_temporal", "ser_json_timedelta", "ser_json_bytes")
MadeT = TypeVar("MadeT")
VALUE = re.compile(r"input_value=.*, (?=input_type)", re.DOTALL)
"""What pydantic repeats of a value, which may be a caller's secret."""


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
        """What `make` makes of the value. Raises as it does."""
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

    `typed` is true if the tool has an output schema, `wraps` if a result becomes a member of an object, and `is_plain` if all that
    the tool declares to return is plain.
    """

    def __init__(self, tool: Tool, *, reveals: bool = False) -> None:
        """For `reveals` see ResultContract; then every result is compared, also one of a model that says that it always conforms."""
        schema = tool.output_schema
        self.contract = ResultContract(tool, reveals=reveals)
        self.typed = schema is not None
        self.wraps = bool(schema and schema.get(WRAPS))
        self._adapter = _adapter_of(tool)
        self._serializer = self._adapter.serializer
        self._write = writer_of(tool.return_type) if self.typed else None
        self.is_plain = self._write is not None
        self._has_floats = not self.is_plain or b'"number"' in orjson.dumps(schema, default=str)
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
        if self._write is not None:
            try:
                return self._write(value)
            except orjson.JSONEncodeError:
                pass  # the value is not of its declared type: only pydantic can write it
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
    annotation = tool.return_type
    if annotation in (None, ...) or isinstance(annotation, str):
        return get_cached_typeadapter(Any)
    try:
        adapter: TypeAdapter[Any] = get_cached_typeadapter(annotation)
    except PydanticSchemaGenerationError:
        return get_cached_typeadapter(Any)
    return adapter


def _is_content(value: Any) -> bool:
    """True for images, audio and the like, which MCP sends as content and not as data."""
    return isinstance(value, CONTENT) or (isinstance(value, list | tuple) and any(isinstance(item, CONTENT) for item in value))


def _is_frozen(value: Any) -> bool:
    return isinstance(value, BaseModel) and bool(value.model_config.get("frozen"))


def _can_be_hashed(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class NotPlainError(Exception):
    """A type is not plain."""


@dataclass(frozen=True)
class Member:
    """A member of a model that needs a conversion: its name in JSON, and the condition on which it is left out."""

    name: str
    wire: str
    left_out: Callable[[Any], bool] | None


@dataclass(frozen=True, slots=True)
class ModelForm:
    """How a model is written: the number of its fields, and its members if one of them needs a conversion."""

    fields: int
    members: Sequence[Member] = ()


def writer_of(annotation: Any) -> Callable[[Any], bytes] | None:
    """A function that writes values of this type, or None if only pydantic can.

    It raises orjson.JSONEncodeError for a value that is not of this type, such as an instance of a subclass.
    """
    known: dict[type, ModelForm] = {}
    try:
        _learn(annotation, known)
    except NotPlainError:
        return None

    def opened(value: Any) -> dict[str, Any]:
        form = known.get(type(value))
        own: dict[str, Any] = value.__dict__
        if form is None or len(own) != form.fields:  # more than the fields: a cached property, which is no part of the result
            raise TypeError
        members = form.members
        if not members:
            return own
        return {each.wire: own[each.name] for each in members if each.left_out is None or not each.left_out(own[each.name])}

    return partial(orjson.dumps, default=opened, option=OPTIONS)


def _learn(annotation: Any, known: dict[type, ModelForm]) -> None:
    """Add every model that the type can contain. NotPlainError if one is not plain."""
    origin = get_origin(annotation)
    arms = get_args(annotation)
    if annotation in SCALARS or (origin is Literal and SCALARS.issuperset(map(type, arms))):
        return
    if origin is Annotated and all(isinstance(each, FieldInfo) for each in arms[1:]):
        _learn(arms[0], known)
    elif origin in (Union, types.UnionType, list, tuple, dict):
        for arm in arms:
            if arm is not Ellipsis:
                _learn(arm, known)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        _learn_model(annotation, known)
    else:
        raise NotPlainError


def _learn_model(model: type[BaseModel], known: dict[type, ModelForm]) -> None:
    if model in known:
        return
    made = model.__pydantic_decorators__
    config = model.model_config
    serialized = made.field_serializers or made.model_serializers or made.computed_fields
    if serialized or issubclass(model, RootModel) or config.get("extra") == "allow" or any(map(config.get, ODD_SETTINGS)):
        raise NotPlainError
    known[model] = ModelForm(len(model.model_fields))
    members = list(_members(model, known))
    if any(each.name != each.wire or each.left_out for each in members):
        known[model] = ModelForm(len(members), members)


def _members(model: type[BaseModel], known: dict[type, ModelForm]) -> Iterator[Member]:
    by_alias = model.model_config.get("serialize_by_alias")
    for name, field in model.model_fields.items():
        if field.exclude or any(hasattr(each, "__get_pydantic_core_schema__") for each in field.metadata):
            raise NotPlainError
        _learn(field.annotation, known)
        yield Member(name, (by_alias and field.serialization_alias) or name, field.exclude_if)
