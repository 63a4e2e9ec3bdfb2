"""Alembic without ini file and env.py: it runs migrations, compares tables with a database, and writes the next migration.

Loaded only when needed, because the import takes 0.2 s.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.config import Config
from alembic.operations import ops
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine, inspect, text
from sqlmodel import SQLModel
from sqlmodel.sql.sqltypes import AutoString

from campus.errors import StorageError
from campus.storage.database import Storage
from campus.storage.migrations import VERSION_TABLE, History, history_of, is_table_of, place_of
from campus.storage.tables import Json, Moment, Span, UtcDateTime

USABLE_FROM = "usable_from"
UPGRADE_LOCK = Lock()  # One upgrade at a time, because the steps use `alembic.op`, which is global to the process.

STEP = '''"""{sentence}"""

{imports}

revision = "{number}"
down_revision = {before}


def upgrade() -> None:
    """{sentence}"""
    {body}
'''


def upgrade(connection: Connection, history: History) -> None:
    """Run the steps that are due in the connection's transaction: all of them, or none.

    Blocks; call it in a worker thread. On SQLite the connection must have foreign_keys=OFF: `batch_alter_table` drops the
    old table, which would delete the rows that refer to it.
    """
    script = ScriptDirectory(str(history.folder), version_locations=[str(history.folder)])

    def steps(current: Any, _: object) -> Iterable[Any]:
        if current and history.head and history.head <= current[0]:  # another process was quicker
            return []
        due = reversed(list(script.iterate_revisions(history.head, current, implicit_base=True)))
        return [MigrationStep.upgrade_from_script(script.revision_map, each) for each in due]

    with UPGRADE_LOCK, EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection, transactional_ddl=True, version_table=history.version_table)
        environment.run_migrations()
        if _context(connection, history).get_current_revision() == history.head:
            _note_who_can_use_it(connection, history)


def _context(connection: Connection, history: History, **options: Any) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"version_table": history.version_table, **options})


def _note_who_can_use_it(connection: Connection, history: History) -> None:
    """Store the oldest step whose code can use the database: the last one that contracted, or else the first."""
    noted = history.version_table
    if USABLE_FROM not in (column["name"] for column in inspect(connection).get_columns(noted)):
        connection.exec_driver_sql(f"ALTER TABLE {noted} ADD COLUMN {USABLE_FROM} VARCHAR(32)")
    oldest = next((step for step in reversed(history.steps) if history.contracts(step)), history.steps[0])
    connection.execute(text(f"UPDATE {noted} SET {USABLE_FROM} = :step"), {"step": oldest})  # noqa: S608  # of Place.version_table


async def drift(storage: Storage, tables: type[SQLModel], name: str) -> Sequence[str]:
    async with storage.read() as session:
        found = await (await session.connection()).run_sync(_compare, tables.metadata, name, history_of(tables, name))
        return [str(difference) for difference in found]


def write_revision(tables: type[SQLModel], name: str, what: str) -> Path:
    """Write the step from the newest one to the tables in code and return its file; read it before you commit it.

    `what` says in a few words what the step does. StorageError when there is nothing to do.
    """
    history = history_of(tables, name)
    if not (body := _body(tables.metadata, history)):
        raise StorageError(f"there is nothing to write: the steps up to {history.head} in {history.folder} create the tables as they are")
    words = re.findall(r"[a-z0-9]+", what.lower())
    if not words:
        raise StorageError(f"{what!r} names no file; say in a few words what the step does")
    path = history.folder / f"{history.next}_{'_'.join(words)[:40]}.py"
    history.folder.mkdir(exist_ok=True)
    path.write_text(_step(what, history, body), encoding="utf-8")
    return path


def _step(what: str, history: History, body: str) -> str:
    sentence = f"{what[:1].upper()}{what[1:]}".rstrip(".") + "."
    before = f'"{history.head}"' if history.head else "None"
    dialects = sorted(set(re.findall(r"\b(postgresql|sqlite)\.", body)))
    imports = ["import sqlalchemy as sa", "from alembic import op", *(f"from sqlalchemy.dialects import {name}" for name in dialects)]
    return STEP.format(sentence=sentence, imports="\n".join(imports), number=history.next, before=before, body=body)


def _body(metadata: MetaData, history: History) -> str:
    """The body of `upgrade()`, computed on a scratch database at the newest step; empty when there is nothing to do."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        if history.steps:
            upgrade(connection, history)
        context = _context(connection, history, target_metadata=metadata)
        steps = produce_migrations(context, metadata).upgrade_ops
        assert steps is not None
        _refuse_unfilled(steps)
        code = render_python_code(steps, render_as_batch=True, render_item=_spell_type, migration_context=context)
    engine.dispose()
    lines = [_double_quoted(line) for line in code.splitlines() if not line.lstrip().startswith("# ###")]
    return "" if steps.is_empty() else "\n".join(lines).strip()


def _refuse_unfilled(steps: ops.UpgradeOps) -> None:
    """A step must also run on tables with rows, which need a value for each new column."""
    changes = [change for table in steps.ops if isinstance(table, ops.ModifyTableOps) for change in table.ops]
    added = [change for change in changes if isinstance(change, ops.AddColumnOp)]
    for table, column in ((change.table_name, change.column) for change in added):
        if not column.nullable and column.server_default is None:
            raise StorageError(
                f"the new column {column.name} of {table} may not be null, and existing rows have no value for it; give it one with"
                ' Field(sa_column_kwargs={"server_default": "…"}), or let it be null'
            )


def _compare(connection: Connection, metadata: MetaData, name: str, history: History) -> Sequence[Any]:
    feature = place_of(name).feature
    there = inspect(connection).get_table_names()
    features = [table.removeprefix(f"{VERSION_TABLE}_") for table in there if table.startswith(f"{VERSION_TABLE}_")]

    def is_own(table: str | None, kind: str, _: object) -> bool:
        return kind != "table" or table in metadata.tables or is_table_of(feature, table or "", features)

    context = _context(connection, history, include_name=is_own)
    step = context.get_current_revision()
    if step not in history.steps or history.due(step).head == step != history.head:  # a newer release has expanded, or one contracts later
        return []
    differences: Sequence[Any] = compare_metadata(context, metadata)
    return differences


def _spell_type(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Write the column types of campus and SQLModel as SQLAlchemy's own, so that a step does not change when they do."""
    if kind != "type":
        return False
    if isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if isinstance(item, Json):
        return "sa.JSON()"
    if isinstance(item, Moment | Span):
        return "sa.BigInteger()"
    if isinstance(item, AutoString):
        return f"sa.String(length={item.length})" if item.length else "sa.String()"
    return False


def _double_quoted(line: str) -> str:
    return line if '"' in line else line.replace("'", '"')
