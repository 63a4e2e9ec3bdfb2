"""Counts the modules of blockchain libraries that an open campus has loaded before it listens. `loaded_modules CONFIG`."""

import sys
from pathlib import Path

import anyio

from campus.app import assemble
from campus.asgi import open_app
from campus.config import read_config

HEAVY = {"x402", "web3", "eth_abi", "eth_account", "eth_keys", "eth_typing", "eth_utils", "hexbytes"}


async def loaded(config: Path) -> int:
    """How many."""
    async with assemble(read_config(config), exclusive=False) as campus, open_app(campus):
        return sum(name.partition(".")[0] in HEAVY for name in sys.modules)


if __name__ == "__main__":
    print(anyio.run(loaded, Path(sys.argv[1])))
