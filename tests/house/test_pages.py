"""Campus's own pages, and what is said at addresses where nothing is."""

import re
from pathlib import Path

import pytest

import campus
from campus import Building
from campus.pages import EXPLANATIONS
from campus.testing import open_campus

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nope", "/v1/shop/nope", "/nope/openapi.json", "/errors", "/v1/shop/"])
async def test_nothing_is_a_problem_that_says_where_to_look(shop: Building, path: str) -> None:
    async with open_campus(shop=shop) as town:
        answer = await town.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert "http://campus.test/v1/openapi.json" in answer.json()["detail"]


async def test_another_method_is_a_problem_with_those_that_are_allowed(shop: Building) -> None:
    async with open_campus(shop=shop) as town:
        answer = await town.http.post("/openapi.json")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_every_building_is_described_and_every_code_explained(shop: Building) -> None:
    async with open_campus(shop=shop) as town:
        assert (await town.http.get("/v1/shop")).json()["title"] == "Shop"
        assert "unlock" in (await town.http.get("/errors/access_required")).json()["explanation"]
        assert "building's own" in (await town.http.get("/errors/no_text")).json()["explanation"]
        assert (await town.http.get("/v1/shop/pages/x")).text == "page of shop for x"


def test_every_code_that_stands_in_the_source_is_explained() -> None:
    root = Path(campus.__file__).parents[1]
    files = [file for folder in ("buildings", "campus", "twins") for file in (root / folder).rglob("*.py")]
    codes = {code for file in files for code in re.findall(r'Problem\(\s*\d{3},\s*"(\w+)"', file.read_text(encoding="utf-8"))}
    assert len(codes) > 20
    assert sorted(codes - EXPLANATIONS.keys()) == []


async def test_clients_that_look_for_oauth_are_told_to_send_a_key(shop: Building) -> None:
    async with open_campus(shop=shop) as town:
        answer = await town.http.post("/register", json={})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "Authorization: Bearer KEY" in answer.json()["error_description"]


async def test_counters_are_shown_to_this_machine_only(shop: Building) -> None:
    async with open_campus(shop=shop) as town:
        town.site.count("sales", kind="book")
        town.site.count("sales", kind="book")
        assert 'campus_shop_sales_total{kind="book"} 2.0' in (await town.http.get("/metrics")).text
        elsewhere = await town.http.get("/metrics", headers={"X-Forwarded-For": "203.0.113.7"})
        assert elsewhere.status_code == 404
