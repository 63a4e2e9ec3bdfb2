"""Other formats of an answer by Accept, and a body that is one text argument."""

from typing import Annotated, Any, ClassVar

import pytest
from fastmcp import FastMCP
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from twins import openapi, operations_of, route
from twins.http.responses import preferred

AVAILABLE = {"text/csv": "as_csv", "text/markdown": "as_markdown"}


class Lines(BaseModel):
    model_config = ConfigDict(frozen=True)
    other_formats: ClassVar = {"text/csv": "as_csv"}

    count: int = Field(description="Number of lines.")

    def as_csv(self) -> str:
        return f"count\r\n{self.count}\r\n"


PREFERRED = (
    ("", None),
    ("*/*", None),
    ("text/csv", "text/csv"),
    ("TEXT/CSV; charset=utf-8", "text/csv"),
    ("text/*", "text/csv"),
    ("text/markdown, text/csv", "text/markdown"),
    ("text/csv;q=0.5, text/markdown;q=0.6", "text/markdown"),
    ("text/html, application/xhtml+xml, */*;q=0.8", None),
    ("text/csv;q=0.1, application/json;q=0.2", None),
    ("text/csv;q=0", None),
    ("text/csv;q=nan", None),
    ("image/png", None),
)


def test_the_preferred_format_is_chosen_and_json_if_none_fits() -> None:
    for accept, chosen in PREFERRED:
        assert preferred(accept, AVAILABLE) == chosen, accept


@given(st.text())
def test_any_accept_header_is_read(accept: str) -> None:
    assert preferred(accept, AVAILABLE) in (None, *AVAILABLE)


@pytest.mark.anyio
async def test_an_etag_belongs_to_one_format(fronts: Any) -> None:
    server = FastMCP("Reports")

    @server.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/lines", cache="public"))
    def lines() -> Lines:
        """Count lines."""
        return Lines(count=1)

    async with fronts(server) as each:
        http = each.http
        json, text = [await http.get("/v1/lines", headers={"Accept": accept}) for accept in ("application/json", "text/csv")]
        known = {"If-None-Match": json.headers["etag"]}
        again, other = [await http.get("/v1/lines", headers={"Accept": accept} | known) for accept in ("application/json", "text/csv")]
    assert (again.status_code, again.headers["vary"], other.status_code, other.text) == (304, "Accept", 200, text.text)
    assert (text.text, text.headers.get("etag"), text.headers["vary"]) == ("count\r\n1\r\n", None, "Accept")


@pytest.mark.anyio
async def test_every_body_but_json_is_the_text(fronts: Any) -> None:
    server = FastMCP("Reports")

    @server.tool(meta=route("POST /v1/lines", body="text"))
    def lines(text: str) -> Lines:
        """Count lines."""
        return Lines(count=text.count("\n"))

    async with fronts(server) as each:
        http = each.http
        for kind, count in {"application/jsonl": 1, "application/sarif+json": 1, "": 1, "Application/JSON ; charset=utf-8": 0}.items():
            answer = await http.post("/v1/lines", content=b'{"text": ""}\n', headers={"Content-Type": kind})
            assert answer.json() == {"count": count}


@pytest.mark.anyio
async def test_beside_a_body_that_is_the_text_the_query_string_takes_the_other_arguments(fronts: Any) -> None:
    server = FastMCP("Reports")

    @server.tool(meta=route("POST /v1/lines", body="text", query={"at_least": "from"}))
    def lines(text: str, at_least: int) -> Lines:
        """Count lines."""
        return Lines(count=max(text.count("\n"), at_least))

    async with fronts(server) as each:
        http = each.http
        plain = {"Content-Type": "text/plain"}
        for sent in (b"a\n", "a\n".encode("utf-16"), "\ufeffa\n".encode("utf-16-be")):
            assert (await http.post("/v1/lines?from=0", content=sent, headers=plain)).json() == {"count": 1}
        assert (await http.post("/v1/lines?from=7", content=b'[{"a": 1}]', headers={"Content-Type": "application/json"})).json() == {
            "count": 7
        }
        refused = [
            await http.post("/v1/lines", content=b"a", headers=plain),
            await http.post("/v1/lines?from=1&text=b", content=b"a", headers=plain),
            await http.post("/v1/lines?from=1", json={"text": "a", "at_least": 2}),
            await http.post("/v1/lines?from=1", content=b"\xff\xfea", headers=plain),
        ]
        assert [answer.status_code for answer in refused] == [422] * 4
    described = openapi(await operations_of(server), title="t", version="1")["paths"]["/v1/lines"]["post"]
    assert [(one["name"], one["in"], one["required"]) for one in described["parameters"]] == [("from", "query", False)]


@pytest.mark.anyio
async def test_the_document_shows_the_formats_and_the_text_body() -> None:
    server = FastMCP("Reports")

    @server.tool(meta=route("POST /v1/lines", body="text"))
    def lines(text: Annotated[str, Field(description="The text.")]) -> Lines:
        """Count lines."""
        return Lines(count=text.count("\n"))

    described = openapi(await operations_of(server), title="t", version="1")["paths"]["/v1/lines"]["post"]
    assert described["responses"]["200"]["content"]["text/csv"] == {"schema": {"type": "string"}}
    assert described["requestBody"]["content"]["application/octet-stream"] == {"schema": {"type": "string", "format": "binary"}}

    @server.tool(meta=route("POST /v1/others", body="missing"))
    def others(text: str) -> Lines:
        """Count lines."""
        return Lines(count=0)

    with pytest.raises(ValueError, match="'missing' is not one of its arguments"):
        await operations_of(server)
