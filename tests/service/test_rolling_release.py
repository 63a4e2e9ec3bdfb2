"""An upgrade while servers of the release before serve: first the steps that expand, and at last those that contract."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from serving import Served, command, free_port, serving, write_config

from tests import patient
from tests.conftest import Postgres

CAMPUS = """
openapi = "shop"
[storage]
url = "{storage}"
[limits]
free = "off"
[buildings.shop]
server = "./shop.py"
"""
SHOP = '''
from fastmcp import FastMCP
from sqlmodel import Field, SQLModel, select
from campus import Building, CurrentSite, Site, free, route
from campus.storage import registry

class Tables(SQLModel, registry=registry()):
    """The tables."""

class Item(Tables, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str
    {column}

mcp = FastMCP("Shop")

@mcp.tool(meta=route("POST /v1/shop/items") | free())
async def add(name: str, site: Site[None, None] = CurrentSite()) -> list[str]:
    """Add an item; all names come back."""
    async with site.storage.write() as session:
        session.add(Item(name=name, {value}))
    async with site.storage.read() as session:
        return [one.name for one in await session.exec(select(Item).order_by(Item.id))]

building = Building(mcp, tables=Tables)
'''
STEP = """
import sqlalchemy as sa
from alembic import op

revision = "{number}"
down_revision = {before!r}
{mark}

def upgrade() -> None:
    {body}
"""
CREATED = """op.create_table("item", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("name", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False))"""
EXPANDED = """op.add_column("item", sa.Column("title", sa.String(), nullable=True))
    op.alter_column("item", "label", server_default="")"""
STEPS = {
    "0001_items": (CREATED, ""),
    "0002_titles": (EXPANDED, ""),
    "0003_no_labels": ('op.drop_column("item", "label")', "contract = True"),
}


def release(folder: Path, storage: str, *, steps: int, column: str, value: str) -> tuple[Path, str]:
    (folder / "shop_migrations").mkdir(parents=True)
    (folder / "shop.py").write_text(SHOP.format(column=column, value=value))
    before = None
    for name, (body, mark) in list(STEPS.items())[:steps]:
        number = name.partition("_")[0]
        code = STEP.format(number=number, before=before, mark=mark, body=body)
        (folder / "shop_migrations" / f"{name}.py").write_text(code)
        before = number
    return folder, CAMPUS.format(storage=storage)


def added(served: Served, name: str) -> Sequence[str]:
    answer = patient.post(f"{served.url}/v1/shop/items", json={"name": name})
    assert answer.status_code == 200, (answer.text, served.log)
    return list(answer.json()["result"])


def migrated(config: Path, *words: str) -> str:
    ended = command("migrate", *words, "--config", str(config))
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()[-1]


@pytest.mark.faults("rolling upgrade")
def test_the_release_before_serves_beside_the_new_one_until_the_tables_are_contracted(tmp_path: Path, postgres: Postgres) -> None:
    name = postgres.create_database()
    storage = postgres.url(name)
    old = release(tmp_path / "old", storage, steps=1, column="label: str", value='label="old"')
    new = release(tmp_path / "new", storage, steps=3, column="title: str | None = None", value='title="new"')
    new_config = write_config(new[0], new[1], port=free_port())
    with serving(*old) as before:
        assert added(before, "a") == ["a"]
        assert "steps wait for `campus migrate --contract` building=shop at_step=0002 last_step=0003" in migrated(new_config)
        assert added(before, "b") == ["a", "b"]
        with serving(*new) as after:
            assert added(after, "c") == ["a", "b", "c"]
            assert added(before, "d") == ["a", "b", "c", "d"]
            assert after.command("check").stderr == ""
    with serving(*old) as again, serving(*new) as after:  # as when the upgrade is taken back, or a process of the old release dies
        assert added(again, "e") == [*"abcde"]
        assert patient.get(f"{after.admin}/readyz").json()["ok"]
    with serving(*new) as after:
        assert "migrated building=shop from_step=0002 to_step=0003" in migrated(after.config, "--contract")
        assert added(after, "f") == [*"abcdef"]
    ended = command("serve", "--config", str(write_config(old[0], old[1], port=free_port())))
    assert ended.returncode == 2
    assert "is at step 0003, and the installed version of shop knows the steps up to 0001" in ended.stderr
    postgres.drop_database(name)
