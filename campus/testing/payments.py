"""Payments for tests: a real local chain, x402's facilitator on it, and wallets that pay. Needs the extra `mcp-campus[chain]`.

`python -m campus.testing.payments` offers a chain and a facilitator until Ctrl-C, to try a paid tool without money.
"""

from contextlib import suppress

import anyio

from campus.testing.chain import Chain, ChainError, NodeFaults, Relay, Transfer, open_chain, open_relay
from campus.testing.facilitator import Call, Facilitator, Faults, Hold, open_facilitator
from campus.testing.payer import PAYMENT, RECEIPT, Payer, headers_of, receipt_of, terms_of
from campus.testing.usdc import Wallet, new_wallet

__all__ = [
    "PAYMENT",
    "RECEIPT",
    "Call",
    "Chain",
    "ChainError",
    "Facilitator",
    "Faults",
    "Hold",
    "NodeFaults",
    "Payer",
    "Relay",
    "Transfer",
    "Wallet",
    "headers_of",
    "new_wallet",
    "open_chain",
    "open_facilitator",
    "open_relay",
    "receipt_of",
    "terms_of",
]


async def offer_chain() -> None:
    """Run a chain and a facilitator until the end of the process; prints a wallet with fifty dollars, and the lines for campus.toml."""
    buyer = new_wallet()
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(buyer.address, 50_000_000)
        table = facilitator.table(new_wallet().address)
        lines = ["", "[payments]", *(f'{key} = "{value}"' for key, value in table.items()), f"# the buyer's PRIVATE_KEY = {buyer.key}"]
        print(*lines, sep="\n", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        anyio.run(offer_chain)
