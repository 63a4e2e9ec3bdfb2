"""campus alerts: the targets that alerts do not reach."""

from typing import Any

import anyio

from campus.app import assemble
from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, optional_utc, show
from campus.cli.places import read_place


def alerts(*, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """List the targets that alerts do not reach, with the reason: those that fail, the longest first, then the disabled ones."""
    rows = anyio.run(_troubled_targets, config)
    if rows or as_json:
        show(rows, as_json=as_json)
    else:
        print("every target is reached")


async def _troubled_targets(config: ConfigFile) -> list[dict[str, Any]]:
    async with assemble(read_place(config), exclusive=False, reading=True) as campus:
        return [
            {
                "building": name,
                "state": "disabled" if one.disabled_at else "failing",
                "since": optional_utc(one.disabled_at or one.failing_since),
                "target": one.id,
                "kind": one.kind,
                "address": one.address,
                "tries": one.attempts,
                "next_try_at": optional_utc(one.next_try_at),
                "waiting": one.waiting,
                "reason": one.reason,
            }
            for name, troubled in (await campus.feature("alerts").troubled_targets()).items()
            for one in troubled
        ]
