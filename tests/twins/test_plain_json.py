"""Plain models are written by orjson with the same bytes as by pydantic; all others are left to pydantic."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, computed_field, field_serializer, model_serializer

from twins.tool.result_json import writer_of


class Inner(BaseModel):
    """A member of others."""

    text: str
    number: float | None


class Outer(BaseModel):
    """All that is plain."""

    model_config = ConfigDict(serialize_by_alias=True)

    kind: Literal["a", "b", 3]
    day: date
    moment: datetime
    whole: Annotated[int, Field(description="of 64 bits")]
    yes: bool = Field(default=False, exclude_if=lambda value: not value)
    first: str = Field(serialization_alias="from")
    inner: Inner
    several: tuple[Inner, ...]
    by_name: dict[str, float | Inner | None]
    lists: list[list[int]]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats()
INNERS = st.builds(Inner, text=TEXTS, number=st.none() | FLOATS)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=3))])
OUTERS = st.builds(
    Outer,
    kind=st.sampled_from(["a", "b", 3]),
    day=st.dates(),
    moment=st.datetimes(timezones=ZONES) | st.datetimes(),
    whole=st.integers(-(2**63), 2**63 - 1),
    yes=st.booleans(),
    first=TEXTS,
    inner=INNERS,
    several=st.lists(INNERS, max_size=3).map(tuple),
    by_name=st.dictionaries(TEXTS, st.none() | FLOATS | INNERS, max_size=3),
    lists=st.lists(st.lists(st.integers(-(2**60), 2**60), max_size=3), max_size=3),
)


@given(OUTERS)
def test_the_bytes_are_the_same_as_pydantics(value: Outer) -> None:
    write = writer_of(Outer)
    assert write is not None
    assert write(value) == TypeAdapter(Outer).dump_json(value)


class Color(StrEnum):
    """Not a plain text."""

    RED = "red"


class Special(BaseModel):
    """With a serializer."""

    when: date

    @field_serializer("when")
    def year(self, value: date) -> int:
        """Only the year."""
        return value.year


class Whole(BaseModel):
    """With one for all of it."""

    @model_serializer
    def nothing(self) -> str:
        """A word."""
        return "nothing"


class Computed(BaseModel):
    """With a member that is made."""

    @computed_field
    def made(self) -> int:
        """Always 1."""
        return 1


class Open(BaseModel):
    """Takes more members."""

    model_config = ConfigDict(extra="allow")


class Hidden(BaseModel):
    """Leaves a member out."""

    secret: str = Field(exclude=True)


class Bytes(BaseModel):
    """Spells bytes its own way."""

    model_config = ConfigDict(ser_json_bytes="base64")

    data: str


class Holder(BaseModel):
    """Holds what is not plain."""

    color: Color


@pytest.mark.parametrize(
    "kind", [Special, Whole, Computed, Open, Hidden, Bytes, Holder, RootModel[int], Decimal, bytes, Any, set[int], Color]
)
def test_a_type_that_is_not_plain_has_no_writer(kind: Any) -> None:
    assert writer_of(kind) is None
    assert writer_of(list[kind]) is None


class Narrower(Inner):
    """More than its type says."""

    more: str = "x"


@pytest.mark.parametrize(
    "value",
    [
        Outer.model_construct(inner=Narrower(text="a", number=1)),
        Inner.model_construct(text="\ud800", number=None),
        Inner.model_construct(text="a", number=2**70),
    ],
)
def test_a_value_of_another_type_is_left_to_pydantic(value: BaseModel) -> None:
    write = writer_of(type(value))
    assert write is not None
    with pytest.raises(orjson.JSONEncodeError):
        write(value)


def test_a_recursive_model_is_plain() -> None:
    class Tree(BaseModel):
        branches: list["Tree"]

    write = writer_of(Tree)
    assert write is not None
    assert write(Tree(branches=[Tree(branches=[])])) == b'{"branches":[{"branches":[]}]}'
