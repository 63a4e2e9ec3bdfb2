"""Campus's own pages, and the problems at unknown addresses."""

import re
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from service.conftest import FRAMES

import campus
from campus import Building, Problem
from campus.errors import LoadError
from campus.installed import installed_features
from campus.problems import EXPLANATIONS
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio


async def test_an_unknown_address_is_a_problem_that_says_where_to_look(open_shop: TestCampus) -> None:
    for path in ("/", "/v1", "/v1/nope", "/v1/shop/nope", "/nope/openapi.json"):
        answer = await open_shop.http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
        assert "http://campus.test/v1/openapi.json" in answer.json()["detail"]
        assert (answer.headers["cache-control"], "Accept" in answer.headers["vary"]) == ("no-store", True), (
            "the same address is a page elsewhere"
        )


async def test_another_method_is_a_problem_with_those_that_are_allowed(open_shop: TestCampus) -> None:
    answer = await open_shop.http.post("/openapi.json")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_an_mcp_endpoint_says_to_who_does_not_speak_mcp_what_it_is(open_shop: TestCampus) -> None:
    for method, accept in product(("GET", "PUT"), ("*/*", "application/json, text/html", "text/event-stream")):
        answer = await open_shop.http.request(method, "/shop/mcp", headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json"), (method, accept)
        assert set(answer.headers["allow"].split(", ")) == {"POST", "DELETE"}
        assert answer.json()["code"] == "method_not_allowed"
        assert "MCP client" in answer.json()["detail"]
        assert "/v1/openapi.json" in answer.json()["detail"]


async def test_every_building_is_described_and_every_code_explained(shop: Building) -> None:
    async with open_campus(shop=replace(shop, problems={"no_text": "That day has no text."})) as campus:
        assert (await campus.http.get("/v1/shop")).json()["title"] == "Shop"
        assert "unlock" in (await campus.http.get("/errors/access_required")).json()["explanation"]
        unknown = await campus.http.get("/errors/no_such_code")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
        codes = (await campus.http.get(re.findall(r"http\S+/errors\b", unknown.json()["detail"])[0])).json()["codes"]
        assert codes["no_text"] == "That day has no text."
        for code in codes:
            assert (await campus.http.get(f"/errors/{code}")).json()["explanation"] == codes[code]
        assert (await campus.http.get("/v1/shop/pages/x")).text == "page of shop for x"


def make_reader(**problems: str) -> Building:
    mcp = FastMCP("Reader")

    @mcp.tool(annotations={"readOnlyHint": True})
    async def read(day: int) -> str:
        """Read a day."""
        raise Problem(404, "no_text", f"there is no text of day {day}")

    return Building(mcp, problems=problems)


async def test_a_buildings_problem_code_is_explained_by_the_building_or_by_each() -> None:
    one, two = make_reader(no_text="None of that day.", no_day="None."), make_reader(no_text="None at all.")
    async with open_campus(one=one, two=two) as campus:
        refused = [(await replace(campus, frame=frame).call("read", day=1)).data["type"] for frame in FRAMES]
        explained = [(await campus.http.get(path)).json() for path in (*refused, "/errors/no_day")]
    both = {"code": "no_text", "explanation": "one: None of that day. two: None at all.", "buildings": ["one", "two"]}
    assert explained == [both, both, {"code": "no_day", "explanation": "None.", "buildings": ["one"]}]


async def test_a_building_cannot_give_another_meaning_to_a_code_of_campus() -> None:
    with pytest.raises(LoadError, match="building 'reader' explains the problem code 'not_found', which belongs to campus"):
        async with open_campus(reader=make_reader(not_found="The text is not there.")):
            pass


@pytest.mark.parametrize("problems", [{"No Text": "There is none."}, {"no_text": " "}, {"no_text": 404}])
def test_an_invalid_explanation_is_refused_at_once(problems: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="problems="):
        Building(FastMCP("Reader"), problems=problems)


def test_every_code_in_the_source_is_explained_where_it_belongs() -> None:
    root = Path(campus.__file__).parents[1]
    own = codes_in(root / "campus") | codes_in(root / "twins")
    assert len(own) > 20
    features = [feature.opened for feature in installed_features().values() if feature.building]
    explained = EXPLANATIONS.keys() | {code for feature in features for code in feature.problems}
    assert sorted(own - explained) == []
    own |= words_in(root / "campus") & explained
    for entry in entry_points(group="campus.buildings"):
        building, used = entry.load(), codes_in(root / "buildings" / entry.name)
        assert sorted(used - explained - building.problems.keys()) == [], entry.name
        assert sorted(building.problems.keys() & explained) == [], entry.name
        assert sorted((used & explained) - own) == [], f"campus explains what only {entry.name} returns"
        assert sorted(building.problems.keys() - words_in(root / "buildings" / entry.name)) == [], entry.name


def codes_in(folder: Path) -> set[str]:
    return {code for text in texts_of(folder) for code in re.findall(r'Problem\(\s*\d{3},\s*"(\w+)"', text)}


def words_in(folder: Path) -> set[str]:
    return {word for text in texts_of(folder) for word in re.findall(r'"(\w+)"(?!:)', text)}


def texts_of(folder: Path) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in folder.rglob("*.py") if "new_building" not in file.parts]


async def test_clients_that_look_for_a_login_learn_that_a_key_is_sent_instead(open_shop: TestCampus) -> None:
    answer = await open_shop.http.post("/register", json={})
    assert [(await open_shop.http.request(method, "/register")).status_code for method in ("GET", "HEAD", "OPTIONS")] == [404, 404, 404]
    assert (answer.status_code, answer.json()["error"]) == (404, "invalid_request")
    assert "Authorization: Bearer KEY" in answer.json()["error_description"]
