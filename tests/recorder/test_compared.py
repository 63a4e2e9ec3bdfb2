"""docs/compared.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_row_of_the_comparison_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "compared.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "**" not in line.partition("|")[2].partition("|")[0]][1:]
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert all(named), [row for row, names in zip(rows, named, strict=True) if not names]
    assert {name for names in named for name in names if f"def {name}(" not in tests} == set()
