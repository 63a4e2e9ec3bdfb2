"""The pages of docs/ that a reader can follow do what they show: `make conformance` begins with them; the tutorial is in `make test`."""

from shutil import copytree, ignore_patterns

import pytest
from walkthrough import ROOT, Reader, home, reader  # noqa: F401  # fixtures


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["keys.md", "prices.md", "migrate.md", "example-survey.md", "example-wiki.md", "example-watch.md"])
def test_a_reader_who_follows_a_page_gets_what_it_shows(name: str, reader: Reader) -> None:  # noqa: F811  # the fixture
    example = ROOT / "examples" / name.removeprefix("example-").removesuffix(".md")
    if example.is_dir():
        reader.folder = copytree(example, reader.folder / "folder", ignore=ignore_patterns("data", "__pycache__"))
    reader.follow((ROOT / "docs" / name).read_text())
    assert reader.commands
