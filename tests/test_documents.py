"""docs/ is complete and works: each page is found, leads on, and does what it says; what the code offers has its entry."""

import re
import tomllib
from pathlib import Path

import pytest
import reference
from pydantic import BaseModel
from walkthrough import Reader, home, reader  # noqa: F401  # fixtures

from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.testing import open_campus

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_that_follows_from_the_code_is_as_the_code_says(name: str) -> None:
    assert DOCS[name] == reference.page(name), "run `make reference`, and commit the page"


def test_every_page_is_listed_in_the_index_and_in_the_sites_navigation_and_leads_on() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", DOCS["index.md"])
    assert sorted(listed) == sorted(DOCS.keys() - {"index.md"})
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert [page for part in navigation for pages in part.values() for page in ([pages] if isinstance(pages, str) else pages)] == [
        "index.md",
        *listed,
    ]
    assert [name for name in listed if not re.search(r"\n\*\*Next:\*\* .*\]\(\S+\.md", DOCS[name])] == []


def test_a_key_without_a_text_or_a_number_without_a_unit_is_named() -> None:
    class Untold(BaseModel):
        a_limit: int = 3

    with pytest.raises(reference.Missing, match="a_limit of Untold has no docstring"):
        list(reference.keys_of(Untold))
    with pytest.raises(reference.Missing, match="the number wait has no unit"):
        reference.unit_of("wait", "number", "How long it waits.")


@pytest.mark.anyio
async def test_a_running_campus_serves_every_page_and_no_link_of_it_is_dead() -> None:
    served: dict[str, str] = {}
    async with open_campus(gateway=gateway, recorder=recorder) as campus:

        async def read(path: str) -> str:
            if path not in served:
                answer = await campus.http.get(path, headers={"Accept": "text/html"})
                assert answer.status_code == 200, path
                served[path] = answer.text
            return served[path]

        waiting, seen = ["/docs"], set[str]()
        while waiting:
            seen.add(path := waiting.pop())
            text = await read(path)
            assert " style=" not in text, path
            for target in re.findall(r'(?:href|src)="([^"]+)"', text):
                page, _, anchor = target.partition("#")
                if target.startswith(("http:", "https:", "mailto:")):
                    continue
                page = page or path
                linked = await read(page)
                assert not anchor or f'id="{anchor}"' in linked, (path, target)
                if page.startswith("/docs") and page != "/docs/api" and page not in seen:
                    waiting.append(page)
        assert len(seen & {"/docs", *(f"/docs/{name.removesuffix('.md')}" for name in DOCS)}) == len(DOCS)
        as_markdown = (await campus.http.get("/docs/prices", headers={"Accept": "text/markdown"})).text
        assert as_markdown.startswith("[Documentation](/docs)\n\n# Set prices\n")
        assert (await campus.http.get("/docs/nothing")).status_code == 404
        assert (await campus.http.get("/docs/..%2fREADME")).status_code == 404


@pytest.mark.timeout(600)
def test_a_reader_who_follows_the_tutorial_gets_what_it_shows(reader: Reader) -> None:  # noqa: F811  # the fixture
    reader.follow(DOCS["tutorial.md"])
    assert reader.commands
