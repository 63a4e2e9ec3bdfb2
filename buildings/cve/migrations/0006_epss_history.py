"""Stores the history of EPSS in blocks, so that the history of one CVE can be read without that of all others."""

import sys
import zlib
from array import array
from datetime import date
from itertools import chain

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BLOCKS = 8
UNSCORED = -1.0


def upgrade() -> None:
    """Create the tables of days and blocks, and move the stored changes into them."""
    op.create_table(
        "epss_day",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("next_day", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_epss_day")),
    )
    op.create_table(
        "epss_block",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("block", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("scores", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "block", name=op.f("pk_epss_block")),
    )
    changes = sa.table(
        "epss_change",
        sa.column("day", sa.Date()),
        sa.column("previous_day", sa.Date()),
        sa.column("previous_model", sa.String()),
        sa.column("changes", sa.LargeBinary()),
    )
    bind, moved = op.get_bind(), set[date]()
    keys = bind.execute(sa.select(changes.c.day, changes.c.previous_day).order_by(changes.c.day)).all()
    for day, previous_day in keys:
        if previous_day < day and previous_day not in moved:
            moved.add(previous_day)
            model, block = bind.execute(sa.select(changes.c.previous_model, changes.c.changes).where(changes.c.day == day)).one()
            _store(previous_day, day, model, block)
    op.drop_table("epss_change")


def _store(day: date, next_day: date, model: str, changes: bytes) -> None:
    days = sa.table("epss_day", sa.column("day", sa.Date()), sa.column("model", sa.String()), sa.column("next_day", sa.Date()))
    blocks = sa.table("epss_block", sa.column("day", sa.Date()), sa.column("block", sa.Integer()), sa.column("scores", sa.LargeBinary()))
    op.get_bind().execute(sa.insert(days).values(day=day, model=model, next_day=next_day))
    for place, block in enumerate(_blocks(changes)):
        op.get_bind().execute(sa.insert(blocks).values(day=day, block=place, scores=block))


def _blocks(changes: bytes) -> list[bytes]:
    """The changes as blocks: a byte for their form, then numbers as distances and values, both byte by byte, compressed."""
    columns: list[tuple[list[int], list[float]]] = [([], []) for _ in range(BLOCKS)]
    number = 0
    for line in zlib.decompress(changes).decode().splitlines():
        distance, _, score = line.partition(" ")
        number += int(distance)
        numbers, scores = columns[number % BLOCKS]
        numbers.append(number // BLOCKS)
        scores.append(float(score) if score else UNSCORED)
    return [_block(numbers, scores) for numbers, scores in columns]


def _block(numbers: list[int], scores: list[float]) -> bytes:
    distances = array("q", (number - before for before, number in zip(chain((0,), numbers), numbers, strict=False)))
    whole = [round(score * 100_000) + 1 if score != UNSCORED else 0 for score in scores]
    is_exact = all((value - 1) / 100_000 == score for value, score in zip(whole, scores, strict=True) if value)
    stream = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
    content = stream.compress(_planes(distances)) + stream.compress(_planes(array("I", whole) if is_exact else array("d", scores)))
    return (b"\0" if is_exact else b"\1") + content + stream.flush()


def _planes(column: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    content = column.tobytes()
    return b"".join(content[place :: column.itemsize] for place in range(column.itemsize))
