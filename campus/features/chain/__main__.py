"""`python -m campus.features.chain`: a chain and a facilitator, a wallet with fifty dollars, and the lines for campus.toml."""

import json
from contextlib import suppress

import anyio

from campus.features.chain import new_wallet, open_chain, open_facilitator


async def offer_chain() -> None:
    """Run a chain and a facilitator until the end of the process; prints a wallet with fifty dollars, and the lines for campus.toml."""
    buyer = new_wallet()
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(buyer.address, 50_000_000)
        table = facilitator.table(new_wallet().address)
        lines = [
            "",
            "[payments]",
            *(f"{key} = {json.dumps(value)}" for key, value in table.items()),
            f"# the buyer's PRIVATE_KEY = {buyer.key}",
        ]
        print(*lines, sep="\n", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        anyio.run(offer_chain)
