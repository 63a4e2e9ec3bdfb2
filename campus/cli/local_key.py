"""Who may call the tools of a campus on its machine, as `campus serve` and `campus dev` say it; and the key that opens the others.

The key is kept beside the databases, so that clients on the machine go on after the next start.
"""

from contextlib import suppress
from pathlib import Path

from campus.catalog.plan import Plan
from campus.config import Config
from campus.core import Core
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.pricing import LOCAL_KEY
from twins import is_read_only

KEY = Product("local", "all", "0", Term(12, "month"))
FILE = "local.key"


def open_to_strangers(plan: Plan) -> str:
    """The tools that may change something and that everybody may call; empty if there are none."""
    tools = ((one, name, tool) for one in plan.opened for name, tool in one.tools.items())
    return ", ".join(f"{one.name}.{name}" for one, name, tool in tools if one.offers[name].access.is_free and not is_read_only(tool))


async def announce(plan: Plan, core: Core) -> None:
    """Print what strangers may call on a local campus, and the key that opens the rest if there is any."""
    if not plan.config.is_local:
        return
    if strangers := open_to_strangers(plan):
        print(f"everybody who reaches {plan.config.url} may call: {strangers}", flush=True)
    keyed = [f"{one.name}.{name}" for one in plan.opened for name in one.tools if one.offers[name].access is LOCAL_KEY]
    if keyed := [*keyed, *(f"{one.name} (once it is reached)" for one in plan.closed if one.late)]:
        token = await kept_key(plan.config, core)
        named = ", ".join(keyed)
        print(f"{named} may change something and takes a key, sent as `Authorization: Bearer KEY`, or by the commands on the pages after")
        print(f"    export CAMPUS_KEY={token}", flush=True)


async def kept_key(config: Config, core: Core) -> str:
    """The token of the key that the last start kept, or of a new one. If it cannot be written, the next start makes another."""
    file = (Path(core.databases.place_of("campus")).parent if core.databases.is_single_process else config.folder) / FILE
    with suppress(OSError, UnicodeDecodeError):
        token = file.read_text(encoding="ascii").strip()
        if (await core.keys.tokens.find(token)).state == "valid":
            return token
    issued = await KeyRing(core.storage, {KEY.name: KEY}, now=core.now).issue(KEY.name, note="campus serve")
    with suppress(OSError):
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(f"{issued.token}\n", encoding="ascii")
    return issued.token
