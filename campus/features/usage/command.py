"""campus key usage: what each key called."""

from typing import Annotated

import anyio
from cyclopts import Parameter, validators

from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, show
from campus.cli.places import read_place
from campus.core import open_core
from campus.features.usage.counts import KeyUsage
from campus.features.usage.feature import KEPT
from campus.features.usage.tables import UsageRow


def usage(
    key: Annotated[str, Parameter(help="Only this key, and those that it replaced: its id, or how it begins.")] = "",
    /,
    *,
    days: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=KEPT.days), help="So many days back, today included.")] = 30,
    config: ConfigFile = CAMPUS_TOML,
    as_json: AsJson = False,
) -> None:
    """List what each key called, by day (UTC) and tool; a running server's calls appear within 10 seconds."""

    async def found() -> list[UsageRow]:
        async with open_core(read_place(config), reading=True) as core:
            counts = KeyUsage(core.storage, now=core.now)
            lineage = (await core.keys.named(key)).lineage if key else None
            return list(await counts.read(days=days, lineage=lineage))

    rows = [
        {"day": one.day, "key": one.lineage, "building": one.building, "tool": one.tool, "calls": one.calls} for one in anyio.run(found)
    ]
    show(rows, as_json=as_json)
