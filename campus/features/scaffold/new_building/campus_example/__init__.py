"""Example: what campus opens, serves and runs of this building."""

from datetime import timedelta

from campus import Building, Job, Page

from campus_example.server import Options, board, draw, mcp
from campus_example.tables import Tables

building = Building(
    mcp,
    settings=Options,
    tables=Tables,
    jobs=[Job(draw, every=timedelta(hours=1))],
    pages=[Page("GET /example", board, label="Example")],
    problems={"nothing_drawn": "No number was drawn yet; the first is drawn when the server starts."},
    contract=1,
)
