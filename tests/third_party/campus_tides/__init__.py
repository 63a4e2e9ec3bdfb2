"""High and low water by port and day: a building as a stranger would write it, in a distribution of its own."""

from campus import Building, Check, Job, Page, Service
from campus_tides.server import Ports, TidesSettings, board, follow_ports, harbour, has_ports, mcp, refresh
from campus_tides.tables import Tables

building = Building(
    mcp,
    settings=TidesSettings,
    tables=Tables,
    state=lambda site: Ports(),
    jobs=[Job(refresh, daily_at="03:00")],
    services=[Service(follow_ports)],
    pages=[Page("GET /v1/tides/{port}/board", board), Page("GET|POST /tides/{port}", harbour)],
    checks=[Check(has_ports, on="ready")],
    problems={"no_tides": "There are no tides of that port on that day; `ports` lists the ports that are known."},
)
